"""``mnist-rotation``: digits rotated by any angle at 224x224, scored at 24 angles on means of 8x8 pixels.

python -m reproduction.train.mnist_rotation --out mnist-rotation.safetensors
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction.train.common import Prepared, main, seeded_pose
from unshift.coordinates import Angles, Pose, rotate
from unshift.data import dataset, prepare, to_float

PREPARATION = {"resize": [224, 224]}
HELD_OUT = 5000
NETWORK: dict[str, Any] = {"channels": (12, 24), "hidden": 48, "size": (28, 28)}


def images(split: str) -> Prepared:
    """Return MNIST at 224x224, enlarged when it is read."""
    return Prepared(dataset("mnist", split).images, lambda digit, _: prepare(digit, PREPARATION))


def rotated(digits: Tensor, generator: torch.Generator) -> tuple[Tensor, Pose]:
    """Rotate each digit by its own angle; return the angle too."""
    degrees = 360 * torch.rand(len(digits), generator=generator, dtype=torch.float64) - 180
    return rotate(to_float(digits), degrees), Pose(torch.zeros(len(digits), 2, dtype=torch.int64), angle=degrees)


def train(**options: Any) -> unshift.Restorer:
    """Fit at 28x28, rotated there too; a mean of 8x8 pixels of a digit at 224x224 is one of its own pixels."""
    recipe: Any = {"epochs": 6, "learning_rate": 0.005, "batch_size": 64, "average": 0.998, "optimizer": "muon"}
    settings: Any = {"data_name": "mnist", "validation": HELD_OUT, "drop_unusable": True, **recipe, **options}
    digits, network = dataset("mnist", "train").images, seeded_pose(0, 1, **NETWORK)
    fitted = unshift.fit(digits, network, coordinates=Angles(28), augment=[rotated], **settings)
    restorer = unshift.Restorer(fitted.scorer, coordinates=Angles(224, reduce=8)).eval()
    restorer.metadata, restorer.curve = fitted.metadata, fitted.curve
    restorer.trained_on = {"size": [224, 224], "channels": 1, "range": [0.0, 1.0], "preparation": PREPARATION}
    return restorer


if __name__ == "__main__":
    main()
