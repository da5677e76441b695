"""Images from a NumPy file, ``.npy`` or ``.npz``.

The layout is a word with one letter per axis: ``n`` images, ``c`` channels, and ``l``, ``hw`` or ``dhw`` in
space. Where it is not given, it follows from the number of axes, and for four axes from whether the last
one looks like colours:

=======  ===========================================================================
axes     layout
=======  ===========================================================================
3        ``nhw``: grey images. Signals need a layout: ``ncl`` or ``nl``
4        ``nchw``, or ``nhwc`` where the last axis is 1 or 3 and the second is neither
5        ``ncdhw``: volumes
=======  ===========================================================================
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
    """Load images, and labels where the file has them.

    Args:
        path: A ``.npy``, or a ``.npz`` that has its images under ``images`` or as its only array, and its
            labels, integers ``(n,)``, under ``labels``. Pickled objects are refused, never loaded.
        layout: The letters of the axes, where they are not the usual ones.

    Returns:
        Images ``(n, channel, *spatial)``: ``uint8`` pixels stay, floats become ``float32``.

    Raises:
        ValueError: If the file cannot be read, or holds something else than finite pixels.
    """
    images, labels = _read(path)
    try:
        pixels = _pixels(_arrange(images, layout))
        return ImageSet(pixels, None if labels is None else _labels(labels, len(pixels)), path.name)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


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
                    f"it needs an array named 'images', or only one array; it has {', '.join(names) or 'none'}"
                )
            return arrays[key], arrays["labels"] if "labels" in arrays.files else None
    # A damaged file raises whatever NumPy's parser or the zip reader stumbles on, down to TokenError.
    except Exception as error:
        raise ValueError(f"{path} cannot be read as NumPy arrays ({error})") from error


def _arrange(images: Array, layout: str | None) -> Array:
    """Return ``images`` with its axes in the order n, c, then space."""
    shape = images.shape
    if layout is None:
        if images.ndim not in (3, 4, 5):
            raise ValueError(
                f"shape {shape} has {images.ndim} axes; expected 3 (n, h, w), 4 (n, c, h, w) or 5 (n, c, d, h, w). "
                f"For other arrays give the layout, one of {', '.join(LAYOUTS)}"
            )
        last = images.ndim == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3)
        layout = "nhwc" if last else {3: "nhw", 4: "nchw", 5: "ncdhw"}[images.ndim]
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if len(layout) != images.ndim:
        raise ValueError(f"layout {layout} has {len(layout)} axes, shape {shape} has {images.ndim}")
    if 0 in shape:
        raise ValueError(f"shape {shape} holds no pixels")
    if "c" not in layout:
        return images[:, None]
    return np.moveaxis(images, layout.index("c"), 1)


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


def _labels(labels: Array, count: int) -> Tensor:
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != (count,):
        raise ValueError(f"labels must be integers of shape ({count},), got {labels.dtype} of shape {labels.shape}")
    return torch.from_numpy(labels.astype(np.int64))
