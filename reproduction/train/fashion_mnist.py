"""``fashion-mnist``: clothes anywhere in 32x32 pixels.

python -m reproduction.train.fashion_mnist --out fashion-mnist.safetensors
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

import unshift
from reproduction.train.common import fit, main, prepared, seeded

HELD_OUT = 5000


def images(split: str) -> Tensor:
    """Return Fashion-MNIST at 32x32."""
    return prepared("fashion-mnist", split, {"resize": [32, 32]})


def train(**options: Any) -> unshift.Restorer:
    """Fit contrasts and three layers of lines: clothes fill the frame, so the seam shows the shift."""
    network = seeded(
        0,
        1,
        channels=(16,),
        kernel_size=(3, 3),
        bias=True,
        activation="abs",
        line_channels=(24, 24, 1),
        line_kernel_size=(11, 11),
    )
    recipe: Any = {"epochs": 16, "patience": 16, "learning_rate": 0.01, "batch_size": 64}
    recipe |= {"standardise": True, "optimizer": "muon"}
    return fit("fashion-mnist", images("train"), network, {"resize": [32, 32]}, HELD_OUT, **{**recipe, **options})


if __name__ == "__main__":
    main()
