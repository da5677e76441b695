"""``mnist-pose``: digits rotated by any angle and anywhere in 32x32 pixels: first the centre, then the angle.

python -m reproduction.train.mnist_pose --out mnist-pose.safetensors
"""

from __future__ import annotations

from typing import Any

import unshift
from reproduction.digit_augmentation import any_angle, turned_off_centre
from reproduction.train.common import calibrate_on_held_out, fit, main, seeded
from reproduction.train.mnist import HELD_OUT, images
from unshift.coordinates import Centre, Polar


def train(**options: Any) -> unshift.Chain:
    """Fit two restorers on MNIST, chain them, and calibrate the chain."""
    digits, checkpoint = images("train"), options.pop("checkpoint", None)
    network = seeded(0, 16, channels=(32, 32, 1), kernel_size=(72,), bias=True, size=(72,))
    polar = Polar(32, angles=72, radii=16, ratio=None, refine=True)
    common: Any = {"learning_rate": 0.003, "average": 0.998}
    first: Any = {"coordinates": Centre(), "epochs": 1, "batch_size": 64, "augment": [any_angle]}
    second: Any = {"coordinates": polar, "epochs": 8, "patience": 8, "batch_size": 128, "augment": [turned_off_centre]}
    stages = []
    for number, (preset, recipe) in enumerate([("dense", first), (network, second)]):
        if checkpoint:
            options["checkpoint"] = checkpoint.with_suffix(f".{number}.checkpoint")
        stages.append(fit("mnist", digits, preset, {"resize": [32, 32]}, HELD_OUT, **{**common, **recipe, **options}))
    chain, facts = unshift.Chain(*stages).eval(), [stage.metadata for stage in stages]
    chain.trained_on = stages[0].trained_on
    kept = ("preset", "data", "train_images", "seed", "size", "versions")
    chain.metadata = {**{key: facts[0][key] for key in kept}, "stages": facts}
    chain.metadata["seconds"] = round(sum(one["seconds"] for one in facts), 1)
    calibrate_on_held_out(chain, digits, HELD_OUT)
    return chain


if __name__ == "__main__":
    main()
