"""``mnist-paper``: digits anywhere in 32x32 pixels, by the paper's network.

python -m reproduction.train.mnist_paper --out mnist-paper.safetensors
"""

from __future__ import annotations

from typing import Any

import unshift
from reproduction.train.common import fit, main
from reproduction.train.mnist import HELD_OUT, images


def train(**options: Any) -> unshift.Restorer:
    """Fit the preset ``paper`` on MNIST."""
    return fit("mnist", images("train"), "paper", {"resize": [32, 32]}, HELD_OUT, **options)


if __name__ == "__main__":
    main()
