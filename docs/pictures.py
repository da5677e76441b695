"""Draw the pictures of the pages with the library itself: ``python docs/pictures.py`` writes docs/images/."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import torch
from matplotlib import cbook
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

import unshift
from reproduction.plots import BARE as WRONG
from reproduction.plots import RESTORED as RIGHT
from unshift import classifiers
from unshift.coordinates import rotate
from unshift.data import dataset, resize, to_float

IMAGES = Path(__file__).resolve().parent / "images"
INK = "#374151"
LIMIT = 300_000
"""Largest size of a picture in bytes."""


def digit() -> tuple[torch.Tensor, int]:
    """Return a test digit at 32x32, ``(1, 1, 32, 32)``, and its class."""
    test = dataset("mnist-10k", "test")
    assert test.labels is not None
    return resize(to_float(test.images[1:2]), (32, 32)), int(test.labels[1])


def photo(size: int) -> torch.Tensor:
    """Return a photo that comes with matplotlib (Grace Hopper, public domain), ``(1, 3, size, size)``."""
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        picture = Image.open(file).convert("RGB")
    side = min(picture.size)
    square = picture.crop((0, 20, side, side + 20)).resize((size, size), Image.Resampling.LANCZOS)
    return torch.from_numpy(np.asarray(square).copy()).permute(2, 0, 1)[None]


def draw(axes: Axes, image: torch.Tensor, caption: str = "", colour: str = INK, **options: object) -> None:
    """Show one image ``(channel, height, width)`` without ticks, with its caption below."""
    pixels = image.permute(1, 2, 0).squeeze(-1).numpy()
    axes.imshow(pixels, **{"cmap": "gray", "vmin": 0, "vmax": 1, **options})  # type: ignore[arg-type]
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color("#9ca3af")
    axes.set_xlabel(caption, color=colour, fontsize=11, labelpad=5)


def draw_scores(axes: Axes, scores: torch.Tensor, peak: list[int], caption: str, power: int) -> None:
    """Show a score map with a ring around its peak; ``power`` raises the contrast."""
    heat = (scores - scores.min()) / (scores.max() - scores.min())
    draw(axes, heat[None] ** power, caption, cmap="magma")
    axes.plot(peak[1], peak[0], "o", mfc="none", mec="white", ms=13, mew=1.8)


def moving(frames: int = 28) -> bytes:
    """A digit moves over the image and around its edges, with the prediction of a frozen classifier below."""
    image, label = digit()
    classifier, restorer = classifiers.load("lenet5-mnist"), unshift.load("mnist")
    turn = 2 * math.pi * (torch.arange(frames) + frames // 4) / frames  # the first frame is misclassified
    path = torch.stack([11 * torch.sin(2 * turn), 15 * torch.sin(turn)], 1).round().long()
    moved = unshift.apply(image.expand(frames, -1, -1, -1), path)
    scores, restored, shifts = restorer.scorer(moved).double(), restorer(moved), restorer.estimate(moved).shift
    assert all(torch.equal(one, restored[0]) for one in restored)
    alone, behind = (classifier(shown).argmax(1).tolist() for shown in (moved, restored))
    drawn = []
    for frame in range(frames):
        figure = Figure(figsize=(7.6, 2.95))
        panels = figure.subplots(1, 3)
        colour = RIGHT if alone[frame] == label else WRONG
        draw(panels[0], moved[frame], f"alone, the classifier says {alone[frame]}", colour)
        draw_scores(panels[1], scores[frame], shifts[frame].tolist(), "the peak is the shift", 4)
        draw(panels[2], restored[frame], f"restored, it says {behind[frame]}: always", RIGHT)
        figure.subplots_adjust(left=0.01, right=0.99, top=0.98, bottom=0.12, wspace=0.04)
        drawn.append(Image.open(io.BytesIO(png(figure, 100))).convert("RGB"))
    palette = drawn[0].quantize(48)
    first, *rest = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in drawn]
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=rest, duration=120, loop=0, optimize=True)
    return buffer.getvalue()


def peak() -> bytes:
    """An image and a shifted copy: the scores move along, so rolling back by the peak gives one image."""
    moved = unshift.apply(digit()[0].expand(2, -1, -1, -1), torch.tensor([[0, 0], [9, -12]]))
    restorer = unshift.load("mnist")
    scores, shifts, restored = restorer.scorer(moved).double(), restorer.estimate(moved).shift, restorer(moved)
    assert torch.equal(restored[0], restored[1])
    figure = Figure(figsize=(7.6, 5.3))
    panels = figure.subplots(2, 3)
    for row, name in enumerate(("original", "moved 9 down, 12 left")):
        draw(panels[row, 0], moved[row], name)
        at = shifts[row].tolist()
        draw_scores(panels[row, 1], scores[row], at, f"scores: the peak is at {tuple(at)}", 3)
        draw(panels[row, 2], restored[row], "rolled back by the peak", RIGHT)
    for column, title in enumerate(("image", "equivariant network", "restored")):
        panels[0, column].set_title(title, fontsize=11, color=INK)
    figure.subplots_adjust(left=0.01, right=0.99, top=0.94, bottom=0.06, wspace=0.04, hspace=0.2)
    return png(figure)


def seam(size: int = 32) -> bytes:
    """A circular shift of a photo leaves a seam along whole rows and columns, which the preset ``seam`` finds."""
    moved = unshift.apply(photo(size), torch.tensor([[size // 3, size // 4]]))
    restorer = unshift.load("cifar10-seam")
    scores, shift = restorer.scorer(moved)[0].double(), restorer.estimate(moved).shift[0].tolist()
    figure = Figure(figsize=(9.4, 2.75))
    panels = figure.subplots(1, 4)
    draw(panels[0], photo(size)[0], "photo")
    draw(panels[1], moved[0], f"moved {size // 3} down, {size // 4} right", WRONG)
    for axis, (name, colour) in enumerate((("rows", RIGHT), ("columns", WRONG))):
        line = scores.amax(1 - axis)
        panels[2].plot(line - line.max(), label=name, color=colour)
        panels[2].axvline(shift[axis], color=colour, lw=0.8, ls=":")
    panels[2].set_yticks([])
    panels[2].set_box_aspect(1)
    panels[2].spines[["top", "right", "left"]].set_visible(False)
    panels[2].legend(frameon=False, fontsize=9, loc="upper right")
    panels[2].set_xlabel(f"scores: peaks at {shift}", fontsize=11, color=INK)
    draw(panels[3], restorer(moved)[0], "restored", RIGHT)
    figure.subplots_adjust(left=0.01, right=0.99, top=0.98, bottom=0.14, wspace=0.08)
    return png(figure)


def angle() -> bytes:
    """A rotation is a shift of the angle axis: the polar canvas of a rotated digit is the digit's canvas, rolled."""
    image, restorer = resize(digit()[0], (224, 224)), unshift.load("mnist-rotation")
    turned = torch.cat([rotate(image, degrees) for degrees in (0, 90, 140)])
    canvas, restored = restorer.coordinates.canvases(turned)[0], restorer(turned)
    angles = restorer.estimate(turned).angle
    assert angles is not None
    figure = Figure(figsize=(7.6, 7.4))
    panels = figure.subplots(3, 3, width_ratios=[1, 1.9, 1])
    for row, degrees in enumerate((0, 90, 140)):
        draw(panels[row, 0], turned[row], f"turned by {degrees}°")
        draw(panels[row, 1], canvas[row][None], "angle →", aspect="auto")
        panels[row, 1].set_ylabel("← radius", fontsize=10, color=INK)
        draw(panels[row, 2], restored[row], f"turned back by {float(angles[row]) % 360:.1f}°", RIGHT)
    figure.subplots_adjust(left=0.01, right=0.99, top=0.99, bottom=0.04, wspace=0.1, hspace=0.18)
    return png(figure)


def png(figure: Figure, dpi: int = 130) -> bytes:
    """Return a figure as the content of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def main() -> None:
    """Write every picture."""
    for name, make in {"moving.gif": moving, "peak.png": peak, "seam.png": seam, "angle.png": angle}.items():
        data = make()
        assert len(data) < LIMIT, f"{name} has {len(data):,} bytes"
        (IMAGES / name).write_bytes(data)
        print(f"{name}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
