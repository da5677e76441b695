"""Fashion-MNIST: articles of clothing, in the format of MNIST."""

from __future__ import annotations

from unshift.data.entry import Entry
from unshift.data.mnist import MNIST, idx_files, read_digits

__all__ = ["ENTRIES"]

FASHION_MNIST = Entry(
    name="fashion-mnist",
    about="articles of clothing",
    licence="MIT",
    classes=("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    shape=(1, 28, 28),
    counts={"train": 60_000, "test": 10_000},
    read=read_digits,
    preparation=MNIST.preparation,
    files={
        "train": idx_files(
            "fashion-mnist/train",
            60_000,
            ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9"),
            ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe"),
        ),
        "test": idx_files(
            "fashion-mnist/t10k",
            10_000,
            ("8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),
            ("bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
    },
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    download_size=30_878_645,
)

ENTRIES = (FASHION_MNIST,)
