"""``cifar10-paper``: photos padded to 40x40, anywhere, by the paper's network.

python -m reproduction.train.cifar10_paper --out cifar10-paper.safetensors
"""

from __future__ import annotations

from typing import Any

import unshift
from reproduction.train.cifar10 import HELD_OUT, images
from reproduction.train.common import fit, main


def train(**options: Any) -> unshift.Restorer:
    """Fit the preset ``paper`` on CIFAR-10."""
    return fit("cifar10", images("train"), "paper", {"pad": 4}, HELD_OUT, **options)


if __name__ == "__main__":
    main()
