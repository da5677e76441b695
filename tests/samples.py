"""Shared by several test files: images that are hard to restore, quick networks, and the check of exactness."""

from __future__ import annotations

import functools
import math
import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unshift import Chain, Restorer, ShiftEstimator, apply, quantise
from unshift.coordinates import Angles, Centre, Polar, Poses, Ring, Scene, Turns
from unshift.exact import JudgedEstimator
from unshift.pose_network import PoseEstimator
from unshift.shifts import all_shifts

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DTYPES = (torch.uint8, *FLOATS)
PRESETS = ("paper", "dense", "lines", "seam")
CLAMPED = 0.5
"""The networks are calibrated on pixels up to this value: brighter ones become the same integer."""


def blobs(count: int, channels: int, size: tuple[int, ...], seed: int = 0) -> Tensor:
    """Return MNIST-like images: a few overlapping blobs near the centre, exact zeros around them."""
    generator = torch.Generator().manual_seed(seed)
    grid = torch.stack(torch.meshgrid(*[torch.arange(n) / max(1, n) for n in size], indexing="ij"))
    total = torch.zeros(count, channels, *size)
    for _ in range(3):
        middle = 0.5 + 0.2 * torch.randn(count, channels, len(size), generator=generator)
        distance = (grid - middle.view(count, channels, len(size), *[1] * len(size))).square().sum(2)
        total += (0.03 - distance).clamp(min=0)
    return CLAMPED * total / total.max().clamp(min=1e-6)


