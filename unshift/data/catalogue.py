"""The named data sets: load one, download it, list them all.

Every data set is read from its official files, each checked by its md5; a file that is not there is
downloaded. MNIST's test split, ``mnist-10k`` and ``mnist3d`` need no download.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from unshift.data.entry import SPLITS, Entry
from unshift.data.files import DataError, root
from unshift.data.pixels import ImageSet

__all__ = ["DATASETS", "Status", "dataset", "find", "get", "status"]

MODULES = [
    "mnist",
    "fashion_mnist",
    "cifar10",
    "mnist3d",
]
"""Modules of this folder; each has its ``ENTRIES``."""
DATASETS: dict[str, Entry] = {
    entry.name: entry for module in MODULES for entry in import_module(f"unshift.data.{module}").ENTRIES
}


@dataclass(frozen=True)
class Status:
    """One row of ``unshift data list``; ``size`` is in bytes: on disk, or to download if absent."""

    name: str
    present: bool
    where: Path
    size: int
    licence: str
    about: str


def find(name: str) -> Entry:
    """Return what is known of a data set.

    Args:
        name: As ``unshift data list`` shows it.

    Raises:
        ValueError: If there is no data set of that name. The message lists those there are.
    """
    if name in DATASETS:
        return DATASETS[name]
    near = difflib.get_close_matches(name.lower(), DATASETS, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ValueError(f"no data set named {name!r}{hint}; there are {', '.join(DATASETS)}")


def dataset(name: str, split: str = "train", *, download: bool = True) -> ImageSet:
    """Load one split of a named data set.

    >>> digits = dataset("mnist-10k", "test")
    >>> digits.images.shape, digits.labels[:3].tolist()
    (torch.Size([10000, 1, 28, 28]), [7, 2, 1])

    Args:
        name: As ``unshift data list`` shows it.
        split: ``"train"`` or ``"test"``.
        download: Whether to download files that are not on this computer.

    Returns:
        Images ``(n, channel, *spatial)``, ``uint8`` (``mnist3d``: ``float32`` in [0, 1]), and ``int64`` labels.

    Raises:
        ValueError: If there is no such data set or split.
        DataError: If a file is damaged, cannot be downloaded, or is absent and ``download`` is false.
    """
    found = find(name)
    if split not in SPLITS:
        raise ValueError(f"no split named {split!r}; there are {' and '.join(SPLITS)}")
    if not download and not found.present(split):
        raise DataError(f"{name} is not in {root()}; download it with `unshift data get {name}`")
    return found.load(split)


def get(name: str) -> Path:
    """Download what is missing of a data set, and check all of it.

    Args:
        name: As ``unshift data list`` shows it.

    Returns:
        The folder that holds its files.

    Raises:
        ValueError: If there is no such data set.
        DataError: If a file is damaged or cannot be downloaded.
    """
    found = find(name)
    for split in SPLITS:
        found.bring(split)
    return found.folder()


def status() -> list[Status]:
    """List the data sets. Nothing is read or downloaded.

    Returns:
        One row each: is it here, where, how large.
    """
    rows = []
    for found in DATASETS.values():
        present = found.present()
        size = sum(file.place().stat().st_size for file in found.all_files()) if present else found.download_size
        rows.append(Status(found.name, present, found.folder(), size, found.licence, found.summary()))
    return rows
