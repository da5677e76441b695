"""MNIST: handwritten digits. ``mnist-10k`` is the part of it that comes with the package.

``mnist-10k/`` beside this file holds the whole test split and the first 10,000 training images, with
their labels, in MNIST's own format (idx, gzipped); see ``LICENSE-MNIST``. The test files hold the official
bytes, so ``mnist`` too reads its test split from them where it has not been downloaded.
:func:`make_embedded` made these files from the full data set, and can make them again.
"""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import torch
from torch import Tensor

from unshift.data.entry import Entry
from unshift.data.files import DataError, File, read

__all__ = ["ENTRIES", "MNIST", "MNIST_10K", "idx_files", "make_embedded", "read_digits"]

FOLDER = Path(__file__).with_name("mnist-10k")
DIGITS = tuple("0123456789")
LICENCE = "CC BY-SA 3.0"
_IMAGES, _LABELS = "images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"
_EMBEDDED = 10_000  # images a split


def read_idx(data: bytes) -> Tensor:
    """Parse an idx file of unsigned bytes, the format of MNIST.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    tensor([7, 9], dtype=torch.uint8)
    """
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise DataError(f"an idx file of bytes starts with 00 00 08, got {data[:3].hex(' ')}")
    axes = data[3]
    sizes = struct.unpack_from(f">{axes}I", data, 4)
    # bytearray: torch wants memory that it may write to.
    return torch.frombuffer(bytearray(data[4 + 4 * axes :]), dtype=torch.uint8).reshape(sizes)


def read_digits(split: str, contents: list[bytes]) -> tuple[Tensor, Tensor]:
    """Read a file of images and one of labels."""
    images, labels = contents
    return read_idx(images)[:, None], read_idx(labels).long()


def idx_files(
    start: str, count: int, md5: tuple[str, str], download_md5: tuple[str, str] = ("", ""), shipped: Path | None = None
) -> tuple[File, ...]:
    """Return the two files of a split of ``count`` 28x28 images; their paths begin with ``start``."""
    sizes = (16 + count * 28 * 28, 8 + count)
    paths = (f"{start}-{_IMAGES}", f"{start}-{_LABELS}")
    return tuple(
        File(path, size, content, packed, shipped and shipped / path.rpartition("/")[2])
        for path, size, content, packed in zip(paths, sizes, md5, download_md5, strict=True)
    )


_TEST_MD5 = ("2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637")

MNIST = Entry(
    name="mnist",
    about="handwritten digits",
    licence=LICENCE,
    classes=DIGITS,
    shape=(1, 28, 28),
    counts={"train": 60_000, "test": 10_000},
    read=read_digits,
    preparation={"resize": [32, 32]},
    files={
        "train": idx_files(
            "mnist/train",
            60_000,
            ("6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624"),
            ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432"),
        ),
        "test": idx_files(
            "mnist/t10k",
            10_000,
            _TEST_MD5,
            ("9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c"),
            shipped=FOLDER,
        ),
    },
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    download_size=9_912_422 + 28_881,
)

MNIST_10K = Entry(
    name="mnist-10k",
    about="part of mnist that comes with the package",
    licence=LICENCE,
    classes=DIGITS,
    shape=(1, 28, 28),
    counts={"train": _EMBEDDED, "test": 10_000},
    read=read_digits,
    preparation=MNIST.preparation,
    files={
        # Cut after 10,000 items, the count in their headers changed to match.
        "train": idx_files(
            "mnist-10k/train",
            _EMBEDDED,
            ("63a563d3843dba5073e604e3a7990e87", "e6ef65212ddc6f9010e22d95b5269050"),
            shipped=FOLDER,
        ),
        "test": idx_files("mnist-10k/t10k", 10_000, _TEST_MD5, shipped=FOLDER),
    },
)

ENTRIES = (MNIST, MNIST_10K)


def cut(data: bytes, count: int) -> bytes:
    """Return the first ``count`` items of an idx file as an idx file.

    >>> cut(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), 2).hex(" ")
    '00 00 08 01 00 00 00 02 07 08'
    """
    axes = data[3]
    sizes = struct.unpack_from(f">{axes}I", data, 4)
    start = 4 + 4 * axes
    item = (len(data) - start) // sizes[0]
    return data[:4] + struct.pack(">I", count) + data[8:start] + data[start : start + count * item]


def make_embedded(source: Path, folder: Path = FOLDER) -> None:
    """Write the files of ``mnist-10k`` into ``folder``, from the full MNIST in ``source``."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in MNIST_10K.all_files():
        packed = gzip.compress(cut(gzip.decompress((source / file.name).read_bytes()), _EMBEDDED), 9, mtime=0)
        (folder / file.name).write_bytes(packed)
        read(folder / file.name, file, f"{source} does not hold the official MNIST")
