"""Images of different sizes: a list of arrays ``(channel, *spatial)`` where a tensor holds a batch of one size.

Nothing is padded, since a padded circle is another circle: arrays are worked on in batches of one size each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

__all__ = ["Images", "batches", "is_ragged"]

Images = Tensor | Sequence[Tensor]
"""A tensor ``(batch, channel, *spatial)``, or a list of ``(channel, *spatial)`` of any sizes."""


def is_ragged(images: object) -> bool:
    """Tell whether these are arrays of different sizes: a list or tuple of tensors, or of none."""
    return isinstance(images, (list, tuple)) and all(isinstance(image, Tensor) for image in images)


def batches(images: Images, batch_size: int) -> Iterator[Tensor]:
    """Yield all images, in their order, as batches of one size: in a list, neighbours of one shape and type."""
    if isinstance(images, Tensor):
        yield from images.split(batch_size)
        return
    for _, alike in itertools.groupby(images, lambda image: (image.shape, image.dtype)):
        some = list(alike)
        for at in range(0, len(some), batch_size):
            yield torch.stack(some[at : at + batch_size])
