"""3D-MNIST: digits as solid bodies, regenerated from MNIST.

The set has the first 5,000 training and 1,000 test digits of MNIST. Each pixel above 0 is a box of
1 x 1 x 6 with 5 x 5 points on its front and on its back, and 5 x 30 points on each side whose neighbouring pixel is
empty. The point cloud is rotated upright by 90 degrees about y, its points are counted in 16 x 16 x 16 voxels of its
bounding cube, and the counts are divided by the largest. A margin of 8 makes it 32 x 32 x 32.

All coordinates are integer multiples of 1/116 pixel, so no point on the edge between two voxels depends on rounding: it
belongs to the lower voxel. The points of a face form a grid, so its counts are an outer product over the axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unshift.data.files import Entry
from unshift.data.mnist import MNIST_10K, read_digits
from unshift.shifts import add_margin

VOXELS, MARGIN = 16, 8
# Units per pixel: a quarter (5 points from edge to edge) and 6/29 (30 points over 6 pixels) are both whole.
_UNIT = 116
_WIDTH_POINTS = np.arange(-2, 3) * (_UNIT // 4)
_DEPTH_POINTS = (6 * np.arange(30) * _UNIT) // 29 - 3 * _UNIT
_FRONT_AND_BACK, _EDGE = np.array([-3, 3]) * _UNIT, np.array([_UNIT // 2])

Array = npt.NDArray[Any]


def read_volumes(split: str, contents: list[bytes]) -> tuple[Tensor, Tensor]:
    """Make the volumes of a split from the files of ``mnist-10k``: float32 in [0, 1]."""
    digits, labels = read_digits(split, contents)
    count = MNIST3D.counts[split]
    counts = torch.from_numpy(np.stack([voxelise(digit) for digit in digits[:count, 0].numpy()])).float()
    return add_margin((counts / counts.flatten(1).amax(1).view(-1, 1, 1, 1))[:, None], MARGIN), labels[:count]


MNIST3D = Entry(
    name="mnist3d",
    about="digits as solid bodies, made from mnist-10k",
    licence=MNIST_10K.licence,
    classes=MNIST_10K.classes,
    shape=(1, 32, 32, 32),
    counts={"train": 5000, "test": 1000},
    read=read_volumes,
    files=MNIST_10K.files,
)

ENTRIES = (MNIST3D,)


def voxelise(digit: Array) -> Array:
    """Count the points of one ``(28, 28)`` digit in each voxel of its bounding cube: int64 ``(16, 16, 16)``.

    The axes are depth, columns and height: the digit's first row is the highest.
    """
    ink = np.pad(np.asarray(digit) > 0, 1)
    if ink.ndim != 2 or not ink.any():
        raise ValueError(f"a digit must be (height, width) with a pixel above 0, got shape {np.shape(digit)}")
    rows, columns = (np.flatnonzero(ink.any(axis)) for axis in (1, 0))
    side = max(6 * _UNIT, *((at[-1] - at[0] + 1) * _UNIT for at in (rows, columns)))

    def counts(centres: Array, points: Array, middle: int) -> Array:
        """Count ``points`` around each centre in the 16 voxels of the cube about ``middle / 2``, along one axis."""
        offset = 2 * (centres[:, None] + points) - (middle - side)
        voxel = np.clip(-(-offset * VOXELS // (2 * side)) - 1, 0, VOXELS - 1)
        return np.asarray((voxel[:, :, None] == np.arange(VOXELS)).sum(1))

    row_centres, column_centres = (np.arange(n) * _UNIT for n in ink.shape)
    middles = [(at[0] + at[-1]) * _UNIT for at in (rows, columns)]
    above, below, left, right = (ink & ~np.roll(ink, step, axis) for axis in (0, 1) for step in (1, -1))
    faces = [
        (ink, _WIDTH_POINTS, _WIDTH_POINTS, _FRONT_AND_BACK),
        (above, -_EDGE, _WIDTH_POINTS, _DEPTH_POINTS),
        (below, _EDGE, _WIDTH_POINTS, _DEPTH_POINTS),
    ]
    faces += [(left, _WIDTH_POINTS, -_EDGE, _DEPTH_POINTS), (right, _WIDTH_POINTS, _EDGE, _DEPTH_POINTS)]
    total = np.zeros([VOXELS] * 3, dtype=np.int64)
    for pixels, across, along, deep in faces:
        height = counts(-row_centres, -across, -middles[0])  # negated: the first row is the highest
        width = counts(column_centres, along, middles[1])
        depth = counts(np.zeros(1, int), deep, 0)[0]
        total += depth[:, None, None] * (width.T @ pixels.T.astype(int) @ height)
    return total
