"""Load and download the named data sets.

The official files are checked by their md5, and missing ones are downloaded, which needs the extra ``data``. MNIST's
test split, ``mnist-10k`` and ``mnist3d`` need no download.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from pathlib import Path

from unshift.data.files import SPLITS, DataError, Entry, root
from unshift.data.pixels import ImageSet

__all__ = ["DATASETS", "dataset", "find", "get"]

MODULES = [
    "mnist",
    "cifar10",
    "mnist3d",
]
"""Modules of this folder with data sets in ``ENTRIES``."""
DATASETS: dict[str, Entry] = {
    entry.name: entry for module in MODULES for entry in import_module(f"unshift.data.{module}").ENTRIES
}


def find(name: str) -> Entry:
    """Return the entry of a data set. Raise a ``ValueError`` that lists all names if there is none of that name."""
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
        name: As in ``unshift data list``.
        split: ``"train"`` or ``"test"``.
        download: Whether to download missing files.

    Returns:
        Images ``(n, channel, *spatial)``, ``uint8`` (``mnist3d``: ``float32`` in [0, 1]), and ``int64`` labels.
    """
    entry = find(name)
    if split not in SPLITS:
        raise ValueError(f"no split named {split!r}; there are {' and '.join(SPLITS)}")
    if not download and not entry.present(split):
        raise DataError(f"{name} is not in {root()}; download it with `unshift data get {name}`")
    return entry.load(split)


def get(name: str) -> Path:
    """Download the missing files of a data set, check all of them, and return their folder."""
    entry = find(name)
    for split in SPLITS:
        entry.download(split)
    return entry.folder()
