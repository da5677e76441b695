"""The images of an item: a data set, or in a quick run a few images of it, or noise of the same shape."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from reproduction.records import Options
from unshift.data import DataError, ImageSet, dataset, prepare, to_float
from unshift.data.catalogue import find

__all__ = ["images_of", "labelled"]


def images_of(data: str, options: Options, split: str = "test", few: int | None = None) -> ImageSet:
    """Return a data set; in a quick run ``few`` images of it, or of noise where it is not on this computer."""
    if not options.quick:
        return dataset(data, split)
    shape = find(data).shape
    count = few or (100 if shape[0] == 1 else 6)  # networks for photos are large
    try:
        images = dataset("mnist-10k" if data == "mnist" else data, split, download=False)
    except DataError:
        noise = torch.randint(0, 256, (count, *shape), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        return ImageSet(noise, torch.arange(count) % len(find(data).classes), f"{data}: noise", find(data).classes)
    assert images.labels is not None
    return replace(images, images=images.images[:count], labels=images.labels[:count])


def labelled(
    data: str, options: Options, preparation: dict[str, object], count: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the first ``count`` test images, prepared and in [0, 1], and their labels."""
    test = images_of(data, options)
    assert test.labels is not None
    return to_float(prepare(test.images[:count], preparation)), test.labels[:count]
