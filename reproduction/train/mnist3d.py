"""``mnist3d``: volumes of digits anywhere in 32x32x32 voxels, by the paper's network.

python -m reproduction.train.mnist3d --out mnist3d.safetensors
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

import unshift
from reproduction.train.common import fit, main, prepared

HELD_OUT = 500


def images(split: str) -> Tensor:
    """Return 3D-MNIST, regenerated."""
    return prepared("mnist3d", split, {})


def train(**options: Any) -> unshift.Restorer:
    """Fit the preset ``paper`` on 3D-MNIST."""
    recipe: Any = {"epochs": 6, "batch_size": 32}
    return fit("mnist3d", images("train"), "paper", {}, HELD_OUT, **{**recipe, **options})


if __name__ == "__main__":
    main()
