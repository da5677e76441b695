"""CIFAR-10: small photographs, in the batches of its binary version."""

from __future__ import annotations

import torch
from torch import Tensor

from unshift.data.files import Entry, File

RECORD = 1 + 3 * 32 * 32  # bytes of an image: a label, then three planes


def read_batches(split: str, contents: list[bytes]) -> tuple[Tensor, Tensor]:
    """Return the images and labels of the binary batches."""
    # bytearray: torch requires writable memory.
    rows = torch.frombuffer(bytearray(b"".join(contents)), dtype=torch.uint8).reshape(-1, RECORD)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()


MD5 = {
    "train": {
        "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    },
    "test": {"test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d"},
}

CIFAR10 = Entry(
    name="cifar10",
    about="small photographs",
    licence="none stated; cite Krizhevsky, 2009",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    shape=(3, 32, 32),
    counts={"train": 50_000, "test": 10_000},
    read=read_batches,
    preparation={"pad": 4},
    files={
        split: tuple(File(f"cifar-10-batches-bin/{name}.bin", 10_000 * RECORD, md5) for name, md5 in batches.items())
        for split, batches in MD5.items()
    },
    mirrors=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    archive_md5="c32a1d4ab5d03f1284b67883e8d87530",
    download_size=170_052_171,
)

ENTRIES = (CIFAR10,)
