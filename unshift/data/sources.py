"""One function for whatever a user types: the name of a data set, a folder, an image, tar shards, a NumPy file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from unshift.data import arrays, photos, sequences, shards
from unshift.data.catalogue import DATASETS, dataset, find
from unshift.data.pixels import ImageSet, check_channels, check_fit, fit_to, prepare, to_channels

__all__ = ["ImageSource", "open_images", "open_source"]


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Images that may still be on disk: a tensor, or a data set whose items are read when they are asked for."""

    images: Any
    """A tensor ``(n, channel, *spatial)``, a list of sequences ``(4, length)``, or a ``Dataset`` of image files."""
    labels: Tensor | None
    name: str
    classes: tuple[str, ...] = ()

    def prepared(self, preparation: Mapping[str, Any], limit: int | None = None) -> ImageSource:
        """Return the first ``limit`` images, each of which :func:`prepare` has gone over when it is read."""
        images = self.images
        if isinstance(images, Tensor):
            images = prepare(images[:limit], preparation)
        elif isinstance(images, list):
            if preparation:
                raise ValueError(f"sequences are taken as they are: leave out {', '.join(preparation)}")
            images = images[:limit]
        elif preparation or limit is not None:
            images = _Prepared(images, preparation, limit)
        return replace(self, images=images, labels=None if self.labels is None else self.labels[:limit])

    def load(self) -> ImageSet:
        """Read all of them into memory.

        Raises:
            ValueError: If they are sequences, which no tensor holds.
        """
        if isinstance(self.images, list):
            raise ValueError(f"{self.name} holds sequences, but images are needed")
        loaded = self.images if isinstance(self.images, Tensor) else photos.load_files(self.images)
        return ImageSet(loaded, self.labels, self.name, self.classes)


class _Prepared(Dataset[Tensor]):
    """Image files that are prepared as they are read."""

    def __init__(self, files: Any, preparation: Mapping[str, Any], limit: int | None) -> None:
        self.files, self.preparation = files, preparation
        self._count = len(files) if limit is None else min(limit, len(files))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Tensor:
        return prepare(self.files[index][None], self.preparation)[0]

    def name(self, index: int) -> str:
        """Return what to call an image."""
        return str(self.files.name(index))


def open_images(
    source: str | os.PathLike[str],
    split: str | None = None,
    *,
    size: tuple[int, int] | None = None,
    fit: str = "resize",
    channels: int | None = None,
    layout: str | None = None,
) -> ImageSet:
    """Load images from a data set, a folder or a file.

    >>> open_images("mnist-10k", "test", size=(32, 32)).images.shape
    torch.Size([10000, 1, 32, 32])

    Args:
        source: The first of these that it is: the name of a data set (``unshift data list``; a folder of
            the same name is ``./mnist``), a folder of images at any depth, or of WebDataset shards (``.tar``), one
            image file or shard, or a ``.npy`` or ``.npz`` file.
        split: ``"train"`` (the default of a data set) or ``"test"``. For a folder, a subfolder of it.
        size: Bring all images to this ``(height, width)``.
        fit: How: ``"resize"`` stretches, ``"crop"`` scales to cover the size and cuts out the middle.
        channels: 1 (grey) or 3 (RGB). By default data sets and arrays stay as they are, and image files
            are read as RGB.
        layout: The axes of an array, where they are not the usual ones: see :mod:`unshift.data.arrays`.

    Returns:
        The images, and their labels where they are known.

    Raises:
        ValueError: If ``source`` is nothing that can be read, or the other arguments do not suit it.
    """
    return open_source(source, split, size=size, fit=fit, channels=channels, layout=layout).load()


def open_source(
    source: str | os.PathLike[str],
    split: str | None = None,
    *,
    size: tuple[int, int] | None = None,
    fit: str = "resize",
    channels: int | None = None,
    layout: str | None = None,
) -> ImageSource:
    """Open images as :func:`open_images` does, but leave image files on disk until they are asked for."""
    check_fit(fit)
    if channels is not None:
        check_channels(channels)
    name = os.fspath(source)
    path = Path(os.path.expanduser(name))
    if layout is not None and (name in DATASETS or path.suffix.lower() not in arrays.SUFFIXES):
        raise ValueError(f"layout is for .npy and .npz files only, got {name} with layout {layout!r}; leave it out")
    if name in DATASETS:
        return _fitted(dataset(name, split or "train"), size, fit, channels)
    if name and os.path.isdir(path):  # Path("") is the current folder
        if split is not None and not (path / split).is_dir():
            raise ValueError(f"{path} has no split {split!r}: there is no such folder in it")
        folder = path / split if split else path
        if tars := sorted(folder.glob("*.tar")):
            return _of_files(shards.ShardFiles(tars, size=size, fit=fit, channels=channels or 3), folder)
        return _of_files(photos.ImageFolder(folder, size=size, fit=fit, channels=channels or 3), folder)
    if not name or not os.path.exists(path):  # False, not an error, for a name too long
        try:
            find(name)
        except ValueError as error:
            raise ValueError(f"{error}; and no file or folder of that name") from None
    if split is not None:
        raise ValueError(f"{path} is one file: it has no split {split!r}")
    if path.suffix.lower() in arrays.SUFFIXES:
        return _fitted(arrays.load_array(path, layout), size, fit, channels)
    if sequences.is_fasta(path):
        return ImageSource([sequences.encode(record.text) for record in sequences.read_fasta(path)], None, path.name)
    if path.suffix.lower() == ".tar":
        return _of_files(shards.ShardFiles([path], size=size, fit=fit, channels=channels or 3), path)
    if path.suffix.lower() in photos.suffixes():
        return _of_files(photos.ImageFiles([path], size=size, fit=fit, channels=channels or 3), path)
    raise ValueError(f"{path} is neither an image, a folder of images, a .tar of them, a .npy or .npz file, nor FASTA")


def _fitted(found: ImageSet, size: tuple[int, int] | None, fit: str, channels: int | None) -> ImageSource:
    images = found.images if channels is None else to_channels(found.images, channels)
    images = images if size is None else fit_to(images, size, fit)
    return ImageSource(images, found.labels, found.name, found.classes)


def _of_files(files: photos.ImageFiles, path: Path) -> ImageSource:
    return ImageSource(files, files.labels, path.resolve().name, files.classes)
