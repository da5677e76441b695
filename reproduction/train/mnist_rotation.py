"""``mnist-rotation``: digits rotated by any angle at 224x224, by three layers of full-size filters.

python -m reproduction.train.mnist_rotation --out mnist-rotation.safetensors
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction.train.common import Prepared, main
from unshift.coordinates import Polar, rotate
from unshift.data import dataset, prepare, to_float

PREPARATION = {"resize": [224, 224]}
HELD_OUT = 5000


def images(split: str) -> Prepared:
    """Return MNIST at 224x224, enlarged when it is read."""
    return Prepared(dataset("mnist", split).images, lambda digit, _: prepare(digit, PREPARATION))


def canvases(polar: Polar, digits: Tensor, seed: int = 0) -> Tensor:
    """Return polar canvases of upright digits whose pixel lattice is not upright.

    An enlarged digit shows the lattice of its 28x28 pixels. A strong network would read the angle off the lattice, and
    fail on digits that were rotated before they became pixels. So each digit is rotated at its own size by a random
    number of grid steps, and its canvas is shifted back.
    """
    steps = torch.randint(polar.angles, (len(digits), 1), generator=torch.Generator().manual_seed(seed))
    upright = []
    for digit, step in zip(digits.split(1), steps.split(1), strict=True):  # at 224x224, all would not fit in memory
        turned = rotate(to_float(digit), 360 / polar.angles * step[:, 0].double())
        upright.append(unshift.undo(polar.canvas(prepare(turned, PREPARATION))[:, 0], step))
    return torch.cat(upright)


def train(**options: Any) -> unshift.Restorer:
    """Fit on canvases, arrays of one axis; the result serves the images."""
    digits, polar = dataset("mnist", "train").images, Polar.preset("dense", (224, 224))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = polar.network("dense", 1, (polar.angles,))
    recipe: Any = {"epochs": 6, "learning_rate": 0.003}
    settings: Any = {"data_name": "mnist", "validation": HELD_OUT, "drop_unusable": True, **recipe, **options}
    fitted = unshift.fit(canvases(polar, digits), network, **settings)
    restorer = unshift.Restorer(fitted.scorer, coordinates=polar).eval()
    restorer.metadata, restorer.curve = fitted.metadata, fitted.curve
    restorer.trained_on = {"size": [224, 224], "channels": 1, "range": [0.0, 1.0], "preparation": PREPARATION}
    return restorer


if __name__ == "__main__":
    main()
