"""What the package knows of one data set: an :class:`Entry`, and how its images are loaded.

A new data set is one file beside this one, with its entry in ``ENTRIES``, and that file's name in
``catalogue.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from unshift.data.download import fetch, fetch_archive
from unshift.data.files import DataError, File, read, root
from unshift.data.pixels import ImageSet

__all__ = ["SPLITS", "Entry"]

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Entry:
    """One data set: what it is, where its files are, and how they are read."""

    name: str
    about: str
    licence: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    """Of one image: ``(channel, *spatial)``."""
    counts: Mapping[str, int]
    """Images in each split."""
    read: Callable[[str, list[bytes]], tuple[Tensor, Tensor]]
    """From a split and the contents of its files, in order, to images and their int64 labels."""
    preparation: Mapping[str, Any] = field(default_factory=dict)
    """What :func:`unshift.data.prepare` does to the images before the paper's estimator sees them."""
    files: Mapping[str, tuple[File, ...]] = field(default_factory=dict)
    """The official files of each split. A data set that is computed has none."""
    mirrors: tuple[str, ...] = ()
    """Addresses to download from: of the folder with the files, or of the archive."""
    archive_md5: str = ""
    """Where the mirrors have one tar archive, not the files: its md5."""
    download_size: int = 0
    """Bytes to download."""

    def summary(self) -> str:
        """Return what it is and how much, in one line: ``handwritten digits, 28x28 grey, 60,000 + 10,000``."""
        colour = {1: " grey", 3: " colour"}[self.shape[0]] if len(self.shape) == 3 else ""
        size = "x".join(map(str, self.shape[1:]))
        return f"{self.about}, {size}{colour}, {' + '.join(f'{self.counts[split]:,}' for split in SPLITS)}"

    def all_files(self) -> list[File]:
        """Return the files of all splits."""
        return [file for split in SPLITS for file in self.files.get(split, ())]

    def folder(self) -> Path:
        """Return where the files are, or will be."""
        files = self.all_files()
        return files[0].place().parent if files else root() / self.name

    def present(self, *splits: str) -> bool:
        """Tell whether the files of these splits (all, if none is named) are on this computer."""
        return all(file.place().is_file() for split in splits or SPLITS for file in self.files.get(split, ()))

    def bring(self, split: str) -> list[bytes]:
        """Download what is missing of a split; return the content of its files, each checked.

        Raises:
            DataError: If a file is damaged, or cannot be downloaded.
        """
        wanted = self.files.get(split, ())
        missing = [file for file in wanted if not file.place().is_file()]
        try:
            if missing and self.archive_md5:
                fetch_archive(self.all_files(), self.mirrors, self.archive_md5)
            else:
                for file in missing:
                    fetch(file, [mirror + file.name for mirror in self.mirrors])
        except DataError as error:
            raise DataError(f"cannot download {self.name} to {self.folder()}: {error}") from error
        contents = []
        for file in wanted:
            path = file.place()
            remedy = f"delete {path} and run `unshift data get {self.name}`"
            if path == file.shipped:
                remedy = "it came with the package: reinstall unshift"
            contents.append(read(path, file, remedy))
        return contents

    def load(self, split: str) -> ImageSet:
        """Return the images and labels of a split."""
        images, labels = self.read(split, self.bring(split))
        wanted = (self.counts[split], *self.shape)
        assert images.shape == wanted, f"the entry of {self.name} promises images {wanted}, read {tuple(images.shape)}"
        return ImageSet(images, labels, f"{self.name}/{split}", self.classes)
