"""``mnist-rotation-paper``: digits rotated by any angle at 224x224, by the paper's network.

python -m reproduction.train.mnist_rotation_paper --out mnist-rotation-paper.safetensors
"""

from __future__ import annotations

from typing import Any

import unshift
from reproduction.train.common import fit, main
from reproduction.train.mnist_rotation import HELD_OUT, PREPARATION, images
from unshift.coordinates import Polar


def train(**options: Any) -> unshift.Restorer:
    """Fit the preset ``paper`` on MNIST, in the paper's polar coordinates."""
    return fit(
        "mnist",
        images("train"),
        "paper",
        PREPARATION,
        HELD_OUT,
        coordinates=Polar.preset("paper", (224, 224)),
        **options,
    )


if __name__ == "__main__":
    main()
