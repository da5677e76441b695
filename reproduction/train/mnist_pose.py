"""``mnist-pose``: digits rotated by any angle and anywhere in 32x32 pixels: first the centre, then the angle.

python -m reproduction.train.mnist_pose --out mnist-pose.safetensors
"""

from __future__ import annotations

from typing import Any

import unshift
from reproduction.digit_augmentation import any_angle, turned_off_centre
from reproduction.train.common import calibrate_on_held_out, fit, main, seeded_pose
from reproduction.train.mnist import HELD_OUT, images
from unshift.coordinates import Angles, Centre, Coordinates

NETWORK: dict[str, Any] = {"channels": (12, 24), "hidden": 48, "size": (32, 32)}


def chained(coordinates: Coordinates, network: dict[str, Any], recipe: dict[str, Any], **options: Any) -> unshift.Chain:
    """Fit the centre of digits at any angle, then a network of poses; chain them, and calibrate the chain."""
    digits, checkpoint = images("train"), options.pop("checkpoint", None)
    common: Any = {"batch_size": 64, "average": 0.998}
    first: Any = {"coordinates": Centre(), "epochs": 1, "learning_rate": 0.003, "augment": [any_angle]}
    second: Any = {"coordinates": coordinates, "optimizer": "muon", **recipe}
    stages = []
    for number, (preset, own) in enumerate([("dense", first), (seeded_pose(0, 1, **network), second)]):
        if checkpoint:
            options["checkpoint"] = checkpoint.with_suffix(f".{number}.checkpoint")
        stages.append(fit("mnist", digits, preset, {"resize": [32, 32]}, HELD_OUT, **{**common, **own, **options}))
    chain, facts = unshift.Chain(*stages).eval(), [stage.metadata for stage in stages]
    chain.trained_on = stages[0].trained_on
    kept = ("preset", "data", "train_images", "seed", "size", "versions")
    chain.metadata = {**{key: facts[0][key] for key in kept}, "stages": facts}
    chain.metadata["seconds"] = round(sum(one["seconds"] for one in facts), 1)
    calibrate_on_held_out(chain, digits, HELD_OUT)
    return chain


def train(**options: Any) -> unshift.Chain:
    """Fit the centre, and the angle of a digit that is centred to about a pixel."""
    recipe: Any = {"epochs": 12, "learning_rate": 0.005, "augment": [turned_off_centre]}
    return chained(Angles(32), NETWORK, recipe, **options)


if __name__ == "__main__":
    main()
