"""Images from a NumPy file, ``.npy`` or ``.npz``.

The layout has one letter per axis: ``n`` for images, ``c`` for channels, and ``l``, ``hw`` or ``dhw`` for the spatial
axes. By default three axes are ``nhw`` (grey images), four are ``nchw``, or ``nhwc`` if the last axis is 1 or 3 and
the second is neither, and five are ``ncdhw`` (volumes). Signals need a layout: ``ncl`` or ``nl``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unshift.data.pixels import ImageSet

__all__ = ["SUFFIXES", "load_array"]

SUFFIXES = (".npy", ".npz")
LAYOUTS = ("nl", "ncl", "nlc", "nhw", "nchw", "nhwc", "ndhw", "ncdhw", "ndhwc")

Array = npt.NDArray[Any]


def load_array(path: Path, layout: str | None = None) -> ImageSet:
    """Load images ``(n, channel, *spatial)``, ``uint8`` or ``float32``, and labels if the file has them.

    A ``.npz`` has its images under ``images`` or as its only array, and labels, integers ``(n,)``, under ``labels``.
    Pickled objects are never loaded.

    Raises:
        ValueError: If the file cannot be read, or its pixels or labels are invalid.
    """
    images, labels = _read(path)
    try:
        pixels = _pixels(_channels_first(images, layout))
        if labels is not None and (not np.issubdtype(labels.dtype, np.integer) or labels.shape != (len(pixels),)):
            got = f"{labels.dtype} of shape {labels.shape}"
            raise ValueError(f"labels must be integers of shape ({len(pixels)},), got {got}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return ImageSet(pixels, None if labels is None else torch.from_numpy(labels.astype(np.int64)), path.name)


def _read(path: Path) -> tuple[Array, Array | None]:
    try:
        if path.suffix.lower() == ".npy":
            # Mapped, not read: a header that promises more than the file holds then fails at once.
            return np.load(path, mmap_mode="r", allow_pickle=False), None
        with np.load(path, allow_pickle=False) as arrays:
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise ValueError("it is not a zip archive of arrays")
            names = [name for name in arrays.files if name != "labels"]
            key = "images" if "images" in names else names[0] if len(names) == 1 else None
            if key is None:
                raise ValueError(
                    f"expected an array named 'images' or a single array, got {', '.join(names) or 'none'}"
                )
            return arrays[key], arrays["labels"] if "labels" in arrays.files else None
    # For a damaged file NumPy's parser and the zip reader raise many types, down to TokenError.
    except Exception as error:
        raise ValueError(f"{path} cannot be read as NumPy arrays ({error})") from error


def _channels_first(images: Array, layout: str | None) -> Array:
    """Return ``images`` with its axes in the order n, c, then space."""
    shape = images.shape
    if layout is None:
        channels_last = images.ndim == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3)
        layout = "nhwc" if channels_last else {3: "nhw", 4: "nchw", 5: "ncdhw"}.get(images.ndim)
        if layout is None:
            raise ValueError(f"shape {shape} has {images.ndim} axes; give the layout, one of {', '.join(LAYOUTS)}")
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if len(layout) != images.ndim:
        raise ValueError(f"layout {layout} has {len(layout)} axes, shape {shape} has {images.ndim}")
    if 0 in shape:
        raise ValueError(f"shape {shape} holds no pixels")
    return np.moveaxis(images, layout.index("c"), 1) if "c" in layout else images[:, None]


def _pixels(images: Array) -> Tensor:
    if images.dtype == np.uint8:
        return torch.from_numpy(np.array(images, order="C"))
    if not np.issubdtype(images.dtype, np.floating):
        raise ValueError(f"pixels must be uint8 or a float type, got {images.dtype}; convert them with astype")
    with np.errstate(over="ignore"):  # a float64 too large for float32 becomes inf, refused below
        pixels = np.array(images, dtype=np.float32, order="C")
    if not np.isfinite(pixels).all():
        raise ValueError("pixels must be finite, but some are NaN or infinite (as float32)")
    return torch.from_numpy(pixels)
