"""The catalogue of named datasets: what they are, their official files, and who has them."""

from __future__ import annotations

from dataclasses import dataclass

from unshift.data import embedded
from unshift.data.files import File

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Dataset:
    """What is known of a dataset: its two splits' files, and the public places that have them."""

    name: str
    about: str
    licence: str
    classes: tuple[str, ...]
    train: tuple[File, ...]
    test: tuple[File, ...]
    mirrors: tuple[str, ...] = ()
    archive_md5: str | None = None  # where the mirrors have one tar archive, not the files
    download_size: int = 0

    def files(self, split: str) -> tuple[File, ...]:
        """Return the files of one split."""
        return self.train if split == "train" else self.test


def _idx(folder: str, split: str, count: int, images_md5: str, labels_md5: str) -> tuple[File, ...]:
    return (
        File(f"{folder}/{split}-images-idx3-ubyte.gz", images_md5, 16 + count * 28 * 28),
        File(f"{folder}/{split}-labels-idx1-ubyte.gz", labels_md5, 8 + count),
    )


def _cifar(name: str, md5: str) -> File:
    return File(f"cifar-10-batches-bin/{name}.bin", md5, 10_000 * (1 + 3 * 32 * 32))


_DIGITS = tuple("0123456789")
_CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_MNIST_LICENCE = "CC BY-SA 3.0"

DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="mnist",
            about="handwritten digits, 28x28 grey, 60,000 + 10,000",
            licence=_MNIST_LICENCE,
            classes=_DIGITS,
            train=_idx(
                "mnist",
                "train",
                60_000,
                "6bbc9ace898e44ae57da46a324031adb",
                "a25bea736e30d166cdddb491f175f624",
            ),
            test=_idx(
                "mnist",
                "t10k",
                10_000,
                "2646ac647ad5339dbf082846283269ea",
                "27ae3e4e09519cfbb04c329615203637",
            ),
            mirrors=(
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            download_size=11_594_722,
        ),
        Dataset(
            name="mnist-10k",
            about="MNIST's first 10,000 training images and its 10,000 test images; part of the package",
            licence=_MNIST_LICENCE,
            classes=_DIGITS,
            train=embedded.TRAIN,
            test=embedded.TEST,
        ),
        Dataset(
            name="fashion-mnist",
            about="articles of clothing, 28x28 grey, 60,000 + 10,000",
            licence="MIT",
            classes=_CLOTHES,
            train=_idx(
                "fashion-mnist",
                "train",
                60_000,
                "f4a8712d7a061bf5bd6d2ca38dc4d50a",
                "9018921c3c673c538a1fc5bad174d6f9",
            ),
            test=_idx(
                "fashion-mnist",
                "t10k",
                10_000,
                "8181f5470baa50b63fa0f6fddb340f0a",
                "15d484375f8d13e6eb1aabb0c3f46965",
            ),
            mirrors=(
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            ),
            download_size=30_878_645,
        ),
        Dataset(
            name="cifar10",
            about="small photographs, 32x32 colour, 50,000 + 10,000",
            licence="none stated; cite Krizhevsky, 2009",
            classes=_CIFAR10,
            train=(
                _cifar("data_batch_1", "5dd7e06a14cb22eb9f671a540d1b7c25"),
                _cifar("data_batch_2", "5ea93a67294ea407fff1d09f752e9692"),
                _cifar("data_batch_3", "942cd6a4bcdd0dd3c604fbe906cb4421"),
                _cifar("data_batch_4", "ae636b3ba5c66a11e91e8cb52e771fcb"),
                _cifar("data_batch_5", "53f37980c15c3d472c316c40844f3f0d"),
            ),
            test=(_cifar("test_batch", "803d5f7f4d78ea53de84dbe85f74fb6d"),),
            mirrors=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            archive_md5="c32a1d4ab5d03f1284b67883e8d87530",
            download_size=170_052_171,
        ),
    )
}
