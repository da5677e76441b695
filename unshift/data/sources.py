"""Open images by name: a data set, a folder, an image, tar shards, a NumPy file, FASTA."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from unshift.data import photos, sequences
from unshift.data.catalogue import DATASETS, dataset, find
from unshift.data.pixels import ImageSet, check_options, fit_to, to_channels


def open_images(
    source: str | os.PathLike[str],
    split: str | None = None,
    *,
    size: tuple[int, int] | None = None,
    fit: str = "resize",
    channels: int | None = None,
) -> ImageSet:
    """Load images from a data set, a folder or a file.

    >>> open_images("mnist-10k", "test", size=(32, 32)).images.shape
    torch.Size([10000, 1, 32, 32])

    Args:
        source: The name of a data set (``unshift data list``; a folder of the same name is ``./mnist``), a folder of
            images at any depth, or of WebDataset shards (``.tar``), one image file or shard, or a ``.npy`` or ``.npz``
            file.
        split: ``"train"`` (the default of a data set) or ``"test"``. For a folder, a subfolder of it.
        size: Resize all images to this ``(height, width)``.
        fit: ``"resize"`` stretches, ``"crop"`` scales to cover the size and crops the centre.
        channels: 1 (grey) or 3 (RGB). By default data sets and arrays are not converted, and image files are read as
            RGB.

    Returns:
        The images, and their labels if known.
    """
    images = open_source(source, split, size, fit, channels).load()
    if isinstance(images.images, list):
        raise ValueError(f"{images.name} holds sequences, but images are needed")
    return images


def open_source(
    source: str | os.PathLike[str],
    split: str | None = None,
    size: tuple[int, int] | None = None,
    fit: str = "resize",
    channels: int | None = None,
) -> ImageSet:
    """Open images like :func:`open_images`, or a FASTA file. Image files stay on disk until they are read."""
    check_options(size, fit, channels)
    name = os.fspath(source)
    path = Path(os.path.expanduser(name))
    suffix = path.suffix.lower()
    file_options: dict[str, Any] = {"size": size, "fit": fit, "channels": channels or 3}
    if name in DATASETS:
        return _converted(dataset(name, split or "train"), size, fit, channels)
    if name and os.path.isdir(path):  # Path("") is the current folder
        if split is not None and not (path / split).is_dir():
            raise ValueError(f"{path} has no split {split!r}: there is no such folder in it")
        folder = path / split if split else path
        tars = sorted(folder.glob("*.tar"))
        files = photos.ShardFiles(tars, **file_options) if tars else photos.ImageFolder(folder, **file_options)
        return ImageSet(files, files.labels, folder.resolve().name, files.classes)
    if not name or not os.path.exists(path):  # os.path.exists: no error for a name that is too long
        try:
            find(name)
        except ValueError as error:
            raise ValueError(f"{error}; and no file or folder of that name") from None
    if not path.is_file():
        raise ValueError(f"{path} is a pipe or device, not a file")
    if split is not None:
        raise ValueError(f"{path} is one file: it has no split {split!r}")
    if suffix in ARRAYS:
        return _converted(load_array(path), size, fit, channels)
    if sequences.is_fasta(path):
        return ImageSet([sequences.encode(record.text) for record in sequences.read_fasta(path)], None, path.name)
    if suffix != ".tar" and suffix not in photos.suffixes():
        raise ValueError(
            f"{path} is neither an image, a folder of images, a .tar of them, a .npy or .npz file, nor FASTA"
        )
    kind = photos.ShardFiles if suffix == ".tar" else photos.ImageFiles
    return ImageSet(kind([path], **file_options), None, path.resolve().name)


def _converted(images: ImageSet, size: tuple[int, int] | None, fit: str, channels: int | None) -> ImageSet:
    pixels = to_channels(images.images, channels)
    return replace(images, images=pixels if size is None else fit_to(pixels, size, fit))


ARRAYS = (".npy", ".npz")
Array = npt.NDArray[Any]


def load_array(path: Path) -> ImageSet:
    """Load images ``(n, channel, *spatial)``, ``uint8`` or ``float32``, and labels if the file has them.

    Three axes are ``(n, height, width)``. Four have the channels second, or last if the last axis is 1 or 3 and the
    second is neither. Five are volumes. A ``.npz`` has its images under ``images`` or as its only array, and labels,
    integers ``(n,)``, under ``labels``. Pickled objects are never loaded.
    """
    images, labels = _read(path)
    try:
        pixels = _pixels(images)
        if labels is not None and (not np.issubdtype(labels.dtype, np.integer) or labels.shape != (len(pixels),)):
            got = f"{labels.dtype} of shape {labels.shape}"
            raise ValueError(f"labels must be integers of shape ({len(pixels)},), got {got}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    numbers = None if labels is None else torch.from_numpy(labels.astype(np.int64))
    return ImageSet(torch.from_numpy(pixels), numbers, path.name)


def _read(path: Path) -> tuple[Array, Array | None]:
    try:
        if path.suffix.lower() == ".npy":
            # Map the file instead of reading it: a header that claims more data than the file has then fails at once.
            return np.load(path, mmap_mode="r", allow_pickle=False), None
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise ValueError("it is not a zip archive of arrays")
            names = [name for name in arrays.files if name != "labels"]
            if "images" not in names and len(names) != 1:
                got = ", ".join(names) or "none"
                raise ValueError(f"expected an array named 'images' or a single array, got {got}")
            images = arrays["images" if "images" in names else names[0]]
            return images, arrays["labels"] if "labels" in arrays.files else None
    # For a damaged file, NumPy's parser and the zip reader raise many types of error, even TokenError.
    except Exception as error:
        raise ValueError(f"{path} cannot be read as NumPy arrays ({error})") from error


def _pixels(images: Array) -> Array:
    """Return ``images`` with the channels as the second axis, contiguous, as uint8 or float32."""
    shape = images.shape
    if images.ndim not in (3, 4, 5) or 0 in shape:
        raise ValueError(f"shape {shape}, {images.ndim} axes: images have 3 or 4, volumes 5, none of them empty")
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3):
        images = np.moveaxis(images, 3, 1)
    if images.dtype == np.uint8:
        return np.array(images, order="C")
    if not np.issubdtype(images.dtype, np.floating):
        raise ValueError(f"pixels must be uint8 or a float type, got {images.dtype}; convert them with astype")
    with np.errstate(over="ignore"):  # a float64 too large for float32 becomes inf, refused below
        pixels = np.array(images, dtype=np.float32, order="C")
    if not np.isfinite(pixels).all():
        raise ValueError("pixels must be finite, but some are NaN or infinite (as float32)")
    return pixels
