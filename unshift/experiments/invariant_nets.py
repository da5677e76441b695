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
    squares = maps.square().sum(1)
    grids = [squares[:, row::2, column::2].sum((1, 2)) for row in range(2) for column in range(2)]
    best = torch.stack(grids, 1).argmax(1)
    rows, columns = (
        torch.arange(0, n, 2, device=maps.device) + first[:, None]
        for n, first in zip(maps.shape[2:], (best // 2, best % 2), strict=True)
    )
    every = torch.arange(len(maps), device=maps.device)[:, None, None]
    kept: list[Tensor] = [
        x.movedim(1, -1)[every, rows[:, :, None], columns[:, None]].movedim(-1, 1) for x in (maps, short)
    ]
    return kept[0], kept[1]


def blurred(maps: Tensor, short: Tensor) -> tuple[Tensor, Tensor]:
    """Blur by (1, 2, 1) / 4 along both axes, then keep every other position (Zhang 2019)."""
    return _half_blurred(_half_blurred(maps, 2), 3), _half_blurred(_half_blurred(short, 2), 3)


def _half_blurred(maps: Tensor, axis: int) -> Tensor:
    """Return what is kept of a blur along one axis: the even positions, each with the odd ones on both sides of it."""
    even, odd = (maps[(slice(None),) * axis + (slice(first, None, 2),)] for first in range(2))
    return 0.5 * even + 0.25 * (odd + odd.roll(1, axis))


class _CircularConv(nn.Conv2d):
    """A 3x3 convolution of an image that goes on at its other side.

    It does what ``padding_mode="circular"`` does, without a change of the memory's layout: a quarter faster.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        for axis in (2, 3):
            last, first = images.narrow(axis, images.shape[axis] - 1, 1), images.narrow(axis, 0, 1)
            images = torch.cat([last, images, first], axis)
        return F.conv2d(images, self.weight)


class _Block(nn.Module):
    """Two 3x3 convolutions beside a short cut; ``subsample`` stands between them where the plain net has a stride."""

    def __init__(self, inputs: int, outputs: int, subsample: Subsample | None) -> None:
        super().__init__()
        self.first = nn.Sequential(_CircularConv(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))
        self.second = nn.Sequential(_CircularConv(outputs, outputs), nn.BatchNorm2d(outputs))
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
    layers: list[nn.Module] = [_CircularConv(3, 16), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
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
