"""Draw the pictures of these pages with the library itself: ``python docs/pictures.py`` writes docs/images/."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import torch
from matplotlib import cbook, colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageColor

import unshift
from unshift.coordinates import rotate
from unshift.data import dataset, resize, to_float
from unshift.experiments import plots
from unshift.experiments.classifiers import shipped

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
RIGHT, WRONG, INK = plots.RESTORED, plots.BARE, "#374151"
LIMIT = 300_000
"""bytes of a picture: a page must open at once"""


def digits(rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return test digits at 32x32, and their labels."""
    test = dataset("mnist-10k", "test")
    assert test.labels is not None
    return resize(to_float(test.images[rows]), (32, 32)), test.labels[rows]


def photo(size: int) -> torch.Tensor:
    """Return a photo that matplotlib brings (Grace Hopper, U.S. Navy, public domain), ``(1, 3, size, size)``."""
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        picture = Image.open(file).convert("RGB")
    side = min(picture.size)
    square = picture.crop((0, 20, side, side + 20)).resize((size, size), Image.Resampling.LANCZOS)
    return torch.from_numpy(np.asarray(square).copy()).permute(2, 0, 1)[None]


def draw(axes: Axes, image: torch.Tensor, caption: str = "", colour: str = INK, **options: object) -> None:
    """Show one ``(channel, H, W)`` image without ticks, its caption below."""
    pixels = image.permute(1, 2, 0).squeeze(-1).numpy()
    axes.imshow(pixels, **{"cmap": "gray", "vmin": 0, "vmax": 1, **options})  # type: ignore[arg-type]
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color("#9ca3af")
    axes.set_xlabel(caption, color=colour, fontsize=11, labelpad=5)


def moving(frames: int = 28) -> bytes:
    """One digit wanders over the image and round its edges; below, what a frozen classifier makes of it."""
    image, label = digits([1])
    classifier, restorer = shipped()["lenet5-mnist"](), unshift.load("mnist")
    turn = 2 * math.pi * (torch.arange(frames) + frames // 4) / frames  # its first frame is one that goes wrong
    path = torch.stack([11 * torch.sin(2 * turn), 15 * torch.sin(turn)], 1).round().long()
    moved = unshift.apply(image.expand(frames, -1, -1, -1), path)
    scores, restored = restorer.scorer(moved), restorer(moved)
    assert all(torch.equal(one, restored[0]) for one in restored)
    alone, wrapped = (classifier(shown).argmax(1).tolist() for shown in (moved, restored))
    reading = restorer.estimate(moved).shift
    drawn = []
    for frame in range(frames):
        figure = Figure(figsize=(7.6, 2.95))
        panels = figure.subplots(1, 3)
        says, truth = alone[frame], int(label)
        draw(panels[0], moved[frame], f"alone, the classifier says {says}", RIGHT if says == truth else WRONG)
        heat = scores[frame].double().sub(scores.min()).div((scores.max() - scores.min()).double())
        draw(panels[1], heat[None] ** 4, "its peak is the shift", cmap="magma")
        row, column = reading[frame].tolist()
        panels[1].plot(column, row, "o", mfc="none", mec="white", ms=13, mew=1.8)
        draw(panels[2], restored[frame], f"restored, it says {wrapped[frame]}: always", RIGHT)
        figure.subplots_adjust(left=0.01, right=0.99, top=0.98, bottom=0.12, wspace=0.04)
        drawn.append(_picture(figure))
    greys = [(v, v, v) for v in range(0, 256, 17)]
    heats = [tuple(int(255 * part) for part in colormaps["magma"](k / 15)[:3]) for k in range(16)]
    inks = [
        tuple(int(255 - (255 - v) * k / 4) for v in ImageColor.getrgb(ink)) for ink in (RIGHT, WRONG) for k in (2, 4)
    ]
    palette = Image.new("P", (1, 1))
    palette.putpalette([value for colour in (*greys, *heats, *inks) for value in colour])  # no tints in the greys
    first, *rest = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in drawn]
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=rest, duration=120, loop=0, optimize=True)
    return buffer.getvalue()


