"""What training images were like, and how others differ: a restorer is exact on any image, but right on its kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from unshift.estimator import as_float
from unshift.shifts import times

__all__ = ["KINDS", "LOOKED_AT", "background", "unlike"]

KINDS = 3
"""Ways in which images can differ: in size, range and background."""

SIZE = 1.1
"""Objects may be this many times larger or smaller: ``mnist-paper`` finds 99.9% of digits to within a pixel at 32x32,
96.8% at 36x36, 74.6% at 40x40. (``unshift evaluate --data mnist-10k --restorer mnist-paper --limit 1000 --size N``)"""
LINE_SMALLER, LINE_LARGER = 2.0, 4.0
"""Nets with lines look for a seam, not for an object: ``cifar10-seam``, trained at 32x32, finds 97.2% of 500 photos to
the pixel at 32x32, 98.8% at 64x64, 99.0% at 128x128, but 84.0% at 16x16. (``unshift evaluate --data cifar10 --restorer
cifar10-seam --limit 500 --size N``)"""
RANGE = 0.5
"""Pixels may go beyond the range by this share of it: sharpening and noise do."""
TOP = 6.0
"""The same, as a multiple of the largest value seen, where an old file does not tell the range."""
BACKGROUND = 0.25
"""A value that this share of the training images' pixels has is their background; a fourth of it is too little."""
LOOKED_AT = 64
"""Images of a batch that are looked at for their background."""


def background(images: Tensor) -> list[float] | None:
    """Return the value that most pixels of these images have, and the share that do; None if no value stands out."""
    some = images.flatten()[:: max(1, images.numel() // 2**20)]
    found, counts = as_float(some).unique(return_counts=True)
    share = float(counts.max()) / int(counts.sum())
    return [round(float(found[counts.argmax()]), 6), round(share, 4)] if share >= BACKGROUND else None


def unlike(
    images: Tensor,
    ends: tuple[float, float] | None,
    trained_on: Mapping[str, Any],
    canvas: Callable[[], Tensor],
    top: Callable[[], float],
    lines: bool,
    told: Collection[str] = (),
) -> Iterator[tuple[str, str]]:
    """Yield in what images differ from those that a restorer was trained on: a word, and a sentence.

    What the restorer's file does not tell is passed over.

    Args:
        images: ``(batch, channel, *spatial)``.
        ends: The lowest and the highest of their pixels, where that is known.
        trained_on: What is known of the training images.
        canvas: Returns what the network sees of the first :data:`LOOKED_AT` of them.
        top: Returns the largest absolute value that the network tells from larger ones.
        lines: Whether it is a net with lines.
        told: In what else need not be said, and costs nothing to know.
    """
    size, found = trained_on.get("size"), [*images.shape[2:]]
    most = (LINE_SMALLER, LINE_LARGER) if lines else (SIZE, SIZE)
    if size and found != size and _beyond(found, size, *most) and _beyond(canvas().shape[3:], size, *most):
        hint = "the seam" if lines else "objects as large as they were there"
        yield (
            "size",
            f"it was trained on images of {times(size)}, and one of these is {times(images.shape[2:])}: "
            f"it looks for {hint}; scale the images, or fit a restorer at their size",
        )
    if images.dtype not in (torch.uint8, torch.bool) and images.numel():
        low, high = ends or (float(end) for end in as_float(images).aminmax())
        least, largest = trained_on.get("range") or (-top(), top())
        span = largest - least if "range" in trained_on else TOP * largest
        if low < least - RANGE * span or high > largest + RANGE * span or 0 < high <= 1 < largest / 15:
            expected = f"{least:g} to {largest:g}" if "range" in trained_on else f"values up to {largest:g}"
            hint = "; divide by 255, or give uint8" if largest <= 1 and low >= 0 and 2 < high <= 255 else ""
            yield "range", f"their pixels run from {low:g} to {high:g}, and it was trained on {expected}{hint}"
    if trained_on.get("background") and images.shape[0] and "background" not in told:
        value, usual = trained_on["background"]
        some = as_float(canvas())  # on its margin, if it gets one
        share = float((some - value).abs_().lt_(0.01).mean())
        if share < BACKGROUND * usual:
            yield (
                "background",
                f"{100 * usual:.0f}% of the pixels that it was trained on were background ({value:g}), "
                f"here {100 * share:.0f}% are",
            )


def _beyond(size: Sequence[int], trained: Sequence[int], smaller: float, larger: float) -> bool:
    """Tell whether an axis is more than so many times smaller or larger than that of the training images."""
    if len(size) != len(trained):
        return False
    return any(a > larger * b or b > smaller * a for a, b in zip(size, trained, strict=True))
