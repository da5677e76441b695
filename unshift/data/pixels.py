"""A set of images as tensors, and the few things done to pixels before a net sees them.

Convention: images are ``(n, channel, *spatial)``; ``uint8`` means 0..255, a float type any finite
values (:func:`to_float` gives 0..1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unshift.shifts import add_margin

__all__ = ["ImageSet", "check_channels", "check_fit", "fit_to", "pad", "prepare", "resize", "to_channels", "to_float"]

FITS = ("resize", "crop")


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images ``(n, channel, *spatial)``, their labels ``(n,)`` where known, and what they are."""

    images: Tensor
    labels: Tensor | None
    name: str
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.images)


def to_float(images: Tensor) -> Tensor:
    """Convert images to ``float32``.

    >>> to_float(torch.tensor([0, 51, 255], dtype=torch.uint8))
    tensor([0.0000, 0.2000, 1.0000])

    Args:
        images: Pixels of type ``uint8``, or of a float type.

    Returns:
        ``uint8`` pixels divided by 255; floats with the values they had.

    Raises:
        ValueError: If the pixels are of another type.
    """
    if images.dtype == torch.uint8:
        return images.float() / 255
    if images.is_floating_point():
        return images.float()
    raise ValueError(f"to_float takes uint8 or float images, got {images.dtype}")


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize images bilinearly, without antialiasing.

    >>> resize(torch.tensor([[[[0, 100]]]], dtype=torch.uint8), (1, 4)).tolist()
    [[[[0, 25, 75, 100]]]]

    Args:
        images: ``(n, channel, height, width)``, ``uint8`` or a float type.
        size: The new ``(height, width)``.

    Returns:
        Images of the same type: ``uint8`` is rounded to the nearest integer. For unrounded values resize
        floats: ``resize(to_float(images), (32, 32))``.

    Raises:
        ValueError: If ``images`` are not of that shape or type.
    """
    if images.ndim != 4:
        raise ValueError(f"resize takes images (n, c, h, w), got shape {tuple(images.shape)}")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ValueError(f"resize takes uint8 or float images, got {images.dtype}")
    height, width = _check_size(size)
    if tuple(images.shape[2:]) == (height, width):
        return images
    if images.dtype != torch.uint8:
        return _interpolate(images, (height, width))
    # In blocks: as float32 a whole data set would take four times its memory, twice over.
    blocks = [_interpolate(block.float(), (height, width)).round().to(torch.uint8) for block in images.split(1024)]
    return torch.cat(blocks)


def pad(images: Tensor, p: int) -> Tensor:
    """Add ``p`` zeros on both sides of every spatial axis.

    >>> pad(torch.tensor([[[1, 2]]]), 1)
    tensor([[[0, 1, 2, 0]]])

    Args:
        images: ``(n, channel, *spatial)``.
        p: The width of the margin, 0 or more.

    Returns:
        Images of the same type, each spatial axis longer by ``2 * p``.
    """
    if p < 0:
        raise ValueError(f"pad takes p >= 0, got {p}")
    return add_margin(images, p)


def prepare(images: Tensor, preparation: Mapping[str, Any]) -> Tensor:
    """Do to images what was done to the training images of a restorer.

    >>> prepare(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), {"resize": [1, 4], "pad": 1})[0, 0, 1]
    tensor([0.0000, 0.0000, 0.2500, 0.7500, 1.0000, 0.0000])

    Args:
        images: ``(n, channel, *spatial)``.
        preparation: A restorer's ``trained_on["preparation"]``. Its steps, each optional, are done in this order:
            ``channels`` (1 or 3), ``resize`` or ``crop`` (``[height, width]``; on unrounded floats), ``pad``
            (pixels of 0 on every side).

    Returns:
        The prepared images. Those that already have the size keep their type.

    Raises:
        ValueError: If the preparation has a step that this version does not know.
    """
    if unknown := sorted({*preparation} - {"channels", *FITS, "pad"}):
        raise ValueError(f"unknown step in the restorer's preparation: {', '.join(unknown)}; upgrade unshift")
    if "channels" in preparation:
        images = to_channels(images, preparation["channels"])
    for fit in FITS:
        if fit in preparation and list(images.shape[2:]) != list(preparation[fit]):
            images = fit_to(to_float(images), tuple(preparation[fit]), fit)
    return pad(images, preparation["pad"]) if preparation.get("pad") else images


def fit_to(images: Tensor, size: tuple[int, int], fit: str) -> Tensor:
    """Bring images to ``size``: stretched, or (``fit="crop"``) scaled to cover it and cut to its middle."""
    check_fit(fit)
    if fit == "resize" or images.ndim != 4:
        return resize(images, size)
    height, width = _check_size(size)
    scale = max(height / images.shape[2], width / images.shape[3])
    # max(): a product such as 28 * (32 / 28) may fall short of 32 by rounding.
    covered = resize(
        images,
        (max(height, round(images.shape[2] * scale)), max(width, round(images.shape[3] * scale))),
    )
    top, left = (covered.shape[2] - height) // 2, (covered.shape[3] - width) // 2
    return covered[:, :, top : top + height, left : left + width].contiguous()


def to_channels(images: Tensor, channels: int) -> Tensor:
    """Turn grey images to RGB by repeating, RGB to grey by ITU-R 601 luma, as Pillow rounds it."""
    check_channels(channels)
    found = images.shape[1]
    if found == channels:
        return images
    if found == 1:
        return images.repeat(1, channels, *[1] * (images.ndim - 2))
    if found != 3:
        raise ValueError(f"images have {found} channels, which cannot become {channels}; expected 1 or 3")
    weights = (19595, 38470, 7471)  # of 65536
    if images.dtype == torch.uint8:
        total = sum((images[:, i : i + 1].int() * w for i, w in enumerate(weights)), torch.tensor(1 << 15))
        return (total >> 16).to(torch.uint8)
    return sum((images[:, i : i + 1] * (w / 65536) for i, w in enumerate(weights)), torch.tensor(0.0))


def check_fit(fit: str) -> None:
    """Raise a ``ValueError`` unless ``fit`` is one of the two ways."""
    if fit not in FITS:
        raise ValueError(f"fit must be one of {', '.join(FITS)}, got {fit!r}")


def check_channels(channels: int) -> None:
    """Raise a ``ValueError`` unless ``channels`` is 1 or 3."""
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 (grey) or 3 (RGB), got {channels}")


def _check_size(size: tuple[int, int]) -> tuple[int, int]:
    if len(size) != 2 or min(size) < 1 or math.prod(size) > 1 << 28:
        raise ValueError(f"size must be (height, width), both at least 1, got {size}")
    return size[0], size[1]


def _interpolate(images: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(images, size=size, mode="bilinear", align_corners=False, antialias=False)
