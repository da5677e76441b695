"""One function for whatever a user types: the name of a data set, a folder, an image, a NumPy file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from unshift.data import arrays, photos
from unshift.data.catalogue import DATASETS, dataset, find
from unshift.data.pixels import ImageSet, check_channels, check_fit, fit_to, to_channels

__all__ = ["open_images"]


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
            the same name is ``./mnist``), a folder of images at any depth, one image file, or a ``.npy``
            or ``.npz`` file.
        split: ``"train"`` (the default of a data set) or ``"test"``. Of a folder it is a subfolder.
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
        return photos.load_folder(path / split if split else path, size=size, fit=fit, channels=channels or 3)
    if not name or not os.path.exists(path):  # False, not an error, for a name too long
        try:
            find(name)
        except ValueError as error:
            raise ValueError(f"{error}; and no file or folder of that name") from None
    if split is not None:
        raise ValueError(f"{path} is one file: it has no split {split!r}")
    if path.suffix.lower() in arrays.SUFFIXES:
        return _fitted(arrays.load_array(path, layout), size, fit, channels)
    if path.suffix.lower() in photos.suffixes():
        return ImageSet(photos.load_images([path], size=size, fit=fit, channels=channels or 3), None, path.name)
    raise ValueError(f"{path} is neither an image, a folder of images, nor a .npy or .npz file")


def _fitted(found: ImageSet, size: tuple[int, int] | None, fit: str, channels: int | None) -> ImageSet:
    images = found.images if channels is None else to_channels(found.images, channels)
    return replace(found, images=images if size is None else fit_to(images, size, fit))
