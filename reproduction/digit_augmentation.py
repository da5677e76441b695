"""Augmentations of digits for the shipped restorers: slight deformations, rotations and offsets."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.coordinates import Pose
from unshift.data import to_float

__all__ = ["any_angle", "jiggle", "off_centre", "turned_off_centre"]

MASS = 0.57
"""MNIST centres digits by mass; at 32x32 the centre of mass is this many pixels below and right of the middle."""


def deform(
    images: Tensor,
    generator: torch.Generator,
    *,
    degrees: Tensor,
    offset: Tensor,
    strength: float = 0.0,
) -> Tensor:
    """Shear and scale each digit at random, rotate it about its mass, and move it, in one bilinear step.

    Args:
        images: Upright digits.
        generator: Source of randomness.
        degrees: Counter-clockwise, ``(batch,)``.
        offset: Pixels down and right, ``(batch, 2)``.
        strength: The largest shear, and the largest relative change of scale.
    """
    n, size = len(images), images.shape[-1]

    def draw() -> Tensor:
        return (2 * torch.rand(n, generator=generator) - 1) * strength

    angle = torch.deg2rad(degrees.float())
    affine = torch.stack([1 + draw(), draw(), torch.zeros(n), 1 + draw()], 1).view(n, 2, 2)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(n, 2, 2)
    both = affine @ turn
    shift = (MASS - (both @ offset.flip(1)[:, :, None])) * 2 / size
    grid = F.affine_grid(torch.cat([both, shift], 2), list(images.shape), align_corners=False)
    return F.grid_sample(to_float(images), grid, align_corners=False)


def jiggle(images: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate, shear and scale half of the batches a little, like another handwriting."""
    if float(torch.rand(1, generator=generator)) < 0.5:
        return images

    def draw(most: float) -> Tensor:
        return (2 * torch.rand(len(images), generator=generator) - 1) * most

    angle, shear, scale = draw(math.radians(8)), draw(0.1), 1 + draw(0.08)
    rows = torch.stack([angle.cos(), shear - angle.sin(), angle.sin(), angle.cos()], 1).view(-1, 2, 2)
    affine = F.pad(rows / scale.view(-1, 1, 1), (0, 1))
    return F.grid_sample(images, F.affine_grid(affine, list(images.shape), align_corners=False), align_corners=False)


def any_angle(images: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate each digit by any angle about its mass, at most half a pixel off, so that its centre stays in place."""
    degrees = 360 * torch.rand(len(images), generator=generator)
    return deform(images, generator, degrees=degrees, offset=torch.rand(len(images), 2, generator=generator) - 0.5)


def off_centre(images: Tensor, generator: torch.Generator) -> Tensor:
    """Deform each digit a little, like another handwriting, with its centre off by about a pixel, as after centring."""
    n = len(images)
    degrees = 16 * torch.rand(n, generator=generator) - 8
    offset = 0.35 * torch.randn(n, 2, generator=generator) + torch.rand(n, 2, generator=generator) - 0.5
    return deform(images, generator, degrees=degrees, offset=offset, strength=0.05)


def turned_off_centre(images: Tensor, generator: torch.Generator) -> tuple[Tensor, Pose]:
    """Rotate each digit by any angle with its centre off by about a pixel, as after centring; return the angle too."""
    n = len(images)
    degrees = 360 * torch.rand(n, generator=generator)
    offset = 0.35 * torch.randn(n, 2, generator=generator) + torch.rand(n, 2, generator=generator) - 0.5
    moved = deform(images, generator, degrees=degrees, offset=offset, strength=0.05)
    return moved, Pose(torch.zeros(n, 2, dtype=torch.int64), angle=degrees.double())
