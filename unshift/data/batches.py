"""What a batch is: a list of tensors ``(n, channel, *spatial)``, where images of one shape that follow are one tensor.

So a batch of images of one size is a list of one tensor, and sequences of many lengths are a list of several.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import torch
from torch import Tensor

__all__ = ["Batch", "fingerprint", "image_of", "one_tensor", "runs"]

Batch = list[Tensor]


def image_of(item: Any) -> Tensor:
    """Take the image out of an ``(image, label, ...)`` item."""
    while isinstance(item, list | tuple):
        item = item[0]
    return torch.as_tensor(item)


def runs(images: list[Tensor]) -> Batch:
    """Put images of one shape that follow each other into one tensor."""
    return [torch.stack([*run]) for _, run in itertools.groupby(images, lambda image: (image.shape, image.dtype))]


def one_tensor(batch: Batch) -> Tensor:
    """Return the images of a batch as one tensor.

    Raises:
        ValueError: If they differ in shape.
    """
    if len(batch) > 1:
        shapes = sorted({tuple(part.shape[1:]) for part in batch})
        raise ValueError(f"the images differ in shape: {', '.join(map(str, shapes))}; give a size for all, --size HxW")
    return batch[0]


def fingerprint(image: Tensor) -> int:
    """Return a number of 63 bits that tells an image from all others: from its shape, type and values."""
    found = hashlib.blake2b(f"{image.dtype} {tuple(image.shape)}".encode(), digest_size=8)
    found.update(image.contiguous().flatten().view(torch.uint8).numpy().data)
    return int.from_bytes(found.digest(), "big") >> 1
