"""Rotation of images about their centre: whole quarter turns move pixels, the rest is bilinear.

Angles are degrees, counter-clockwise. An estimate's angle is a whole number of *grains* of 1/1024 degree, so that
adding 90 degrees to one, or taking them away, is exact, and cosines can come out of a table: runtimes differ in theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.exact import is_traced
from unshift.shifts import check_images, take

__all__ = ["GRAIN", "rotate", "rotate_grains"]

GRAIN = 1024
QUARTER = 90 * GRAIN


def rotate(images: Tensor, degrees: Tensor | float, *, axis: int = 0) -> Tensor:
    """Rotate each image counter-clockwise by its own angle, about its centre; the dtype stays.

    >>> rotate(torch.tensor([[[[1, 2], [3, 4]]]]), 90)
    tensor([[[[2, 4],
              [1, 3]]]])

    Args:
        images: Square images, or volumes, which turn about their spatial ``axis``, slice by slice.
        degrees: One number, or ``(batch,)``. Multiples of 90 move pixels and are exact; what is left is bilinear, with
            zeros from outside.
        axis: The axis that volumes turn about.

    Raises:
        ValueError: If the two axes that turn differ in length, or an angle is not finite.
    """
    check_images(images)
    wanted = torch.as_tensor(degrees, dtype=torch.float64, device=images.device).detach()
    if wanted.ndim > 1 or (wanted.ndim == 1 and len(wanted) != len(images)) or not torch.isfinite(wanted).all():
        raise ValueError(
            f"degrees must be one finite number, or one per image ({len(images)}), got shape {tuple(wanted.shape)}"
        )
    wanted = wanted.expand(len(images))
    rest = torch.remainder(wanted + 45, 90) - 45
    quarters = ((wanted - rest) / 90).round().long() % 4
    # cos and sin one by one: a vectorised kernel may round differently at the end of a batch.
    radians = [math.radians(value) for value in rest.tolist()]
    cos, sin = (
        torch.tensor([wave(r) for r in radians], dtype=torch.float64, device=images.device)
        for wave in (math.cos, math.sin)
    )
    return _rotate(images, quarters, rest != 0, cos, sin, axis)


def rotate_grains(images: Tensor, grains: Tensor, axis: int = 0) -> Tensor:
    """Rotate each image by a whole number of grains ``(batch,)``: what :func:`rotate` does, and graphs can."""
    rest = (grains + QUARTER // 2) % QUARTER - QUARTER // 2
    quarters = torch.div(grains - rest, QUARTER, rounding_mode="floor") % 4
    if not is_traced():
        return rotate(images, grains.to(torch.float64) / GRAIN, axis=axis)
    return _rotate(images, quarters, rest != 0, COS[rest.abs()], SIN[rest.abs()] * rest.sign(), axis)


def _table(wave: Callable[[float], float]) -> Tensor:
    """Return the values of all grains up to 45 degrees, by Python's own functions."""
    values = [wave(math.radians(grains / GRAIN)) for grains in range(QUARTER // 2 + 1)]
    return torch.tensor(values, dtype=torch.float64)


# Made here, as numbers: tracing looks through any cache, and would make them in the loops of a graph, where it cannot.
COS, SIN = _table(math.cos), _table(math.sin)


def _rotate(images: Tensor, quarters: Tensor, interpolated: Tensor, cos: Tensor, sin: Tensor, axis: int) -> Tensor:
    size = tuple(images.shape[2:])
    volumes = images.movedim(2 + axis, 2) if len(size) == 3 else images
    height, width = volumes.shape[-2:]
    if height != width or len(size) == 1:
        raise ValueError(f"rotate wants square images, so that a quarter turn fits, got shape {tuple(images.shape)}")
    flat = volumes.reshape(images.shape[0], -1, height * width)
    pixels = torch.arange(height * width, device=images.device).view(height, width)
    tables = torch.stack([torch.rot90(pixels, quarter, (0, 1)).flatten() for quarter in range(4)])
    turned = take(flat, tables[quarters][:, None].expand(-1, flat.shape[1], -1))
    if is_traced():
        # A gather, and not torch.where: that of ONNX Runtime turns -0.0 into 0.0.
        both = torch.cat([turned, _interpolate(turned, cos, sin, height)], 2)
        chosen = torch.arange(height * width) + height * width * interpolated.to(torch.int64)[:, None]
        turned = both.gather(2, chosen[:, None].expand(-1, flat.shape[1], -1))
    else:
        # In parts, for memory; every pixel is computed by itself, so the parts do not show.
        part = max(1, 2**17 // math.prod(images.shape[1:]))
        for rows in interpolated.nonzero().flatten().split(part):
            if len(rows):
                some = _as_numbers(turned)[rows]
                found = _interpolate(_as_floats(some, images.dtype), cos[rows], sin[rows], height)
                if not images.is_floating_point():
                    found = found.round()
                _as_numbers(turned)[rows] = _as_numbers(found.to(images.dtype))
    turned = turned.reshape(volumes.shape)
    return turned.movedim(2, 2 + axis) if len(size) == 3 else turned


def _as_numbers(images: Tensor) -> Tensor:
    """View dtypes that PyTorch cannot index as signed integers of their width."""
    if images.dtype in (torch.uint16, torch.uint32, torch.uint64) or (images.element_size() == 1):
        return images.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[images.element_size()])
    return images


def _as_floats(numbers: Tensor, kind: torch.dtype) -> Tensor:
    """Return pixels as float32, or float64 where that is their own or they are wide integers."""
    images = numbers.view(kind)
    wide = kind == torch.float64 or (not kind.is_floating_point and kind.itemsize == 8)
    return images.to(torch.float64 if wide else torch.float32)


def _interpolate(flat: Tensor, cos: Tensor, sin: Tensor, size: int) -> Tensor:
    """Rotate images ``(batch, channel, size * size)`` by angles whose ``cos`` and ``sin`` are given, bilinearly."""
    cos, sin = cos.view(-1, 1, 1), sin.view(-1, 1, 1)
    middle = (size - 1) / 2
    along = torch.arange(size, dtype=torch.float64, device=flat.device) - middle
    right, up = along[None, None, :], -along[None, :, None]
    # On a margin of zeros, one pixel and one more to look at beyond it; what lies further out is moved there.
    row = ((right * sin - up * cos) + (middle + 1)).flatten(1).clamp(0, size + 1)
    column = ((right * cos + up * sin) + (middle + 1)).flatten(1).clamp(0, size + 1)
    wide = F.pad(flat.unflatten(2, (size, size)), (1, 2, 1, 2)).flatten(2)
    top, left = row.floor(), column.floor()
    lower, further = ((row - top).to(flat.dtype)[:, None], (column - left).to(flat.dtype)[:, None])
    upper, nearer = 1 - lower, 1 - further
    first = (top.to(torch.int64) * (size + 3) + left.to(torch.int64))[:, None].expand(-1, flat.shape[1], -1)
    above = wide.gather(2, first) * nearer + wide.gather(2, first + 1) * further
    below = wide.gather(2, first + (size + 3)) * nearer + wide.gather(2, first + (size + 4)) * further
    return above * upper + below * lower
