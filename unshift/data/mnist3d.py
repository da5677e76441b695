"""3D-MNIST: digits as solid bodies. Made again from MNIST, or read from the file that is on Kaggle.

*3D-MNIST, regenerated*: the first 5,000 training and 1,000 test digits of MNIST. Each pixel above 0 is a box
of 1 x 1 x 6, its front and back covered by 5 x 5 points, each side where the next pixel is empty by 5 x 30.
The cloud is scaled by its longest extent, centred on its mean, and turned upright by 90 degrees about y;
then its points are counted in 16 x 16 x 16 voxels of its bounding cube, the counts divided by the largest.
A margin of 8 makes it 32 x 32 x 32.

Coordinates are kept as whole multiples of 1/116 pixel, in which all the points lie: many of them fall on the
edge between two voxels, where rounding would decide. An edge belongs to the lower voxel.

The digits come from the MNIST that is part of the package. Making the volumes takes about a minute; the counts
are kept in the data folder for the next time.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unshift.data import files
from unshift.data.entry import Entry
from unshift.data.files import DataError
from unshift.data.mnist import MNIST_10K, read_digits
from unshift.data.pixels import ImageSet, pad
from unshift.progress import tracked

__all__ = ["H5_NAME", "MNIST3D", "load_h5", "point_cloud", "voxelise"]

VOXELS, MARGIN = 16, 8
H5_NAME = "full_dataset_vectors.h5"
_UNIT = 116  # per pixel: both a quarter (5 points from edge to edge) and 6/29 (30 points over 6) are whole
_VERSION = 1  # of the kept counts

Array = npt.NDArray[Any]


def read_volumes(split: str, contents: list[bytes]) -> tuple[Tensor, Tensor]:
    """Make the volumes of a split from the files of ``mnist-10k``: float32 in [0, 1]."""
    digits, labels = read_digits(split, contents)
    count = MNIST3D.counts[split]
    counts = torch.from_numpy(_cached(split, digits[:count, 0].numpy()).astype(np.float32))
    volumes = counts / counts.flatten(1).amax(1).view(-1, 1, 1, 1)
    return pad(volumes[:, None], MARGIN), labels[:count]


MNIST3D = Entry(
    name="mnist3d",
    about="digits as solid bodies, made from mnist-10k at first use",
    licence=MNIST_10K.licence,
    classes=MNIST_10K.classes,
    shape=(1, 32, 32, 32),
    counts={"train": 5000, "test": 1000},
    read=read_volumes,
    files=MNIST_10K.files,
)

ENTRIES = (MNIST3D,)


def point_cloud(digit: Array) -> Array:
    """Return the cloud of one ``(28, 28)`` digit, float64 ``(n, 3)``: longest extent 1, mean 0, upright.

    The third axis points up: along it the digit's first row stands highest.
    """
    points = _cloud(digit)
    scaled = points / np.ptp(points, axis=0).max()
    return np.asarray(scaled - scaled.mean(axis=0))


def voxelise(digit: Array) -> Array:
    """Count the points of one digit's cloud in each voxel of its bounding cube: int64 ``(16, 16, 16)``."""
    points = _cloud(digit)
    low, high = points.min(axis=0), points.max(axis=0)
    side = int((high - low).max())
    flat = np.zeros(len(points), dtype=np.int64)
    for axis in range(3):
        # The cube about the middle, in half units, so that all of this stays whole; once per coordinate that occurs.
        offset = 2 * np.arange(low[axis], high[axis] + 1) - (low[axis] + high[axis] - side)
        voxel = np.clip(-(-offset * VOXELS // (2 * side)) - 1, 0, VOXELS - 1)
        flat = flat * VOXELS + voxel[points[:, axis] - low[axis]]
    return np.bincount(flat, minlength=VOXELS**3).reshape(VOXELS, VOXELS, VOXELS)


def _faces() -> tuple[Array, ...]:
    """Return the points on a box's front and back, and on its sides towards row -1, row +1, column -1, column +1."""
    across = np.arange(-2, 3) * (_UNIT // 4)
    deep = (6 * np.arange(30) * _UNIT) // 29 - 3 * _UNIT
    half = np.array([_UNIT // 2])

    def grid(*axes: Array) -> Array:
        return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)

    ends = grid(across, across, np.array([-3, 3]) * _UNIT)
    rows = (grid(-half, across, deep), grid(half, across, deep))
    return ends, *rows, grid(across, -half, deep), grid(across, half, deep)


def _cloud(digit: Array) -> Array:
    """Return the upright cloud in units of 1/116 pixel, int64 ``(n, 3)``, not yet centred."""
    ink = np.pad(np.asarray(digit) > 0, 1)
    if ink.ndim != 2 or not ink.any():
        raise ValueError(f"a digit must be (height, width) with a pixel above 0, got shape {np.shape(digit)}")
    ends, *sides = _faces()
    neighbours = (ink[:-2, 1:-1], ink[2:, 1:-1], ink[1:-1, :-2], ink[1:-1, 2:])
    inside = ink[1:-1, 1:-1]
    parts = [(inside, ends), *((inside & ~beside, face) for beside, face in zip(neighbours, sides, strict=True))]
    clouds = []
    for pixels, face in parts:
        at = np.argwhere(pixels) * _UNIT
        middle = np.concatenate([at, np.zeros((len(at), 1), at.dtype)], 1)
        clouds.append((middle[:, None] + face[None]).reshape(-1, 3))
    row, column, depth = np.concatenate(clouds).T
    return np.stack([depth, column, -row], 1)  # 90 degrees about the second axis: (x, y, z) -> (z, y, -x)


def _cached(split: str, digits: Array) -> Array:
    """Return the counts of all ``digits``, from the data folder where they were made before."""
    path = files.root() / MNIST3D.name / f"{split}-counts-v{_VERSION}.npz"
    wanted = (len(digits), VOXELS, VOXELS, VOXELS)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            kept = arrays["counts"]
        if kept.shape == wanted and kept.dtype == np.uint16:
            return np.asarray(kept)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        pass  # absent or damaged: made again
    counts = np.stack([voxelise(digit) for digit in tracked(digits, f"3D-MNIST {split}", "digits")])
    counts = counts.astype(np.uint16)
    # A folder that cannot be written to costs time, nothing else.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            np.savez_compressed(Path(scratch) / path.name, counts=counts)
            os.replace(Path(scratch) / path.name, path)
    return counts


def load_h5(path: str | os.PathLike[str], split: str = "train") -> ImageSet:
    """Read the published file of 3D-MNIST. Needs h5py.

    Args:
        path: A copy of ``full_dataset_vectors.h5``.
        split: ``"train"`` or ``"test"``.

    Returns:
        Volumes ``(n, 1, 32, 32, 32)`` like those of ``dataset("mnist3d")``, and labels.

    Raises:
        ValueError: If h5py is not installed.
        DataError: If the file is absent, or is another one.
    """
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise ValueError(f"reading {H5_NAME} needs h5py: pip install h5py") from error
    if not Path(path).is_file():
        raise DataError(f"no file {path}; {H5_NAME} is part of 3D MNIST on Kaggle")
    try:
        with h5py.File(path, "r") as file:
            vectors, labels = np.asarray(file[f"X_{split}"]), np.asarray(file[f"y_{split}"])
    except (OSError, KeyError) as error:
        raise DataError(f"{path} is not the {H5_NAME} of 3D MNIST ({error})") from error
    if vectors.ndim != 2 or vectors.shape[1] != VOXELS**3 or labels.shape != (len(vectors),):
        wanted = f"vectors (n, {VOXELS**3}) and labels (n,)"
        raise DataError(f"{path} holds vectors {vectors.shape} and labels {labels.shape}; expected {wanted}")
    volumes = torch.from_numpy(vectors.astype(np.float32)).view(-1, 1, VOXELS, VOXELS, VOXELS)
    name = f"{Path(path).name}/{split}"
    return ImageSet(pad(volumes, MARGIN), torch.from_numpy(labels.astype(np.int64)), name, MNIST3D.classes)
