"""The images a command works on, brought to the size a restorer was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unshift.data import ImageSet
    from unshift.restorer import Chain, Restorer


def open_prepared(
    source: str,
    split: str | None,
    preparation: Mapping[str, Any],
    channels: int | None = None,
    limit: int | None = None,
) -> ImageSet:
    """Open the first ``limit`` images of ``source`` and prepare them.

    Image files are scaled as they are read, by Pillow, and read as ``channels``.
    """
    from unshift.data import open_images, prepare
    from unshift.data.arrays import SUFFIXES

    if _is_dataset(source) or Path(source).suffix.lower() in SUFFIXES:
        found = open_images(source, split)
    else:
        fit = "crop" if "crop" in preparation else "resize"
        size = tuple(preparation[fit]) if fit in preparation else None
        found = open_images(source, split, size=size, fit=fit, channels=preparation.get("channels", channels))
    labels = None if found.labels is None else found.labels[:limit]
    return replace(found, images=prepare(found.images[:limit], preparation), labels=labels)


def choose_split(source: str, asked: str | None, usual: str) -> str | None:
    """Return the split to open: the one asked for, or the usual one where ``source`` has it."""
    return asked or (usual if _is_dataset(source) or (Path(source) / usual).is_dir() else None)


def open_for(restorer: Restorer | Chain, source: str, split: str | None, limit: int | None) -> ImageSet:
    """Open images to try ``restorer`` on: the test split if there is one, prepared as its own were."""
    from unshift.weights import image_shape

    channels = image_shape(restorer)[0]
    preparation = restorer.trained_on.get("preparation", {})
    part = choose_split(source, split, "test")
    return open_prepared(source, part, preparation, channels if channels in (1, 3) else None, limit)


def _is_dataset(source: str) -> bool:
    from unshift.data.catalogue import DATASETS

    return source in DATASETS