def peak() -> bytes:
    """An image and a shift of it: the scores move along, so undoing the peak's position gives one image."""
    image, _ = digits([1])
    shift = torch.tensor([[0, 0], [9, -12]])
    moved = unshift.apply(image.expand(2, -1, -1, -1), shift)
    restorer = unshift.load("mnist")
    scores, found, restored = restorer.scorer(moved).double(), restorer.estimate(moved).shift, restorer(moved)
    figure = Figure(figsize=(7.6, 5.3))
    panels = figure.subplots(2, 3)
    for row, name in enumerate(("as it was", "moved 9 down, 12 left")):
        draw(panels[row, 0], moved[row], name)
        at = tuple(found[row].tolist())
        heat = (scores[row] - scores.min()) / (scores.max() - scores.min())
        draw(panels[row, 1], heat[None] ** 3, f"scores: the peak is at {at}", cmap="magma")
        panels[row, 1].plot(at[1], at[0], "o", mfc="none", mec="white", ms=14, mew=2)
        draw(panels[row, 2], restored[row], "rolled back by the peak", RIGHT)
    for column, title in enumerate(("image", "equivariant network", "restored")):
        panels[0, column].set_title(title, fontsize=11, color=INK)
    figure.subplots_adjust(left=0.01, right=0.99, top=0.94, bottom=0.06, wspace=0.04, hspace=0.2)
    assert torch.equal(restored[0], restored[1])
    return _png(figure)


def seam(size: int = 32) -> bytes:
    """A shifted photo wraps round: the seam shows in whole rows and columns, which is what ``seam`` looks at."""
    moved = unshift.apply(photo(size), torch.tensor([[size // 3, size // 4]]))
    restorer = unshift.load("cifar10-seam")
    scores = restorer.scorer(moved)[0].double()
    found = restorer.estimate(moved)
    figure = Figure(figsize=(9.4, 2.75))
    panels = figure.subplots(1, 4)
    draw(panels[0], photo(size)[0], "photo")
    draw(panels[1], moved[0], f"moved {size // 3} down, {size // 4} right", WRONG)
    for axis, name in enumerate(("rows", "columns")):
        line = scores.amax(1 - axis)
        panels[2].plot(line - line.max(), label=name, color=(RIGHT, WRONG)[axis])
        panels[2].axvline(int(found.shift[0, axis]), color=(RIGHT, WRONG)[axis], lw=0.8, ls=":")
    panels[2].set_yticks([])
    panels[2].set_box_aspect(1)
    panels[2].spines[["top", "right", "left"]].set_visible(False)
    panels[2].legend(frameon=False, fontsize=9, loc="upper right")
    panels[2].set_xlabel(f"scores: peaks at {found.shift[0].tolist()}", fontsize=11, color=INK)
    draw(panels[3], restorer(moved)[0], "restored", RIGHT)
    figure.subplots_adjust(left=0.01, right=0.99, top=0.98, bottom=0.14, wspace=0.08)
    return _png(figure)


def angle() -> bytes:
    """A rotation is a shift of the angle axis: the polar canvas of a turned digit is that of the digit, rolled."""
    image = resize(digits([1])[0], (224, 224))
    restorer = unshift.load("mnist-rotation")
    turned = torch.cat([rotate(image, degrees) for degrees in (0, 90, 140)])
    canvas = restorer.coordinates.canvas(turned)[:, 0]
    found, restored = restorer.estimate(turned).angle, restorer(turned)
    assert found is not None
    figure = Figure(figsize=(7.6, 7.4))
    panels = figure.subplots(3, 3, width_ratios=[1, 1.9, 1])
    for row, degrees in enumerate((0, 90, 140)):
        draw(panels[row, 0], turned[row], f"turned by {degrees}°")
        draw(panels[row, 1], canvas[row][None], "angle →", aspect="auto")
        panels[row, 1].set_ylabel("← radius", fontsize=10, color=INK)
        draw(panels[row, 2], restored[row], f"turned back by {float(found[row]) % 360:.1f}°", RIGHT)
    figure.subplots_adjust(left=0.01, right=0.99, top=0.99, bottom=0.04, wspace=0.1, hspace=0.18)
    return _png(figure)


def _picture(figure: Figure) -> Image.Image:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return Image.open(buffer).convert("RGB")


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()


PICTURES = {"moving.gif": moving, "peak.png": peak, "seam.png": seam, "angle.png": angle}


def main() -> None:
    """Write every picture."""
    for name, make in PICTURES.items():
        data = make()
        assert len(data) < LIMIT, f"{name} has {len(data):,} bytes"
        (IMAGES / name).write_bytes(data)
        print(f"{name}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
