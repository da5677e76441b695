"""``cifar10-seam``: photos of 32x32 without a margin, anywhere, by their seam.

python -m reproduction.train.cifar10_seam --out cifar10-seam.safetensors
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

import unshift
from reproduction.train.common import fit, main, prepared

HELD_OUT = 5000


def images(split: str) -> Tensor:
    """Return CIFAR-10."""
    return prepared("cifar10", split, {})


def train(**options: Any) -> unshift.Restorer:
    """Fit the preset ``seam`` on CIFAR-10."""
    recipe: Any = {"epochs": 60, "patience": 60, "augment": ["mirror", "windows", "colour"]}
    return fit("cifar10", images("train"), "seam", {}, HELD_OUT, **{**recipe, **options})


if __name__ == "__main__":
    main()
