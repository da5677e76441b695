"""ResNet-20 built to care less where things are: two rivals of a restorer, which have to be trained themselves.

Both take every stride as a convolution of stride 1 and then a choice of positions, and pad circularly, as the papers do
for circular shifts. Apart from that they are the ResNet-20 of ``architectures.py``, parameter for parameter.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["BlurredResNet20", "PolyphaseResNet20", "blurred", "polyphase"]

Subsample = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From the maps of a block and its short cut to every other position of both, the same positions."""


def polyphase(maps: Tensor, short: Tensor) -> tuple[Tensor, Tensor]:
    """Keep, of the four grids of every other position, the one where ``maps`` has the largest norm.

    A shift permutes the four grids, so the one that is kept moves along (Chaman and Dokmanic 2021). Sums of floats are
    as exact as floats are: where two norms are all but equal, the choice may fall otherwise.
    """
    grids = [(row, column) for row in range(2) for column in range(2)]
    norms = torch.stack([maps[..., i::2, j::2].square().sum((1, 2, 3)) for i, j in grids], 1)
    one_of_four = F.one_hot(norms.argmax(1), 4).to(maps.dtype).T[..., None, None, None]
    kept = [
        sum(weight * x[..., i::2, j::2] for weight, (i, j) in zip(one_of_four, grids, strict=True))
        for x in (maps, short)
    ]
    return kept[0], kept[1]


def blurred(maps: Tensor, short: Tensor) -> tuple[Tensor, Tensor]:
    """Blur by (1, 2, 1) / 4 along both axes, then keep every other position (Zhang 2019)."""
    line = torch.tensor([0.25, 0.5, 0.25], dtype=maps.dtype, device=maps.device)
    kept = []
    for x in (maps, short):
        filters = torch.outer(line, line).expand(x.shape[1], 1, 3, 3)
        kept.append(F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), filters, stride=2, groups=x.shape[1]))
    return kept[0], kept[1]


def _conv(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, padding_mode="circular", bias=False)


class _Block(nn.Module):
    """Two 3x3 convolutions beside a short cut; ``subsample`` stands between them where the plain net has a stride."""

    def __init__(self, inputs: int, outputs: int, subsample: Subsample | None) -> None:
        super().__init__()
        self.first = nn.Sequential(_conv(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))
        self.second = nn.Sequential(_conv(outputs, outputs), nn.BatchNorm2d(outputs))
        self.short = nn.Sequential()
        if inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.subsample = subsample

    def forward(self, images: Tensor) -> Tensor:
        maps = self.first(images)
        if self.subsample:
            maps, images = self.subsample(maps, images)
        return torch.relu(self.second(maps) + self.short(images))


def _resnet20(subsample: Subsample) -> list[nn.Module]:
    layers: list[nn.Module] = [_conv(3, 16), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    channels = 16
    for width in (16, 32, 64):
        for block in range(3):
            layers.append(_Block(channels, width, subsample if width > 16 and not block else None))
            channels = width
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]


class PolyphaseResNet20(nn.Sequential):
    """ResNet-20 with adaptive polyphase sampling: 272,474 parameters."""

    def __init__(self) -> None:
        super().__init__(*_resnet20(polyphase))


class BlurredResNet20(nn.Sequential):
    """ResNet-20 that blurs before it subsamples (anti-aliased, BlurPool): 272,474 parameters."""

    def __init__(self) -> None:
        super().__init__(*_resnet20(blurred))
