"""``mnist``: digits anywhere in 32x32 pixels, by a network of lines.

python -m reproduction.train.mnist --out mnist.safetensors
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

import unshift
from reproduction.train.common import fit, main, prepared

HELD_OUT = 5000


def images(split: str) -> Tensor:
    """Return MNIST at 32x32."""
    return prepared("mnist", split, {"resize": [32, 32]})


def train(**options: Any) -> unshift.Restorer:
    """Fit the preset ``lines`` on MNIST."""
    return fit("mnist", images("train"), "lines", {"resize": [32, 32]}, HELD_OUT, **options)


if __name__ == "__main__":
    main()
