"""The part of MNIST that comes with the package: no download, no network.

``mnist-10k/`` beside this file holds the whole test split and the first 10,000 training images, with
their labels, in MNIST's own format (idx, gzipped); see ``LICENSE-MNIST``. :func:`make` made them from
the full dataset, and can make them again.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

from unshift.data import files
from unshift.data.files import File

FOLDER = Path(__file__).with_name("mnist-10k")
COUNT = 10_000
MEND = "it came with the package: reinstall unshift"

# The test files are the official ones, to the byte; the training files are cut after 10,000 items,
# the count in their headers changed to match.
TRAIN = (
    File("train-images-idx3-ubyte.gz", "63a563d3843dba5073e604e3a7990e87", 16 + COUNT * 28 * 28),
    File("train-labels-idx1-ubyte.gz", "e6ef65212ddc6f9010e22d95b5269050", 8 + COUNT),
)
TEST = (
    File("t10k-images-idx3-ubyte.gz", "2646ac647ad5339dbf082846283269ea", 16 + COUNT * 28 * 28),
    File("t10k-labels-idx1-ubyte.gz", "27ae3e4e09519cfbb04c329615203637", 8 + COUNT),
)


def read(file: File) -> bytes:
    """Return the unpacked content of an embedded file."""
    return files.read(FOLDER / file.path, file, MEND)


def cut(data: bytes, count: int) -> bytes:
    """Return an idx file's first ``count`` items as an idx file.

    >>> cut(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), 2).hex(" ")
    '00 00 08 01 00 00 00 02 07 08'
    """
    axes = data[3]
    sizes = struct.unpack_from(f">{axes}I", data, 4)
    start = 4 + 4 * axes
    item = (len(data) - start) // sizes[0]
    return data[:4] + struct.pack(">I", count) + data[8:start] + data[start : start + count * item]


def make(source: Path, folder: Path = FOLDER) -> None:
    """Write the embedded files into ``folder``, from the full MNIST in ``source``."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*TRAIN, *TEST):
        packed = gzip.compress(cut(gzip.decompress((source / file.path).read_bytes()), COUNT), 9, mtime=0)
        (folder / file.path).write_bytes(packed)
        files.read(folder / file.path, file, f"{source} does not hold the official MNIST")
