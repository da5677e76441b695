"""Frozen classifiers that come with the package. A classifier of your own needs nothing from this module."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

__all__ = ["ARCHITECTURES", "LeNet5", "ResNet", "ResNet20", "load", "names", "read"]

FOLDER = Path(__file__).parent / "pretrained" / "classifiers"


class LeNet5(nn.Sequential):
    """LeNet-5 for 1x32x32 images (LeCun 1998), with ReLU and max pooling: 61,706 parameters."""

    image_size = (32, 32)

    def __init__(self) -> None:
        features = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
        hidden = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
        super().__init__(*features, nn.Flatten(), *hidden, nn.Linear(84, 10))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut (He 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.short = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        """Return the maps after the block."""
        return torch.relu(self.body(images) + self.short(images))


class ResNet(nn.Sequential):
    """A residual network of basic blocks, ``depth`` per stage, for small RGB images of any size from 16x16.

    The first stride is 1. Every stage but the first halves the resolution.
    """

    def __init__(self, widths: Sequence[int], depth: int) -> None:
        channels = widths[0]
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)]
        layers.append(nn.ReLU(inplace=True))
        for stage, width in enumerate(widths):
            for block in range(depth):
                layers.append(BasicBlock(channels, width, 2 if stage and not block else 1))
                channels = width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


class ResNet20(ResNet):
    """Three stages of three basic blocks, 16 to 64 channels (He 2016, section 4.2): 272,474 parameters."""

    def __init__(self) -> None:
        super().__init__([16, 32, 64], 3)


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {"lenet5": LeNet5, "resnet20": ResNet20}
"""Constructors by the name that a weights file stores."""


def names() -> list[str]:
    """Return the names of the classifiers that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def load(name: str) -> nn.Module:
    """Return a classifier that comes with the package, in evaluation mode.

    Args:
        name: One of :func:`names`.

    Returns:
        A module from images in [0, 1] to logits. Its ``about`` holds the recipe and the validation accuracy; its
        ``image_size``, where it has one, is the only size that it takes.

    Raises:
        ValueError: If there is no classifier of this name.
    """
    if name not in names():
        raise ValueError(f"no classifier {name!r}; there are {', '.join(names())}")
    return read(FOLDER / f"{name}.safetensors")


def read(path: Path, architectures: Mapping[str, Callable[[], nn.Module]] = ARCHITECTURES) -> nn.Module:
    """Read a classifier from a file: its weights, and a header that names the architecture."""
    with safe_open(str(path), framework="pt") as file:
        about = json.loads((file.metadata() or {}).get("classifier", "{}"))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if about.get("architecture") not in architectures:
        raise ValueError(f"{path} holds no classifier of a known architecture ({', '.join(architectures)})")
    model = architectures[about["architecture"]]()
    model.load_state_dict(tensors)
    model.about = about
    return model.eval()