def hard_images(channels: int, size: tuple[int, ...], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Return one ``(channel, *size)`` image of each hard kind."""
    generator = torch.Generator().manual_seed(1)
    index = torch.meshgrid(*[torch.arange(n) for n in size], indexing="ij")
    tint = (torch.arange(channels).view(-1, *[1] * len(size)) + 1) / (2 * channels)
    one_pixel = torch.zeros(math.prod(size))
    one_pixel[len(one_pixel) // 3] = 1
    brightness = torch.tensor([0.625, 0.75, 1.0])[torch.randint(0, 3, (channels, *size), generator=generator)]
    images = {
        "random": torch.rand(channels, *size, generator=generator),
        "blob": blobs(1, channels, size)[0],
        "black": torch.zeros(channels, *size),
        "constant": tint.expand(channels, *size),
        "stripes": tint * (index[-1] % 2),
        "checkerboard": tint * (sum(index) % 2),
        "uneven": tint * ((index[0] % 2 == 0) & (index[-1] % 3 == 0)),
        "one_pixel": tint * one_pixel.view(size),
        # All pixels of these are clamped, or every second one: scores tie, but the images differ.
        "tied": brightness,
        "tied_stripes": brightness * (index[-1] % 2),
    }
    if dtype == torch.uint8:
        return {name: (255 * image).round().to(dtype) for name, image in images.items()}
    images["signed_zeros"] = torch.zeros_like(brightness).copysign(brightness - 0.7)
    return {name: image.to(dtype) for name, image in images.items()}


def sequence(length: int, seed: int, letters: str = "ACGT") -> str:
    """Return random letters."""
    return "".join(random.Random(seed).choices(letters, k=length))


def train(estimator: ShiftEstimator, images: Tensor, steps: int = 8) -> None:
    """Train for a few steps: N-way cross-entropy, target always position 0."""
    optimiser = torch.optim.Adam(estimator.parameters(), lr=0.01)
    target = torch.zeros(len(images), dtype=torch.int64)
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(estimator(images).flatten(1), target).backward()
        optimiser.step()


@functools.cache
def make_estimator(preset: str, channels: int, size: tuple[int, ...], trained: bool = False) -> ShiftEstimator:
    torch.manual_seed(0)
    estimator = ShiftEstimator.preset(preset, channels, size)
    if trained:
        train(estimator, blobs(16, channels, size))
    return estimator


@functools.cache
def make_restorer(preset: str, channels: int, size: tuple[int, ...], trained: bool = False) -> Restorer:
    return Restorer(quantise(make_estimator(preset, channels, size, trained), blobs(16, channels, size)))


def untrained(coordinates, channels, size, preset="paper"):
    torch.manual_seed(0)
    images = blobs(8, channels, size) + 0.1 * torch.rand(8, channels, *size)
    estimator = coordinates.network(preset, channels, size)
    return Restorer(quantise(estimator, torch.cat(list(coordinates.canvases(images)))), coordinates=coordinates)


KINDS = {
    "mirror": (Turns("mirror"), 1, (5, 6)),
    "half": (Turns("half"), 1, (5, 6)),
    "scene": (Scene((3, 4)), 1, (5, 6)),
    "quarter": (Turns("quarter"), 1, (6, 6)),
    "flips": (Turns("flips"), 2, (5, 5)),
    "strand": (Turns("strand"), 4, (9,)),
    "cube": (Turns("cube"), 1, (3, 3, 3)),
    "ring": (Ring(), 1, (3, 8)),
    "ring, local filters": (Ring(0), 2, (8, 4)),
    "centre, corners": (Centre(), 1, (6, 6)),
    "centre, pixels": (Centre(), 1, (5, 5)),
    "poses": (Poses("quarter"), 1, (6, 6)),
    "poses, reduced": (Poses("half", reduce=2), 2, (7, 8)),
    "poses, strand": (Poses("strand"), 4, (9,)),
    "angles": (Angles(6, 8), 1, (6, 6)),
    "angles, reduced": (Angles(9, 8, reduce=2), 1, (9, 9)),
    "scene, judged": (Scene((3, 4)), 1, (5, 6)),
    "chain": (None, 1, (6, 6)),
}


@functools.cache
def kind_of(name):
    """A restorer of each kind, its channels and its size."""
    coordinates, channels, size = KINDS[name]
    if name == "chain":
        centre, polar = Centre(), Polar(6, angles=8, radii=3, ratio=None, refine=True)
        return Chain(untrained(centre, 1, size), untrained(polar, 1, size, "dense")), channels, size
    if name == "scene, judged":
        return Restorer(make_judged(channels, size, coordinates.window), coordinates=coordinates), channels, size
    preset = {"ring": "paper", "ring, local filters": "seam"}.get(name, "evidence" if coordinates.whole else "dense")
    return untrained(coordinates, channels, size, preset), channels, size


@functools.cache
def make_judged(
    channels: int, size: tuple[int, ...], window: tuple[int, ...], bits: int = 10, sum_bits: int = 24
) -> JudgedEstimator:
    """Return a network of two stages, not trained: three proposals, two pixels apart."""
    torch.manual_seed(0)
    first = ShiftEstimator(channels, channels=(4, 1), kernel_size=(3, 3), bias=True)
    judge = PoseEstimator(channels, channels=(4,), kernel_size=2, stride=1, size=window)
    images, windows = blobs(16, channels, size), blobs(16, channels, window)
    parts: Any = [quantise(net, x, bits=bits, sum_bits=sum_bits) for net, x in ((first, images), (judge, windows))]
    return JudgedEstimator.of(*parts, count=3, radius=2)


def bits(images: Tensor) -> Tensor:
    """Return the bit patterns of pixels, in which 0.0 differs from -0.0."""
    if not images.is_floating_point():
        return images
    widths = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return images.contiguous().view(widths[images.element_size()])


def candidates(restorer: Restorer, image: Tensor) -> list[Tensor]:
    """Return the distinct restored images, bit for bit, of all positions with the highest score."""
    scores = restorer.scorer(image[None])[0]
    shifts = (scores == scores.max()).nonzero()
    restored = apply(image.expand(len(shifts), *image.shape), -shifts)
    return list(torch.unique(bits(restored), dim=0))


def assert_exact(restorer: Restorer, image: Tensor, batch_size: int = 512) -> None:
    """Assert that every shift of ``image`` gives the same restored image, confidence and tie, bit for bit."""
    wanted = restorer(image[None])
    still = restorer.estimate(image[None])
    for shifts in all_shifts(image.shape[1:]).split(batch_size):
        moved = apply(image.expand(len(shifts), *image.shape), shifts)
        found = restorer.estimate(moved)
        restored = restorer.undo(moved, found)
        assert torch.equal(bits(restored), bits(wanted).expand_as(restored))
        assert torch.equal(found.confidence, still.confidence.expand_as(found.confidence))
        assert torch.equal(found.tied, still.tied.expand_as(found.tied))


class Positional(nn.Module):
    """A scorer that is not equivariant: its scores at an edge are lower, as with zero padding."""

    def __init__(self, scorer):
        super().__init__()
        self.scorer = scorer

    def forward(self, images):
        scores = self.scorer(images)
        scores[..., 0] -= 2**20
        return scores
