"""Rotation of images about their centre: whole quarter turns move pixels, the rest is bilinear.

Angles are degrees, counter-clockwise. An estimated angle is a whole number of *grains* of 1/1024 degree, so adding 90
degrees is exact. Graphs read cosines from a table, because runtimes differ in theirs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.exact import in_graphs
from unshift.shifts import check_images, movable, take, view_as

GRAIN = 1024
QUARTER = 90 * GRAIN

# Cosines and sines of all grains up to 45 degrees. Module constants, because a loop of a graph cannot create them.
COS, SIN = (
    torch.tensor([wave(math.radians(grains / GRAIN)) for grains in range(QUARTER // 2 + 1)], dtype=torch.float64)
    for wave in (math.cos, math.sin)
)


def rotate(images: Tensor, degrees: Tensor | float, *, axis: int = 0) -> Tensor:
    """Rotate each image counter-clockwise by its own angle, about its centre; the dtype stays.

    >>> rotate(torch.tensor([[[[1, 2], [3, 4]]]]), 90)
    tensor([[[[2, 4],
              [1, 3]]]])

    Args:
        images: Square images, or volumes, which are rotated slice by slice.
        degrees: One number, or ``(batch,)``. Multiples of 90 move pixels and are exact; other angles are interpolated
            bilinearly, with zeros outside.
        axis: The axis that volumes rotate about.

    Returns:
        The rotated images, with the same shape and dtype.

    Raises:
        ValueError: If the two axes of the plane differ in length, or an angle is not finite.
    """
    check_images(images)
    angles = torch.as_tensor(degrees, dtype=torch.float64, device=images.device).detach()
    if angles.ndim > 1 or (angles.ndim == 1 and len(angles) != len(images)) or not torch.isfinite(angles).all():
        raise ValueError(
            f"degrees must be one finite number, or one per image ({len(images)}), got shape {tuple(angles.shape)}"
        )
    angles = angles.expand(len(images))
    rest = torch.remainder(angles + 45, 90) - 45
    quarters = ((angles - rest) / 90).round().to(torch.int64) % 4
    # One by one: a vectorised kernel may round differently at the end of a batch.
    radians = [math.radians(value) for value in rest.tolist()]
    cos, sin = (
        torch.tensor([wave(r) for r in radians], dtype=torch.float64, device=images.device)
        for wave in (math.cos, math.sin)
    )
    turned, side = _quarter_turns(images, quarters, axis)
    # Blocks bound the memory. Pixels are computed independently, so blocks do not change the result.
    block = max(1, 2**17 // math.prod(images.shape[1:]))
    for rows in (rest != 0).nonzero().flatten().split(block):
        if len(rows):
            pixels = view_as(movable(turned)[rows], images.dtype)
            pixels = pixels.to(float_dtype(images.dtype))
            rotated = _interpolate(pixels, cos[rows], sin[rows], side)
            rotated = rotated if images.is_floating_point() else rotated.round()
            movable(turned)[rows] = movable(rotated.to(images.dtype))
    return _unflatten(turned, images, axis)


def _rotate_grains_in_graph(images: Tensor, grains: Tensor, axis: int = 0) -> Tensor:
    rest = (grains + QUARTER // 2) % QUARTER - QUARTER // 2
    quarters = torch.div(grains - rest, QUARTER, rounding_mode="floor") % 4
    cos, sin = COS[rest.abs()], SIN[rest.abs()] * rest.sign()
    turned, side = _quarter_turns(images, quarters, axis)
    # A gather instead of torch.where, which in ONNX Runtime turns -0.0 into 0.0.
    both = torch.cat([turned, _interpolate(turned, cos, sin, side)], 2)
    chosen = torch.arange(side**2) + side**2 * (rest != 0).to(torch.int64)[:, None]
    return _unflatten(both.gather(2, chosen[:, None].expand(-1, turned.shape[1], -1)), images, axis)


@in_graphs(_rotate_grains_in_graph)
def rotate_grains(images: Tensor, grains: Tensor, axis: int = 0) -> Tensor:
    """Rotate each image by a whole number of grains ``(batch,)``."""
    return rotate(images, grains.to(torch.float64) / GRAIN, axis=axis)


def _quarter_turns(images: Tensor, quarters: Tensor, axis: int) -> tuple[Tensor, int]:
    """Turn each image by its own number of quarters; return ``(batch, slices, side * side)`` and the side."""
    volumes = images.movedim(2 + axis, 2) if images.ndim == 5 else images
    height, width = volumes.shape[-2:]
    if height != width or images.ndim == 3:
        raise ValueError(f"rotate wants square images, so that a quarter turn fits, got shape {tuple(images.shape)}")
    flat = volumes.flatten(1, -3).flatten(2)
    pixels = torch.arange(height * width, device=images.device).view(height, width)
    tables = torch.stack([torch.rot90(pixels, quarter, (0, 1)).flatten() for quarter in range(4)])
    return take(flat, tables[quarters][:, None].expand(-1, flat.shape[1], -1)), height


def _unflatten(flat: Tensor, images: Tensor, axis: int) -> Tensor:
    """Return the result of :func:`_quarter_turns` in the shape of ``images``."""
    if images.ndim == 4:
        return flat.reshape(images.shape)
    return flat.reshape(images.movedim(2 + axis, 2).shape).movedim(2, 2 + axis)


def float_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which pixels are interpolated: float64 for float64 and 64-bit integers, else float32."""
    return torch.float64 if dtype.itemsize == 8 else torch.float32


def _interpolate(flat: Tensor, cos: Tensor, sin: Tensor, size: int) -> Tensor:
    """Rotate images ``(batch, channel, size * size)`` by angles whose ``cos`` and ``sin`` are given, bilinearly."""
    cos, sin = cos.view(-1, 1, 1), sin.view(-1, 1, 1)
    middle = (size - 1) / 2
    along = torch.arange(size, dtype=torch.float64, device=flat.device) - middle
    right, up = along[None, None, :], -along[None, :, None]
    # Pad with zeros: one pixel, and one more for the right neighbour. Clamp positions further out to this margin.
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
