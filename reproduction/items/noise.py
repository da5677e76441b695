"""The limit of every canonical pose: answers that change under noise of a few grey levels.

Claim: An argmax jumps at near-ties: a little noise moves some restored images, and rarely changes the class behind.
Paper: no noise.
Cost: 1 min for each restorer.

No continuous function chooses one pose of every orbit of these groups, so some images lie near a jump (Dym, Lawrence
and Siegel 2024, arXiv 2402.16077). Each test image is estimated without and with noise, its own for each image.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction.classifiers import frozen, resized
from reproduction.images import labelled
from reproduction.items import imagenet
from reproduction.records import Options, Result, percent
from reproduction.tables import Block, Row, Table
from unshift.evaluation import predict

DIGITS = ("mnist", "mnist-paper", "mnist-turns", "mnist-pose", "mnist-rotation", "mnist-rotation-paper")
RESTORERS = {
    "mnist": DIGITS,
    "fashion-mnist": ("fashion-mnist",),
    "cifar10": ("cifar10", "cifar10-paper", "cifar10-seam"),
    "mnist3d": ("mnist3d",),
    "photos": ("photos",),
}
CASES = {
    "mnist": ("mnist-10k", "lenet5-mnist"),
    "fashion-mnist": ("fashion-mnist", "lenet5-fashion-mnist"),
    "cifar10": ("cifar10", "resnet20-cifar10-plain"),
    "mnist3d": ("mnist3d", "voxels3d-mnist3d"),
    "photos": ("photographs", "efficientnet-lite1"),
}
"""Test images, and the classifier behind the restorers."""
LEVELS = (1, 2, 5)
"""Standard deviation of the noise, in grey levels of 255."""
COUNT, LARGE = 1000, 200
"""Test images, and test images of 224x224."""


def measure(case: str, options: Options) -> Result:
    """Return the shares of poses and of predictions that change, in percent, for each restorer and level of noise."""
    return {name: _measured(name, *CASES[case], options) for name in RESTORERS[case]}


def _measured(name: str, data: str, behind: str, options: Options) -> Result:
    restorer: Any = unshift.load(name)
    if name == "photos":
        images, model, _ = imagenet.photos_and_classifier(options)
    else:
        preparation = restorer.trained_on["preparation"]
        large = preparation.get("resize", [0])[0] > 100
        images, _ = labelled(data, options, preparation, 4 if options.quick else LARGE if large else COUNT)
        model = frozen(behind, options).model
        if large:
            model = resized(model)
    before = restorer.estimate(images)
    bare, restored = predict(model, images), predict(model, restorer.undo(images, before))
    rows: dict[str, list[float]] = {"answer": [], "bare": [], "restored": []}
    for level in LEVELS:
        noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0)) * level / 255
        noisy = (images + noise).clamp(0, 1)
        after = restorer.estimate(noisy)
        rows["answer"].append(percent(_differ(before, after)))
        rows["bare"].append(percent(predict(model, noisy) != bare))
        rows["restored"].append(percent(predict(model, restorer.undo(noisy, after)) != restored))
    return {"images": len(images), "seed": 0, "classifier": behind, **rows}


def _differ(one: Any, other: Any) -> Tensor:
    """Return where two estimates differ: in the shift, in the turn, or by more than a degree."""
    differ = (one.shift != other.shift).any(1)
    if one.turn is not None:
        differ |= one.turn != other.turn
    if one.angle is not None:
        differ |= ((one.angle - other.angle + 180) % 360 - 180).abs() > 1
    return differ


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return one row for each restorer."""
    return summary({case: results[case]})


def summary(results: dict[str, Any]) -> list[Block]:
    """Return one row for each restorer of several cases."""
    rows = []
    for name, one in ((name, one) for result in results.values() for name, one in result.items()):
        cells = [f"{one['images']:,}", *one["answer"], f"`{one['classifier']}`", *one["bare"], *one["restored"]]
        rows.append(Row(f"`{name}`", cells, form="{:.1f}"))
    shares = [[f"{what}, {level}" for level in LEVELS] for what in ("pose", "class alone", "class restored")]
    note = (
        "Share of test images in % whose estimated pose, or predicted class alone and restored, changes under Gaussian "
        f"noise with a standard deviation of {', '.join(map(str, LEVELS))} grey levels, seed 0. An angle changes if it "
        "differs by more than a degree."
    )
    return [Table("restorer", ["n", *shares[0], "classifier", *shares[1], *shares[2]], rows, [note])]
