"""MNIST, its embedded part ``mnist-10k``, and Fashion-MNIST, which has the same format.

``mnist-10k/`` holds the first 10,000 training images and all test images, in gzipped idx files; see ``LICENSE-MNIST``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unshift.data.files import DataError, Entry, File

FOLDER = Path(__file__).with_name("mnist-10k")
NAMES = [f"{split}-{part}-ubyte.gz" for split in ("train", "t10k") for part in ("images-idx3", "labels-idx1")]


def read_idx(data: bytes) -> Tensor:
    """Parse an idx file of unsigned bytes, the format of MNIST.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
    tensor([7, 9], dtype=torch.uint8)
    """
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise DataError(f"an idx file of bytes starts with 00 00 08, got {data[:3].hex(' ')}")
    axes = data[3]
    sizes = struct.unpack_from(f">{axes}I", data, 4)
    # bytearray: torch requires writable memory.
    return torch.frombuffer(bytearray(data[4 + 4 * axes :]), dtype=torch.uint8).reshape(sizes)


def read_digits(split: str, contents: list[bytes]) -> tuple[Tensor, Tensor]:
    """Return the images and labels of the two files of a split."""
    images, labels = contents
    return read_idx(images)[:, None], read_idx(labels).long()


def _entry(name: str, train: int, md5: Sequence[tuple[str, str]], shipped: Sequence[str] = (), **fields: Any) -> Entry:
    """Return the entry of a data set in MNIST's format.

    ``md5`` has a pair for each file of ``NAMES``: of its unpacked content, and of the file at the mirrors.
    """
    counts = {"train": train, "test": 10_000}
    sizes = [size for count in counts.values() for size in (16 + count * 28 * 28, 8 + count)]
    files = [
        File(f"{name}/{file}", size, *sums, FOLDER / file if split in shipped else None)
        for file, split, size, sums in zip(NAMES, ["train"] * 2 + ["test"] * 2, sizes, md5, strict=True)
    ]
    return Entry(
        name=name,
        shape=(1, 28, 28),
        counts=counts,
        read=read_digits,
        preparation={"resize": [32, 32]},
        files={"train": tuple(files[:2]), "test": tuple(files[2:])},
        **({"licence": "CC BY-SA 3.0", "classes": tuple("0123456789")} | fields),
    )


TEST_MD5 = (
    ("2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"),
    ("27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"),
)

MNIST = _entry(
    "mnist",
    60_000,
    [
        ("6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"),
        *TEST_MD5,
    ],
    shipped=["test"],
    about="handwritten digits",
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    download_size=9_912_422 + 28_881,
)

# Its training files hold the first 10,000 items, with the count in the headers changed to match.
MNIST_10K = _entry(
    "mnist-10k",
    10_000,
    [("63a563d3843dba5073e604e3a7990e87", ""), ("e6ef65212ddc6f9010e22d95b5269050", ""), *TEST_MD5],
    shipped=["train", "test"],
    about="part of mnist that comes with the package",
)

FASHION_MNIST = _entry(
    "fashion-mnist",
    60_000,
    [
        ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("9018921c3c673c538a1fc5bad174d6f9", "25c81989df183df01b3e8a0aad5dffbe"),
        ("8181f5470baa50b63fa0f6fddb340f0a", "bef4ecab320f06d8554ea6380940ec79"),
        ("15d484375f8d13e6eb1aabb0c3f46965", "bb300cfdad3c16e7a12a480ee83cd310"),
    ],
    about="articles of clothing",
    licence="MIT",
    classes=("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    download_size=30_878_645,
)

ENTRIES = (MNIST, MNIST_10K, FASHION_MNIST)
