"""A restorer for photos that were turned by quarters and shifted: trained here, kept in the data folder.

The margin says where a photo begins. Which way is up is the hard part: of 32x32 pixels it is often not to be seen.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

import unshift
from unshift.coordinates import Turns
from unshift.data import dataset, prepare, root
from unshift.recipes import RECIPES

__all__ = ["NAME", "photo_turns"]

NAME = "cifar10-turns"
PREPARATION = {"pad": 4}
NETWORK: dict[str, Any] = {
    # What is up shows in whole rows and columns, so the lines are as long as the image.
    "channels": (16, 24),
    "kernel_size": (3, 3),
    "bias": True,
    "line_channels": (48, 1),
    "line_kernel_size": (40, 40),
    "size": (40, 40),
}
TRAINING: dict[str, Any] = {**RECIPES["seam"], "epochs": 3, "validation": 5000, "augment": ["mirror"], "seed": 0}


def photo_turns(*, quick: bool = False, progress: bool = True) -> unshift.Restorer | unshift.Chain:
    """Return the restorer, trained on CIFAR-10's training photos unless it was before; a killed training goes on.

    Args:
        quick: Learn from a few photos of noise: a look, not a result.
        progress: Whether a training shows a progress bar.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(TRAINING["seed"])
        network = unshift.ShiftEstimator(3, **NETWORK)
    turns, training = Turns("quarter"), {**TRAINING, "data_name": "cifar10", "progress": progress}
    if quick:
        noise = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        return unshift.fit(
            prepare(noise, PREPARATION), network, coordinates=turns, **{**training, "epochs": 1, "validation": 4}
        )
    digest = hashlib.sha256(json.dumps([NETWORK, TRAINING]).encode()).hexdigest()[:12]
    path = root() / "restorers" / f"{NAME}-{digest}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        photos = prepare(dataset("cifar10", "train").images, PREPARATION)
        training |= {"checkpoint": path.with_suffix(".checkpoint"), "resume": True, "drop_unusable": True}
        unshift.fit(photos, network, coordinates=turns, **training).save(path)
    return unshift.load(path)
