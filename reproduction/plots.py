"""Parts of figures: colours, plain axes, rows of images, and PNG without global state."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["BARE", "PAPER", "RESTORED", "axes", "figure", "grey", "image_rows", "mosaic", "png"]
__all__ += ["verdict_colour"]

BARE, RESTORED, PAPER = "#c2410c", "#0f766e", "#9ca3af"


def figure(width: float, height: float, **options: Any) -> Any:
    """Return an empty figure. matplotlib is imported here, when something is drawn, and without ``pyplot``."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), **options)


def axes(width: float, height: float) -> tuple[Any, Any]:
    """Return a figure and its axes, with a light grid and no box."""
    made = figure(width, height)
    plot = made.subplots()
    plot.grid(alpha=0.25)
    plot.spines[["top", "right"]].set_visible(False)
    return made, plot


def grey(images: Tensor) -> list[Any]:
    """Return images in [0, 1] as grey levels from 0 to 255, without their channels: what a picture stores."""
    levels: list[Any] = (255 * images.mean(1)).round().to(torch.uint8).tolist()
    return levels


def mosaic(plot: Any, rows: Sequence[Sequence[Any]], names: Sequence[str]) -> int:
    """Show rows of square grey images (0 to 255) as one image with dark lines between; return the side of a tile."""
    tiles = np.pad(np.array(rows, dtype=np.uint8), ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=90)
    height, width, side = tiles.shape[:3]
    whole = tiles.transpose(0, 2, 1, 3).reshape(height * side, width * side)
    plot.imshow(whole, cmap="gray", vmin=0, vmax=255, extent=(0, width * side, height * side, 0))
    plot.set_xticks([])
    plot.set_yticks([(row + 0.5) * side for row in range(height)], names, fontsize=8)
    plot.tick_params(length=0)
    plot.spines[:].set_visible(False)
    return int(side)


def image_rows(rows: dict[str, Any], height: float) -> bytes:
    """Draw rows of images, by name, as one PNG."""
    made, plot = axes(10, height)
    plot.grid(False)
    mosaic(plot, list(rows.values()), list(rows))
    return png(made)


def verdict_colour(right: bool) -> str:
    """Return the colour of a right or wrong prediction."""
    return RESTORED if right else BARE


def png(made: Any) -> bytes:
    """Return a figure as the content of a PNG file."""
    buffer = io.BytesIO()
    made.savefig(buffer, format="png", dpi=150, bbox_inches="tight", metadata={"Software": None})
    return buffer.getvalue()
