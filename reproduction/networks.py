"""The classifiers of the items that do not come with ``unshift``, each in the form for small images (first stride 1).

The networks for photos end in a mean over all positions, so that they take images of any size from 16x16. Two of them
are rivals of a restorer: ResNet-20 with adaptive polyphase sampling, and ResNet-20 with blurred subsampling.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from unshift import classifiers

__all__ = ["ARCHITECTURES", "TITLES", "ResNet18", "blurred", "polyphase"]


class Voxels3d(nn.Sequential):
    """Three 3-D convolutions and two linear layers for 1x32x32x32 volumes: 56,570 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv3d(1, 8, 4, stride=2),
            nn.ReLU(),
            nn.Conv3d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.Conv3d(16, 24, 3, stride=1),
            nn.ReLU(),
            nn.MaxPool3d(2, ceil_mode=True),
            nn.Flatten(),
            nn.Linear(24 * 27, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """Return a convolution that keeps the size at stride 1. It has no bias, because a batch norm follows."""
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)


def _head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]


class VGG16(nn.Sequential):
    """Thirteen 3x3 convolutions with batch norm and one linear layer (Simonyan 2015): 14,724,042 parameters."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        channels = 3
        for block, (width, depth) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]):
            if block:
                layers.append(nn.MaxPool2d(2))
            for _ in range(depth):
                layers += [_conv(channels, width), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                channels = width
        super().__init__(*layers, *_head(channels))


class ResNet18(classifiers.ResNet):
    """Four stages of two basic blocks, 64 to 512 channels (He 2016): 11,173,962 parameters."""

    def __init__(self) -> None:
        super().__init__([64, 128, 256, 512], 2)


class _Grow(nn.Module):
    """A bottleneck that appends ``growth`` channels to its input (Huang 2017)."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            _conv(inputs, 4 * growth, 1),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True),
            _conv(4 * growth, growth),
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([images, self.body(images)], dim=1)


class DenseNetBC100(nn.Sequential):
    """Three dense blocks of 16 layers, growth 12 (Huang 2017, section 4.2): 769,162 parameters."""

    def __init__(self) -> None:
        growth, depth = 12, 16
        channels = 2 * growth
        layers: list[nn.Module] = [_conv(3, channels)]
        for block in range(3):
            if block:
                layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), _conv(channels, channels // 2, 1)]
                layers.append(nn.AvgPool2d(2))
                channels //= 2
            for _ in range(depth):
                layers.append(_Grow(channels, growth))
                channels += growth
        super().__init__(*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True), *_head(channels))


class _Inverted(nn.Module):
    """Widen by a 1x1 convolution, filter each channel by itself, narrow by a 1x1 convolution (Sandler 2018)."""

    def __init__(self, inputs: int, outputs: int, widen: int, stride: int) -> None:
        super().__init__()
        inner = widen * inputs
        layers: list[nn.Module] = []
        if widen != 1:
            layers += [_conv(inputs, inner, 1), nn.BatchNorm2d(inner), nn.ReLU6(inplace=True)]
        layers += [_conv(inner, inner, 3, stride, groups=inner), nn.BatchNorm2d(inner), nn.ReLU6(inplace=True)]
        layers += [_conv(inner, outputs, 1), nn.BatchNorm2d(outputs)]
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.body(images)
        return images + out if self.residual else out


class MobileNetV2(nn.Sequential):
    """Inverted residuals of width 1.0 (Sandler 2018) without the first two strides: 2,236,682 parameters."""

    def __init__(self) -> None:
        layers: list[nn.Module] = [_conv(3, 32), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)]
        channels = 32
        for width, depth, stride in (
            (16, 1, 1),
            (24, 2, 1),
            (32, 3, 2),
            (64, 4, 2),
            (96, 3, 1),
            (160, 3, 2),
            (320, 1, 1),
        ):
            for block in range(depth):
                layers.append(_Inverted(channels, width, 1 if width == 16 else 6, 1 if block else stride))
                channels = width
        layers += [_conv(channels, 1280, 1), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True)]
        super().__init__(*layers, *_head(1280))


