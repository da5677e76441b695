"""The networks of the paper's experiments, each in the form made for small images (a stem of stride 1).

Those for photos end in a mean over all positions (in VGG-16 that is its fifth pooling), so that they take images of
any size from 16x16 up.
:data:`ARCHITECTURES` names them; ``tests/test_classifiers.py`` holds the parameter counts stated here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from unshift.experiments.invariant_nets import BlurredResNet20, PolyphaseResNet20

__all__ = ["ARCHITECTURES"]


class LeNet5(nn.Sequential):
    """LeNet-5 for 1x32x32 images (LeCun 1998), with ReLU and max pooling as in today's use: 61,706 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        )


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
    """Return a convolution that keeps the size at stride 1; without bias, a batch norm follows."""
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


class _Basic(nn.Module):
    """Two 3x3 convolutions beside a short cut (He 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv(inputs, outputs, 3, stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            _conv(outputs, outputs),
            nn.BatchNorm2d(outputs),
        )
        self.short = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.body(images) + self.short(images))


def _resnet(widths: list[int], depth: int) -> list[nn.Module]:
    layers: list[nn.Module] = [_conv(3, widths[0]), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True)]
    channels = widths[0]
    for stage, width in enumerate(widths):
        for block in range(depth):
            layers.append(_Basic(channels, width, 2 if stage and not block else 1))
            channels = width
    return [*layers, *_head(channels)]


class ResNet18(nn.Sequential):
    """Four stages of two basic blocks, 64 to 512 channels (He 2016): 11,173,962 parameters."""

    def __init__(self) -> None:
        super().__init__(*_resnet([64, 128, 256, 512], 2))


class ResNet20(nn.Sequential):
    """Three stages of three basic blocks, 16 to 64 channels (He 2016, section 4.2): 272,474 parameters."""

    def __init__(self) -> None:
        super().__init__(*_resnet([16, 32, 64], 3))


class _Grow(nn.Module):
    """A bottleneck that adds ``growth`` channels to those it was given (Huang 2017)."""

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


def _densenet(growth: int, depths: list[int]) -> list[nn.Module]:
    channels = 2 * growth
    layers: list[nn.Module] = [_conv(3, channels)]
    for block, depth in enumerate(depths):
        if block:
            layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), _conv(channels, channels // 2, 1)]
            layers.append(nn.AvgPool2d(2))
            channels //= 2
        for _ in range(depth):
            layers.append(_Grow(channels, growth))
            channels += growth
    return [*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True), *_head(channels)]


class DenseNet121(nn.Sequential):
    """Four dense blocks of 6, 12, 24 and 16 layers, growth 32 (Huang 2017): 6,956,298 parameters."""

    def __init__(self) -> None:
        super().__init__(*_densenet(32, [6, 12, 24, 16]))


class DenseNetBC100(nn.Sequential):
    """Three dense blocks of 16 layers, growth 12 (Huang 2017, section 4.2): 769,162 parameters."""

    def __init__(self) -> None:
        super().__init__(*_densenet(12, [16, 16, 16]))


class _Inverted(nn.Module):
    """Widen by 1x1, filter each channel by itself, narrow by 1x1 (Sandler 2018)."""

    def __init__(self, inputs: int, outputs: int, widen: int, stride: int) -> None:
        super().__init__()
        inner = widen * inputs
        layers: list[nn.Module] = []
        if widen != 1:
            layers += [_conv(inputs, inner, 1), nn.BatchNorm2d(inner), nn.ReLU6(inplace=True)]
        layers += [_conv(inner, inner, 3, stride, groups=inner), nn.BatchNorm2d(inner), nn.ReLU6(inplace=True)]
        layers += [_conv(inner, outputs, 1), nn.BatchNorm2d(outputs)]
        self.body = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.body(images)
        return images + out if self.adds else out


class MobileNetV2(nn.Sequential):
    """Inverted residuals of width 1.0 (Sandler 2018), the first two strides taken out: 2,236,682 parameters."""

    def __init__(self) -> None:
        layers: list[nn.Module] = [_conv(3, 32), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)]
        channels = 32
        for widen, width, depth, stride in [
            (1, 16, 1, 1),
            (6, 24, 2, 1),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ]:
            for block in range(depth):
                layers.append(_Inverted(channels, width, widen, 1 if block else stride))
                channels = width
        layers += [_conv(channels, 1280, 1), nn.BatchNorm2d(1280), nn.ReLU6(inplace=True)]
        super().__init__(*layers, *_head(1280))


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    "lenet5": LeNet5,
    "voxels3d": Voxels3d,
    "vgg16": VGG16,
    "resnet18": ResNet18,
    "densenet121": DenseNet121,
    "densenet-bc100": DenseNetBC100,
    "mobilenet-v2": MobileNetV2,
    "resnet20": ResNet20,
    "resnet20-polyphase": PolyphaseResNet20,
    "resnet20-blurred": BlurredResNet20,
}
"""Name to constructor, as weights files and the command line spell it."""
