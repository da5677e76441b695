"""``cifar10``: photos padded to 40x40, anywhere, by a small network of lines.

python -m reproduction.train.cifar10 --out cifar10.safetensors
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

import unshift
from reproduction.train.common import fit, main, prepared, seeded

HELD_OUT = 5000


def images(split: str) -> Tensor:
    """Return CIFAR-10, padded by 4 pixels."""
    return prepared("cifar10", split, {"pad": 4})


def train(**options: Any) -> unshift.Restorer:
    """Fit a third of the channels of the preset ``seam``: a margin is easy to see."""
    network = seeded(
        0,
        3,
        channels=(8,),
        kernel_size=(3, 3),
        bias=True,
        activation="abs",
        line_channels=(16, 1),
        line_kernel_size=(9, 9),
    )
    # The loss wanders while the learning rate is high, and falls at the end of the cycle: do not stop early.
    recipe: Any = {"epochs": 20, "patience": 20, "learning_rate": 0.01, "batch_size": 64}
    recipe |= {"standardise": True, "optimizer": "muon", "augment": ["mirror"]}
    return fit("cifar10", images("train"), network, {"pad": 4}, HELD_OUT, **{**recipe, **options})


if __name__ == "__main__":
    main()
