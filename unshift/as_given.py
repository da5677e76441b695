"""Images as they are given: a batch, a single image, a NumPy array, a Pillow image; and results in the same form."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unshift.pictures import seen, values, with_values, without_palette

__all__ = ["Given", "as_given"]


class Given(NamedTuple):
    """Images as a batch, and the way back to the form they had."""

    seen: Tensor
    """what the network sees, ``(batch, channel, *spatial)``"""
    values: Tensor
    """what is moved: the same, but for a Pillow image of another mode"""
    back: Callable[[Tensor], Any]
    """from moved values to the form that was given"""


def as_given(images: Any, axes: int | None, channels: int | None, rotated: bool = False) -> Given:
    """Take images in whatever form they are.

    Args:
        images: A tensor ``(batch, channel, *spatial)`` or of one image ``(channel, *spatial)``; an array of either
            shape, with the channels last if that is where they are, or of one grey image ``(*spatial)``; or a Pillow
            image.
        axes: How many spatial axes the images have, where that is known: without it, tensors and arrays are batches.
        channels: How many channels the network sees, where that is known.
        rotated: Whether values will be mixed, which those of a palette cannot.
    """
    if isinstance(images, Tensor):
        if axes is not None and images.ndim == axes + 1:
            return Given(images[None], images[None], lambda moved: moved[0])
        return Given(images, images, _as_it_is)
    if isinstance(images, np.ndarray):
        return _array(images, axes, channels)
    if hasattr(images, "getbands") and hasattr(images, "frombytes"):
        picture = without_palette(images) if rotated else images
        return Given(seen(picture, channels or 3), values(picture), lambda moved: with_values(picture, moved))
    hint = "; open the file first, as PIL.Image.open does" if isinstance(images, str | os.PathLike) else ""
    raise ValueError(
        "images must be a torch.Tensor (batch, channel, *spatial), a NumPy array, a Pillow image or a list of tensors "
        f"(channel, *spatial), got {type(images).__name__}{hint}"
    )


def _as_it_is(moved: Tensor) -> Tensor:
    return moved


def _array(images: np.ndarray[Any, Any], axes: int | None, channels: int | None) -> Given:
    tensor = torch.from_numpy(np.array(images))  # a copy: what is flipped, or may not be written to, has no tensor
    missing = 0 if axes is None else max(0, axes + 2 - images.ndim)
    if axes is not None and images.ndim == axes:
        return Given(tensor[None, None], tensor[None, None], lambda moved: moved[0, 0].numpy())
    first, last = 1 - missing, images.ndim - 1
    if missing < 2 and images.ndim > 2 and channels == images.shape[last] != images.shape[first]:
        planes = tensor.movedim(last, first)
        batch = planes[None] if missing else planes
        return Given(batch, batch, lambda moved: (moved[0] if missing else moved).movedim(first, last).numpy())
    batch = tensor[None] if missing else tensor
    return Given(batch, batch, lambda moved: (moved[0] if missing else moved).numpy())
