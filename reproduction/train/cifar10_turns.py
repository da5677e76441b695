"""Quarter turns of photos of 32x32: a network of poses that is measured, and not shipped (``weights/``).

python -m reproduction.train.cifar10_turns --out reproduction/weights/cifar10-turns.safetensors
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

import unshift
from reproduction.train.common import fit, main, prepared, seeded_pose
from unshift.coordinates import Poses

HELD_OUT = 5000
NETWORK: dict[str, Any] = {
    "channels": (32, 64, 128),
    "kernel_size": (3, 3, 3),
    "stride": (1, 2, 2),
    "hidden": 128,
    "size": (32, 32),
}


def images(split: str) -> Tensor:
    """Return CIFAR-10 as it is."""
    return prepared("cifar10", split, {})


def train(**options: Any) -> unshift.Restorer:
    """Fit which way up a photo is."""
    recipe: Any = {"epochs": 5, "learning_rate": 0.005, "batch_size": 64, "average": 0.998, "optimizer": "muon"}
    recipe |= {"standardise": True, "augment": ["mirror"], "coordinates": Poses("quarter")}
    return fit("cifar10", images("train"), seeded_pose(0, 3, **NETWORK), {}, HELD_OUT, **{**recipe, **options})


if __name__ == "__main__":
    main()
