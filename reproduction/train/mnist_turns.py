"""``mnist-turns``: digits turned by quarters and anywhere in 32x32 pixels.

python -m reproduction.train.mnist_turns --out mnist-turns.safetensors
"""

from __future__ import annotations

from typing import Any

import unshift
from reproduction.digit_augmentation import jiggle
from reproduction.train.common import fit, main, seeded
from reproduction.train.mnist import HELD_OUT, images
from unshift.coordinates import Turns

SEED = 67280421310721
"""PyTorch's default seed: the shipped weights started there."""


def train(**options: Any) -> unshift.Restorer:
    """Fit full-size filters on MNIST, with slightly deformed digits in half of the batches."""
    network = seeded(SEED, 1, channels=(24, 1), kernel_size=(32, 32), bias=True, size=(32, 32))
    recipe: Any = {"epochs": 5, "batch_size": 64, "learning_rate": 0.003, "average": 0.998, "augment": [jiggle]}
    return fit(
        "mnist",
        images("train"),
        network,
        {"resize": [32, 32]},
        HELD_OUT,
        coordinates=Turns("quarter"),
        **{**recipe, **options},
    )


if __name__ == "__main__":
    main()
