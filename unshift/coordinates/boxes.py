"""Box means: an image reduced by a whole number, bit for bit the same in every turn and mirror image.

Boxes lie symmetrically about the middle of each axis; at its ends pixels are repeated. An odd axis has no symmetric
boxes of even width, so both placements, one pixel apart, are averaged. Pixels are made integers, whose sums have no
order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unshift.exact import in_graphs
from unshift.network import as_float

LARGEST_BOX = 64
"""Largest width of a box: sums of uint8 in a box of both placements stay below 2^24, which float32 holds."""

STRIP = 2**20  # pixels to reduce at a time


def _boxes(n: int, width: int) -> list[Tensor]:
    """Return the pixels of each box along an axis of ``n``, ``(boxes * width,)``, for each placement."""
    if n == 1:
        return [torch.zeros(width, dtype=torch.int64)]
    placements = 2 if n % 2 and width % 2 == 0 else 1
    n -= placements - 1
    count = -(-n // width)
    count += (count * width - n) % 2
    before = (count * width - n) // 2
    return [torch.arange(-before, count * width - before).clamp(0, n - 1) + first for first in range(placements)]


def box_means(images: Tensor, width: int) -> Tensor:
    """Average boxes of ``width`` pixels along every spatial axis of images of any dtype: float32.

    >>> box_means(torch.tensor([[[0, 255, 255, 255]]], dtype=torch.uint8), 2).tolist()
    [[[0.5, 1.0]]]
    """
    if width == 1:
        return images
    boxes = [[at.to(images.device) for at in _boxes(n, width)] for n in images.shape[2:]]
    count = 1
    for placements in boxes:
        count *= width * len(placements)
    if images.dtype == torch.uint8:
        scale: Tensor = torch.full([images.shape[0]], 255.0, device=images.device)
    else:
        images = as_float(images)
        top = images.abs().flatten(1).amax(1)
        scale = ((2**24 - 1) // count) / torch.where(top > 2.0**-100, top, 1.0)
    per_image = scale.view(-1, *[1] * (images.ndim - 1))
    rows = max(1, STRIP // (width * images[0, :, 0].numel()))
    strips = []
    for strip in zip(*(at.split(rows * width) for at in boxes[0]), strict=True):
        values = sum_boxes(images, 2, strip, width, per_image)
        for axis, placements in enumerate(boxes[1:], 3):
            values = sum_boxes(values, axis, placements, width)
        strips.append(values)
    return torch.cat(strips, 2) / (per_image * count)


def sum_boxes(images: Tensor, axis: int, boxes: Sequence[Tensor], width: int, scale: Tensor | None = None) -> Tensor:
    """Sum the boxes along one axis. If a ``scale`` is given, first quantise the pixels."""
    total: Tensor | None = None
    for at in boxes:
        sums = []
        # Only the first and the last box repeat pixels: those between need no copy.
        for some in (at[:width], at[width:-width], at[-width:]) if len(at) > 2 * width else (at,):
            part = _selected(images, axis, some)
            if scale is not None and images.dtype != torch.uint8:
                part = (part * scale).round_()
            sums.append(part.unflatten(axis, (-1, width)).sum(axis + 1, dtype=torch.float32))
        part = torch.cat(sums, axis)
        total = part if total is None else total + part
    assert total is not None
    return total


@in_graphs(lambda images, axis, at: images.index_select(axis, at))
def _selected(images: Tensor, axis: int, at: Tensor) -> Tensor:
    """Select pixels along an axis, without a copy if they are consecutive."""
    first, last = int(at[0]), int(at[-1])
    if last - first == len(at) - 1:
        return images.narrow(axis, first, len(at))
    return images.index_select(axis, at)
