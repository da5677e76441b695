"""Augmentations of digits for the shipped restorers: slight deformations, rotations and offsets."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.coordinates import Pose
from unshift.data import to_float

__all__ = ["any_angle", "off_centre", "turned_off_centre"]

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


def any_angle(images: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate each digit by any angle about its mass, at most half a pixel off, so that its centre stays in place."""
    degrees = 360 * torch.rand(len(images), generator=generator)
    return deform(images, generator, degrees=degrees, offset=torch.rand(len(images), 2, generator=generator) - 0.5)


def off_centre(images: Tensor, generator: torch.Generator) -> Tensor:
    """Deform each digit a little, like another handwriting, with its centre off by about a pixel, as after centring."""
    degrees = 16 * torch.rand(len(images), generator=generator) - 8
    return deform(images, generator, degrees=degrees, offset=_about_a_pixel(images, generator), strength=0.05)


def turned_off_centre(images: Tensor, generator: torch.Generator) -> tuple[Tensor, Pose]:
    """Rotate each digit by any angle with its centre off by about a pixel, as after centring; return the angle too."""
    degrees = 360 * torch.rand(len(images), generator=generator)
    moved = deform(images, generator, degrees=degrees, offset=_about_a_pixel(images, generator), strength=0.05)
    return moved, Pose(torch.zeros(len(images), 2, dtype=torch.int64), angle=degrees.double())


def _about_a_pixel(images: Tensor, generator: torch.Generator) -> Tensor:
    shape = len(images), 2
    return 0.35 * torch.randn(shape, generator=generator) + torch.rand(shape, generator=generator) - 0.5
