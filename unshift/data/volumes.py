"""3D-MNIST: digits as solid bodies. Made again from MNIST, or read from the file that is on Kaggle.

*3D-MNIST, regenerated*: the first 5,000 training and 1,000 test digits of MNIST. Each pixel above 0 is a box
of 1 x 1 x 6, its front and back covered by 5 x 5 points, each side where the next pixel is empty by 5 x 30.
The cloud is scaled by its longest extent, centred on its mean, and turned upright by 90 degrees about y;
then its points are counted in 16 x 16 x 16 voxels of its bounding cube, the counts divided by the largest.
A margin of 8 makes it 32 x 32 x 32.

Coordinates are kept as whole multiples of 1/116 pixel, in which all the points lie: many of them fall on the
edge between two voxels, where rounding would decide. An edge belongs to the lower voxel.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

from unshift.data import files
from unshift.data.catalogue import SPLITS
from unshift.data.datasets import dataset
from unshift.data.files import DataError
from unshift.data.pixels import ImageSet, pad

__all__ = ["COUNTS", "H5_NAME", "load_h5", "mnist3d", "point_cloud", "voxelise"]

COUNTS = {"train": 5000, "test": 1000}
VOXELS, MARGIN = 16, 8
H5_NAME = "full_dataset_vectors.h5"
_UNIT = 116  # per pixel: both a quarter (5 points from edge to edge) and 6/29 (30 points over 6) are whole
_FOLDER, _VERSION = "mnist3d", 1


def mnist3d(split: str = "train", *, padding: int = MARGIN, source: str | os.PathLike[str] | None = None) -> ImageSet:
    """Load 3D-MNIST: float32 volumes ``(n, 1, 32, 32, 32)`` in [0, 1] and labels.

    Made from the MNIST that comes with the package, and kept in the data folder for the next time.
    ``source`` is a ``full_dataset_vectors.h5`` to read instead. ``padding`` is the margin of empty voxels.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    if source is not None:
        found = load_h5(source, split)
    else:
        digits = dataset("mnist-10k", split)
        assert digits.labels is not None
        counts = torch.from_numpy(_cached(split, digits.images[: COUNTS[split], 0].numpy()).astype(np.float32))
        volumes = counts / counts.flatten(1).amax(1).view(-1, 1, 1, 1)
        found = ImageSet(volumes[:, None], digits.labels[: COUNTS[split]], f"mnist3d/{split}", digits.classes)
    return ImageSet(pad(found.images, padding), found.labels, found.name, found.classes)


def point_cloud(digit: np.ndarray) -> np.ndarray:
    """Return the cloud of one ``(28, 28)`` digit, float64 ``(n, 3)``: longest extent 1, mean 0, upright.

    The third axis points up: along it the digit's first row stands highest.
    """
    points = _cloud(digit)
    scaled = points / np.ptp(points, axis=0).max()
    return scaled - scaled.mean(axis=0)


def voxelise(digit: np.ndarray) -> np.ndarray:
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


def _faces() -> tuple[np.ndarray, ...]:
    """Return the points on a box's front and back, and on its sides towards row -1, row +1, column -1, column +1."""
    across = np.arange(-2, 3) * (_UNIT // 4)
    deep = (6 * np.arange(30) * _UNIT) // 29 - 3 * _UNIT
    half = np.array([_UNIT // 2])

    def grid(*axes: np.ndarray) -> np.ndarray:
        return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)

    ends = grid(across, across, np.array([-3, 3]) * _UNIT)
    rows = (grid(-half, across, deep), grid(half, across, deep))
    return ends, *rows, grid(across, -half, deep), grid(across, half, deep)


def _cloud(digit: np.ndarray) -> np.ndarray:
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


def _cached(split: str, digits: np.ndarray) -> np.ndarray:
    """Return the counts of all ``digits``, from the data folder where they were made before."""
    path = files.root() / _FOLDER / f"{split}-counts-v{_VERSION}.npz"
    wanted = (len(digits), VOXELS, VOXELS, VOXELS)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            kept = arrays["counts"]
        if kept.shape == wanted and kept.dtype == np.uint16:
            return kept
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        pass  # not there, or a damaged one: made anew
    counts = np.stack([voxelise(digit) for digit in tqdm(digits, desc=f"3D-MNIST {split}", disable=None)])
    counts = counts.astype(np.uint16)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
            np.savez_compressed(file, counts=counts)
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError:
        pass  # a folder that cannot be written to costs time, nothing else
    return counts


def load_h5(path: str | os.PathLike[str], split: str = "train") -> ImageSet:
    """Read the published ``full_dataset_vectors.h5``: volumes ``(n, 1, 16, 16, 16)`` and labels. Needs h5py."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise ValueError(f"reading {H5_NAME} needs h5py: pip install h5py") from error
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file; {H5_NAME} is part of 3D MNIST on Kaggle")
    try:
        with h5py.File(path, "r") as file:
            vectors, labels = np.asarray(file[f"X_{split}"]), np.asarray(file[f"y_{split}"])
    except (OSError, KeyError) as error:
        raise DataError(f"{path}: not the {H5_NAME} of 3D MNIST ({error})") from error
    if vectors.ndim != 2 or vectors.shape[1] != VOXELS**3 or labels.shape != (len(vectors),):
        raise DataError(f"{path}: wanted vectors (n, {VOXELS**3}) and labels (n,), got {vectors.shape}, {labels.shape}")
    volumes = torch.from_numpy(vectors.astype(np.float32)).view(-1, 1, VOXELS, VOXELS, VOXELS)
    classes = tuple("0123456789")
    return ImageSet(volumes, torch.from_numpy(labels.astype(np.int64)), f"{Path(path).name}/{split}", classes)
