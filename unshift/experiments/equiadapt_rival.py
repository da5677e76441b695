"""equiadapt's canonicalizer, where it is installed: the rival that undoes turns.

    pip install --no-deps equiadapt==0.1.2 e2cnn==0.2.3 kornia kornia_rs omegaconf torchvision==0.28.0

for PyTorch 2.13, which torchvision 0.28 is of.

Its prior (Mondal et al. 2023) asks what a restorer's training asks: that upright photos stay as they are. So it learns
from the same photos, and needs no labels either.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from importlib import metadata, util
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from unshift.augmentation import AUGMENTATIONS
from unshift.data import dataset, prepare, root, to_float
from unshift.progress import tracked
from unshift.weights import write_atomically

__all__ = ["RECIPE", "canonicalizer", "is_installed", "versions"]

RECIPE: dict[str, Any] = {
    "network": {"out_channels": 16, "kernel_size": 5, "group_type": "rotation", "num_rotations": 4, "num_layers": 3},
    "canonicalizer": {"beta": 1.0, "input_crop_ratio": 0.8, "resize_shape": 32},
    "images": 22_500,
    "epochs": 1,
    "batch_size": 64,
    "learning_rate": 0.003,
    "seed": 0,
}
"""Its own default for images, with half the channels and at the photos' own size instead of 96x96."""

_TRAINED = ("roi_align", "ps_roi_align", "roi_pool", "ps_roi_pool", "deform_conv2d")
_OPERATORS = ("nms", "qnms", "qroi_align", *_TRAINED, *(f"_{name}_backward" for name in _TRAINED))


def is_installed() -> bool:
    """Say whether equiadapt can be had."""
    return util.find_spec("equiadapt") is not None


def versions() -> dict[str, str]:
    """Return the versions of equiadapt and of what it stands on."""
    return {name: metadata.version(name) for name in ("equiadapt", "e2cnn", "torchvision")}


def _import(name: str) -> Any:
    """Import a module of equiadapt, beside a PyTorch that torchvision's compiled operators were not built for.

    equiadapt uses torchvision's transforms, which need none of these; but ``import torchvision`` fails if they are not
    known at least by name.
    """
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for module in [each for each in sys.modules if each.split(".")[0] in ("torchvision", "equiadapt")]:
        del sys.modules[module]
    library = torch.library.Library("torchvision", "DEF")
    for operator in _OPERATORS:
        library.define(f"{operator}(Tensor images) -> Tensor")
    _KEPT.append(library)
    return importlib.import_module(name)


_KEPT: list[Any] = []
"""A library of operators is forgotten with its object."""


def canonicalizer(*, progress: bool = True) -> nn.Module:
    """Return equiadapt's canonicalizer for quarter turns of 40x40 photos, trained by its prior unless it was before.

    Args:
        progress: Whether a training shows a progress bar.

    Returns:
        From images to canonical images, in evaluation mode.
    """
    made = _import("equiadapt.images.canonicalization.discrete_group")
    networks = _import("equiadapt.images.canonicalization_networks")
    size = 32
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(RECIPE["seed"])
        network = networks.ESCNNEquivariantNetwork((3, size, size), **RECIPE["network"])
    settings = importlib.import_module("omegaconf").DictConfig(RECIPE["canonicalizer"])
    found: nn.Module = made.GroupEquivariantImageCanonicalization(network, settings, (3, size + 8, size + 8))
    digest = hashlib.sha256(json.dumps([RECIPE, versions()]).encode()).hexdigest()[:12]
    path = root() / "rivals" / f"equiadapt-{digest}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _train(found, prepare(dataset("cifar10", "train").images[: RECIPE["images"]], {"pad": 4}), progress)
        write_atomically(path, to_bytes({k: v.contiguous().clone() for k, v in network.state_dict().items()}))
    found.train()  # a steerable filter has its expansion among its tensors until it trains
    network.load_state_dict(load_file(path))
    return found.eval()


def _train(canonicalizer: Any, photos: Tensor, progress: bool) -> None:
    generator = torch.Generator().manual_seed(RECIPE["seed"])
    order = torch.cat([torch.randperm(len(photos), generator=generator) for _ in range(RECIPE["epochs"])])
    batches = order.split(RECIPE["batch_size"])
    optimizer = torch.optim.Adam(canonicalizer.parameters(), RECIPE["learning_rate"])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RECIPE["learning_rate"], total_steps=len(batches))
    canonicalizer.train()
    for rows in tracked(batches, "train equiadapt", "batches", progress):
        canonicalizer(AUGMENTATIONS["mirror"](to_float(photos[rows]), generator))
        loss = canonicalizer.get_prior_regularization_loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
