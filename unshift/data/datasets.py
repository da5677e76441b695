"""The named datasets: load one, download it, list them.

Every dataset is read from its official files, each checked by its md5 at first use; a file that is
not there is downloaded. MNIST's test split, and ``mnist-10k``, come with the package.
"""

from __future__ import annotations

import difflib
import struct
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unshift.data import embedded, files
from unshift.data.catalogue import DATASETS, SPLITS, Dataset
from unshift.data.download import fetch, fetch_archive
from unshift.data.files import DataError, File
from unshift.data.pixels import ImageSet


@dataclass(frozen=True)
class Status:
    """One row of ``unshift data list``; ``size`` is in bytes: on disk, or to download if absent."""

    name: str
    present: bool
    where: Path
    size: int
    licence: str
    about: str


def find(name: str) -> Dataset:
    """Return the dataset called ``name``, or raise an error that lists those there are."""
    if name in DATASETS:
        return DATASETS[name]
    near = difflib.get_close_matches(name.lower(), DATASETS, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ValueError(f"no dataset {name!r}{hint}; there are {', '.join(DATASETS)}")


def dataset(name: str, split: str = "train", *, download: bool = True) -> ImageSet:
    """Load one split of a named dataset: ``uint8`` images ``(n, c, h, w)`` and ``int64`` labels.

    Files that are absent are downloaded, unless ``download`` is false.

    >>> digits = dataset("mnist-10k", "test")
    >>> digits.images.shape, digits.labels[:3].tolist()
    (torch.Size([10000, 1, 28, 28]), [7, 2, 1])
    """
    found = find(name)
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    if name == "mnist" and split == "test" and not _present(found, "test"):
        found = DATASETS["mnist-10k"]  # the same files, to the byte: no need to download
    if not download and not _present(found, split):
        raise DataError(f"{name} is not in {files.root()}; bring it with `unshift data get {name}`")
    contents = _contents(found, split)
    if found.name == "cifar10":
        parts = [read_cifar(content) for content in contents]
        images, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    else:
        images, labels = read_idx(contents[0])[:, None], read_idx(contents[1]).long()
    return ImageSet(images, labels, f"{name}/{split}", found.classes)


def get(name: str) -> Path:
    """Download what is missing of a dataset, check all of it, and return its folder."""
    found = find(name)
    for split in SPLITS:
        _contents(found, split)
    return _folder(found)


def status() -> list[Status]:
    """Return one row per dataset: is it there, where, how large. Nothing is read or downloaded."""
    rows = []
    for found in DATASETS.values():
        present = all(_present(found, split) for split in SPLITS)
        paths = [_path(found, file) for split in SPLITS for file in found.files(split)]
        size = sum(path.stat().st_size for path in paths) if present else found.download_size
        rows.append(Status(found.name, present, _folder(found), size, found.licence, found.about))
    return rows


def read_idx(data: bytes) -> Tensor:
    """Parse an idx file of unsigned bytes, the format of MNIST.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    tensor([7, 9], dtype=torch.uint8)
    """
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise DataError(f"an idx file of bytes starts with 00 00 08, got {data[:3].hex(' ')}")
    axes = data[3]
    sizes = struct.unpack_from(f">{axes}I", data, 4)
    # bytearray: torch wants memory that it may write to.
    return torch.frombuffer(bytearray(data[4 + 4 * axes :]), dtype=torch.uint8).reshape(sizes)


def read_cifar(data: bytes) -> tuple[Tensor, Tensor]:
    """Parse a CIFAR-10 binary batch: per image a label byte, then 3 planes of 32x32."""
    rows = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()


def _path(found: Dataset, file: File) -> Path:
    return (files.root() if found.mirrors else embedded.FOLDER) / file.path


def _folder(found: Dataset) -> Path:
    return _path(found, found.test[0]).parent


def _present(found: Dataset, split: str) -> bool:
    return all(_path(found, file).is_file() for file in found.files(split))


def _contents(found: Dataset, split: str) -> list[bytes]:
    wanted = found.files(split)
    if not found.mirrors:
        return [embedded.read(file) for file in wanted]
    if not _present(found, split):
        try:
            if found.archive_md5:
                fetch_archive(found.train + found.test, found.mirrors, found.archive_md5)
            else:
                for file in wanted:
                    fetch(file, [mirror + file.name for mirror in found.mirrors])
        except DataError as error:
            raise DataError(f"cannot download {found.name} to {_folder(found)}: {error}") from error
    return [
        files.read(path := _path(found, file), file, f"delete {path} and run `unshift data get {found.name}`")
        for file in wanted
    ]
