"""Images from a NumPy file, ``.npy`` or ``.npz``.

Three axes are ``(n, height, width)``. Four are ``(n, channel, height, width)``, or channels last if the last axis is 1
or 3 and the second is neither. Five are volumes, ``(n, channel, depth, height, width)``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from unshift.data.pixels import ImageSet

SUFFIXES = (".npy", ".npz")
Array = npt.NDArray[Any]


def load_array(path: Path) -> ImageSet:
    """Load images ``(n, channel, *spatial)``, ``uint8`` or ``float32``, and labels if the file has them.

    A ``.npz`` has its images under ``images`` or as its only array, and labels, integers ``(n,)``, under ``labels``.
    Pickled objects are never loaded. Raise a ``ValueError`` if the file, its pixels or its labels are invalid.
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