# --- ResNet-20 made robust to shifts: convolutions are circular, and every stride is a choice of positions -----------

Subsample = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From the maps of a block and of its shortcut to every other position of both, the same positions."""


def polyphase(maps: Tensor, short: Tensor) -> tuple[Tensor, Tensor]:
    """Keep, of the four grids of every other position, the grid where ``maps`` has the largest norm.

    A shift permutes the four grids, so the choice moves with the image (Chaman and Dokmanic 2021), up to rounding: the
    norms are sums of floats.
    """
    squares = maps.square().sum(1)
    grids = [squares[:, row::2, column::2].sum((1, 2)) for row in range(2) for column in range(2)]
    best = torch.stack(grids, 1).argmax(1)
    rows, columns = (
        torch.arange(0, n, 2, device=maps.device) + first[:, None]
        for n, first in zip(maps.shape[2:], (best // 2, best % 2), strict=True)
    )
    every = torch.arange(len(maps), device=maps.device)[:, None, None]
    kept = [x.movedim(1, -1)[every, rows[:, :, None], columns[:, None]].movedim(-1, 1) for x in (maps, short)]
    return kept[0], kept[1]


def blurred(maps: Tensor, short: Tensor) -> tuple[Tensor, Tensor]:
    """Blur by (1, 2, 1) / 4 along both axes, then keep every other position (Zhang 2019)."""
    return _half_blurred(_half_blurred(maps, 2), 3), _half_blurred(_half_blurred(short, 2), 3)


def _half_blurred(maps: Tensor, axis: int) -> Tensor:
    """Return the even positions of a blur along one axis: each is mixed with the odd ones on both sides."""
    even, odd = (maps[(slice(None),) * axis + (slice(first, None, 2),)] for first in range(2))
    return 0.5 * even + 0.25 * (odd + odd.roll(1, axis))


class _Subsampled(nn.Module):
    """A block of ResNet-20 whose strides are replaced by a choice of positions."""

    def __init__(self, block: nn.Module, subsample: Subsample) -> None:
        super().__init__()
        self.body, self.short, self.subsample = block.body, block.short, subsample
        self.body[0].stride = self.short[0].stride = (1, 1)

    def forward(self, images: Tensor) -> Tensor:
        maps, images = self.subsample(self.body[:3](images), images)
        return torch.relu(self.body[3:](maps) + self.short(images))


class _RobustResNet20(classifiers.ResNet20):
    def __init__(self, subsample: Subsample) -> None:
        super().__init__()
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                layer.padding_mode = "circular"
        for at, block in enumerate(self):
            if len(getattr(block, "short", ())):
                self[at] = _Subsampled(block, subsample)


class PolyphaseResNet20(_RobustResNet20):
    """ResNet-20 with adaptive polyphase sampling: 272,474 parameters."""

    def __init__(self) -> None:
        super().__init__(polyphase)


class BlurredResNet20(_RobustResNet20):
    """ResNet-20 that blurs before it subsamples (anti-aliased, BlurPool): 272,474 parameters."""

    def __init__(self) -> None:
        super().__init__(blurred)


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    **classifiers.ARCHITECTURES,
    "voxels3d": Voxels3d,
    "vgg16": VGG16,
    "resnet18": ResNet18,
    "densenet-bc100": DenseNetBC100,
    "mobilenet-v2": MobileNetV2,
    "resnet20-polyphase": PolyphaseResNet20,
    "resnet20-blurred": BlurredResNet20,
}
"""Constructors by the name that a weights file stores."""

TITLES = {
    "lenet5": "LeNet-5",
    "voxels3d": "3-D conv net",
    "vgg16": "VGG-16",
    "resnet18": "ResNet-18",
    "densenet-bc100": "DenseNet-BC-100",
    "mobilenet-v2": "MobileNet v2",
    "resnet20": "ResNet-20",
    "resnet20-polyphase": "ResNet-20, polyphase",
    "resnet20-blurred": "ResNet-20, blurred",
}
"""Architectures as papers spell them."""
