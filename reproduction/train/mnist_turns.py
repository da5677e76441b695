"""``mnist-turns``: digits turned by quarters and anywhere in 32x32 pixels: first the centre, then the turn.

python -m reproduction.train.mnist_turns --out mnist-turns.safetensors
"""

from __future__ import annotations

from typing import Any

import unshift
from reproduction.digit_augmentation import off_centre
from reproduction.train.common import main
from reproduction.train.mnist import HELD_OUT, images
from reproduction.train.mnist_pose import chained
from unshift.coordinates import Poses

__all__ = ["HELD_OUT", "images", "train"]

NETWORK: dict[str, Any] = {"channels": (16, 32), "hidden": 64, "size": (32, 32)}


def train(**options: Any) -> unshift.Chain:
    """Fit the centre, and which way up a digit is that is centred to about a pixel."""
    recipe: Any = {"epochs": 6, "learning_rate": 0.005, "augment": [off_centre]}
    return chained(Poses("quarter"), NETWORK, recipe, **options)


if __name__ == "__main__":
    main()
