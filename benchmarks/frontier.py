"""Choices of networks: accuracy on held-out training photos against cost."""

from __future__ import annotations

import copy
import math
import sys

import torch
from timing import Rows, milliseconds, take_turns

import unshift
from unshift.classifiers import load as load_classifier
from unshift.coordinates import Ring
from unshift.data import dataset
from unshift.network import CircularFilter
from unshift.training.recipes import RECIPES

# Local channels, line channels, local kernel, line kernel, activation. The first is the preset of version 0.1.
CANDIDATES = [
    ((16, 16), (32, 32, 1), 5, 9, "relu"),
    ((24,), (64, 64, 1), 3, 9, "relu"),
    ((16,), (32, 32, 1), 3, 9, "relu"),
    ((8, 16), (48, 48, 1), 3, 9, "relu"),
    ((12,), (32, 32, 1), 3, 9, "abs"),
    ((16,), (32, 32, 1), 3, 9, "abs"),
    ((24,), (32, 32, 1), 3, 9, "abs"),
    ((32,), (32, 32, 1), 3, 9, "abs"),
]
EPOCHS = 5


def frontier(quick: bool) -> Rows:
    """Candidates for the preset ``seam``: CIFAR-10, 18,000 training photos, five epochs, 2,000 held out."""
    images = dataset("cifar10", "train").images[: 640 if quick else 20_000]
    photos, classifier = torch.rand(64, 3, 32, 32), load_classifier("resnet20-cifar10-plain").eval()
    rows = []
    for local, lines, kernel, taps, activation in CANDIDATES[: 2 if quick else None]:
        torch.manual_seed(0)
        net = unshift.ShiftEstimator(
            3,
            channels=local,
            kernel_size=(kernel, kernel),
            bias=True,
            activation=activation,
            line_channels=lines,
            line_kernel_size=(taps, taps),
        )
        for layer in net.modules():  # as in the preset: no response to brightness at first
            if isinstance(layer, CircularFilter):
                layer.weight.data -= layer.weight.data.mean(tuple(range(2, layer.weight.ndim)), keepdim=True)
        recipe = {**RECIPES["seam"], "epochs": 1 if quick else EPOCHS}
        augment = ["mirror", "windows", "colour"]
        fitted = unshift.fit(
            images, copy.deepcopy(net), validation=0.1, augment=augment, drop_unusable=True, progress=False, **recipe
        )
        with torch.no_grad():
            contenders = {"restore": lambda: fitted(photos), "classify": lambda: classifier(photos)}  # noqa: B023
            found = take_turns(contenders, 3 if quick else 15)
        work = [math.prod(layer.weight.shape) for layer in net.modules() if isinstance(layer, CircularFilter)]
        depth = len(local)
        rows.append(
            {
                "local channels": ", ".join(map(str, local)),
                "kernel": kernel,
                "line channels": ", ".join(map(str, lines)),
                "activation": activation,
                "multiply-adds a photo": f"{1024 * sum(work[:depth]) + 32 * sum(work[depth:]):,}",
                "exact, held out": f"{100 * fitted.metadata['validation']['exact']:.2f}%",
                "restore 64, ms": milliseconds(found["restore"]),
                "of ResNet-20": f"{100 * found['restore'][1] / found['classify'][1]:.1f}%",
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


class _Channels(Ring):
    """A ring whose networks see the other axes as channels."""

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> unshift.ShiftEstimator:
        """Return the preset on one axis."""
        return unshift.ShiftEstimator.preset(preset, channels * size[0], [size[1]])


def ring(quick: bool) -> Rows:
    """Networks for a ring, where one axis is circular: the other axes as channels, or as axes of local filters.

    CIFAR-10 with circular columns, preset ``seam``, four epochs on 8,000 training photos, 1,000 held out. As channels,
    a column with all its rows and colours is one position, and all filters are 1-D. As local filters, the first layer
    has 2-D filters and is followed by a mean over the rows.
    """
    photos = dataset("cifar10", "train").images[: 640 if quick else 9000]
    rows = []
    for name, coordinates in (("channels", _Channels()), ("local filters", Ring())):
        settings = {"epochs": 1 if quick else 4, "validation": 64 if quick else 1000, "progress": False}
        fitted = unshift.fit(photos, "seam", coordinates=coordinates, **settings)
        rows.append({"other axes": name, "exact, held out": f"{100 * fitted.metadata['validation']['exact']:.1f}%"})
    return rows
