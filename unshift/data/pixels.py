"""A set of images, and the preparation of pixels for a network.

Images are ``(n, channel, *spatial)``: ``uint8`` in 0..255, or finite floats (:func:`to_float` gives 0..1).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unshift.progress import tracked
from unshift.shifts import add_margin

FITS = ("resize", "crop")


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images, which may still be on disk, and their labels ``(n,)`` if known."""

    images: Any  # a tensor `(n, channel, *spatial)`, a list of sequences `(4, length)`, or a `Dataset` of image files
    labels: Tensor | None
    name: str
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    def prepared(self, preparation: Mapping[str, Any], limit: int | None = None) -> ImageSet:
        """Return the first ``limit`` images, with :func:`prepare` applied to each when it is read."""
        images = self.images
        if isinstance(images, Tensor):
            images = prepare(images[:limit], preparation)
        elif isinstance(images, list):
            if preparation:
                raise ValueError(f"sequences cannot be prepared: leave out {', '.join(preparation)}")
            images = images[:limit]
        else:
            images = images.prepared(preparation, limit)
        return replace(self, images=images, labels=None if self.labels is None else self.labels[:limit])

    def load(self, mixed: bool = False) -> ImageSet:
        """Return the set with all images in memory: as a tensor or, if they are ``mixed`` in size, as a list."""
        return self if isinstance(self.images, Tensor | list) else replace(self, images=load_files(self.images, mixed))


def load_files(files: Any, mixed: bool = False) -> Tensor | list[Tensor]:
    """Load :class:`ImageFiles` as a tensor ``(n, channels, h, w)``; if ``mixed``, as a list where sizes differ."""
    images = torch.empty(0, dtype=torch.uint8)
    for i in tracked(range(len(files)), "images", "images", len(files) > 1):
        pixels = files[i]
        if i == 0:
            # Allocate for all when the first size is known: a list and its stack would take twice the memory.
            images = torch.empty(len(files), *pixels.shape, dtype=pixels.dtype)
        if pixels.shape != images.shape[1:]:
            if mixed:
                return [*images[:i], pixels, *(files[row] for row in range(i + 1, len(files)))]
            (h, w), (first_h, first_w) = pixels.shape[1:], images.shape[2:]
            raise ValueError(
                f"images differ in size: {files.name(0)} is {first_h}x{first_w}, {files.name(i)} is {h}x{w} "
                f"(height x width); give a size for all, such as --size {first_h}x{first_w}"
            )
        images[i] = pixels
    return images


def to_float(images: Tensor) -> Tensor:
    """Convert images to ``float32``: ``uint8`` is divided by 255, floats keep their values, other types are refused.

    >>> to_float(torch.tensor([0, 51, 255], dtype=torch.uint8))
    tensor([0.0000, 0.2000, 1.0000])
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
        images: ``(n, channel, height, width)``, ``uint8`` or a float type, as is the result; ``uint8`` is rounded.
        size: The new ``(height, width)``.
    """
    if images.ndim != 4:
        raise ValueError(f"resize takes images (n, c, h, w), got shape {tuple(images.shape)}")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ValueError(f"resize takes uint8 or float images, got {images.dtype}")
    check_options(size, "resize", None)
    if tuple(images.shape[2:]) == tuple(size):
        return images
    interpolate = functools.partial(F.interpolate, size=size, mode="bilinear", align_corners=False)
    if images.dtype != torch.uint8:
        return interpolate(images)
    # In blocks: a whole data set as float32 would take eight times its memory.
    return torch.cat([interpolate(block.float()).round().to(torch.uint8) for block in images.split(1024)])


def prepare(images: Tensor, preparation: Mapping[str, Any]) -> Tensor:
    """Prepare images ``(n, channel, *spatial)`` as the training images of a restorer were prepared.

    ``preparation`` is a restorer's ``trained_on["preparation"]``. Its steps, each optional, are applied in this order:
    ``channels`` (1 or 3), ``resize`` or ``crop`` (``[height, width]``; on unrounded floats), ``pad`` (zeros on every
    side).

    >>> prepare(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), {"resize": [1, 4], "pad": 1})[0, 0, 1]
    tensor([0.0000, 0.0000, 0.2500, 0.7500, 1.0000, 0.0000])
    """
    if unknown := sorted({*preparation} - {"channels", *FITS, "pad"}):
        raise ValueError(f"unknown step in the restorer's preparation: {', '.join(unknown)}; upgrade unshift")
    images = to_channels(images, preparation.get("channels"))
    for fit in FITS:
        if fit in preparation and list(images.shape[2:]) != list(preparation[fit]):
            images = fit_to(to_float(images), tuple(preparation[fit]), fit)
    return add_margin(images, preparation.get("pad", 0))


def fit_to(images: Tensor, size: tuple[int, int], fit: str) -> Tensor:
    """Resize images to ``size``: stretch, or (``fit="crop"``) scale to cover it and crop the centre."""
    check_options(size, fit, None)
    if fit == "resize" or images.ndim != 4:
        return resize(images, size)
    height, width = size
    scale = max(height / images.shape[2], width / images.shape[3])
    # max(): a product such as 28 * (32 / 28) may fall short of 32 by rounding.
    size = (max(height, round(images.shape[2] * scale)), max(width, round(images.shape[3] * scale)))
    covered = resize(images, size)
    top, left = (covered.shape[2] - height) // 2, (covered.shape[3] - width) // 2
    return covered[:, :, top : top + height, left : left + width].contiguous()


def to_channels(images: Tensor, channels: int | None) -> Tensor:
    """Convert grey images to RGB by repetition, RGB to grey by ITU-R 601 luma with Pillow's rounding."""
    if channels in (None, images.shape[1]):
        return images
    if {channels, images.shape[1]} != {1, 3}:
        raise ValueError(f"images have {images.shape[1]} channels, which cannot become {channels}; expected 1 or 3")
    if channels == 3:
        return images.repeat(1, 3, *[1] * (images.ndim - 2))
    weights = (19595, 38470, 7471)  # of 65536
    if images.dtype == torch.uint8:
        total = sum((images[:, i : i + 1].int() * w for i, w in enumerate(weights)), torch.tensor(1 << 15))
        return (total >> 16).to(torch.uint8)
    return sum((images[:, i : i + 1] * (w / 65536) for i, w in enumerate(weights)), torch.tensor(0.0))


def check_options(size: tuple[int, int] | None, fit: str, channels: int | None) -> None:
    """Raise a ``ValueError`` unless the options of :func:`unshift.data.open_images` are valid."""
    if size is not None and (len(size) != 2 or min(size) < 1 or math.prod(size) > 1 << 28):
        raise ValueError(f"size must be (height, width), both at least 1 and of at most 2^28 pixels, got {size}")
    if fit not in FITS:
        raise ValueError(f"fit must be one of {', '.join(FITS)}, got {fit!r}")
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be 1 (grey) or 3 (RGB), got {channels}")
