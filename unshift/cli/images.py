"""The images a command works on, brought to the size a restorer was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unshift.data import ImageSet
    from unshift.restorer import Restorer


def open_prepared(
    source: str, split: str | None, preparation: Mapping[str, Any], channels: int | None = None
) -> ImageSet:
    """Open ``source`` and prepare it. Image files are scaled as they are read, by Pillow, and read as ``channels``."""
    from unshift.data import open_images, prepare
    from unshift.data.arrays import SUFFIXES

    if _is_dataset(source) or Path(source).suffix.lower() in SUFFIXES:
        found = open_images(source, split)
    else:
        fit = "crop" if "crop" in preparation else "resize"
        size = tuple(preparation[fit]) if fit in preparation else None
        found = open_images(source, split, size=size, fit=fit, channels=preparation.get("channels", channels))
    return replace(found, images=prepare(found.images, preparation))


def choose_split(source: str, asked: str | None, usual: str) -> str | None:
    """Return the split to open: the one asked for, or the usual one where ``source`` has it."""
    return asked or (usual if _is_dataset(source) or (Path(source) / usual).is_dir() else None)


def open_for(restorer: Restorer, source: str, split: str | None, limit: int | None) -> ImageSet:
    """Open images to try ``restorer`` on: the test split if there is one, prepared as its own were."""
    seen = getattr(restorer.scorer, "in_channels", None)
    # Polar coordinates turn one channel of an image into many of the canvas.
    channels = seen and seen // getattr(restorer.coordinates, "channels", 1)
    preparation = restorer.metadata.get("preparation", {})
    part = choose_split(source, split, "test")
    found = open_prepared(source, part, preparation, channels if channels in (1, 3) else None)
    labels = None if found.labels is None else found.labels[:limit]
    return replace(found, images=found.images[:limit], labels=labels)


def _is_dataset(source: str) -> bool:
    from unshift.data.catalogue import DATASETS

    return source in DATASETS
