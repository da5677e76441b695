"""What is done to digits while a shipped restorer learns: bent as if another hand had written them, turned, moved."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.coordinates import Pose
from unshift.data import to_float

__all__ = ["any_angle", "jiggle", "turned_off_centre"]

MASS = 0.57
"""MNIST centres digits by mass, and at 32x32 that lies this many pixels below and right of the image's middle."""


def bend(
    images: Tensor,
    generator: torch.Generator,
    *,
    degrees: Tensor | float = 0.0,
    off: Tensor | None = None,
    shear: float = 0.0,
    scale: float = 0.0,
    about: float = 0.0,
) -> Tensor:
    """Shear and scale each digit a little at random, turn it and move it, in one bilinear step.

    Args:
        images: Upright digits.
        generator: Where chance comes from.
        degrees: Counter-clockwise.
        off: Pixels down and right, ``(batch, 2)``.
        shear: The largest shear.
        scale: The largest change of scale, as a share.
        about: Pixels down and right of the middle of what is turned about, and comes to the middle.
    """
    n, size = len(images), images.shape[-1]

    def draw(most: float) -> Tensor:
        return (2 * torch.rand(n, generator=generator) - 1) * most

    angle = torch.deg2rad(torch.as_tensor(degrees).float().expand(n))
    bent = torch.stack([1 + draw(scale), draw(shear), torch.zeros(n), 1 + draw(scale)], 1).view(n, 2, 2)
    turned = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(n, 2, 2)
    both = bent @ turned
    moved = torch.zeros(n, 2) if off is None else off.flip(1)
    offset = (about - (both @ moved[:, :, None])) * 2 / size
    grid = F.affine_grid(torch.cat([both, offset], 2), list(images.shape), align_corners=False)
    return F.grid_sample(to_float(images), grid, align_corners=False)


def jiggle(images: Tensor, generator: torch.Generator) -> Tensor:
    """Turn, shear and scale half of the batches a little, as if another hand had written the digits."""
    if float(torch.rand(1, generator=generator)) < 0.5:
        return images

    def draw(most: float) -> Tensor:
        return (2 * torch.rand(len(images), generator=generator) - 1) * most

    angle, shear, scale = draw(math.radians(8)), draw(0.1), 1 + draw(0.08)
    rows = torch.stack([angle.cos(), shear - angle.sin(), angle.sin(), angle.cos()], 1).view(-1, 2, 2)
    affine = F.pad(rows / scale.view(-1, 1, 1), (0, 1))
    return F.grid_sample(images, F.affine_grid(affine, list(images.shape), align_corners=False), align_corners=False)


def any_angle(images: Tensor, generator: torch.Generator) -> Tensor:
    """Turn each digit by any angle about its mass, at most half a pixel off: its centre stays where it is."""
    degrees = 360 * torch.rand(len(images), generator=generator)
    return bend(
        images, generator, degrees=degrees, off=torch.rand(len(images), 2, generator=generator) - 0.5, about=MASS
    )


def turned_off_centre(images: Tensor, generator: torch.Generator) -> tuple[Tensor, Pose]:
    """Turn each digit by any angle with its centre off by about a pixel, as it will be; tell the angle."""
    n = len(images)
    degrees = 360 * torch.rand(n, generator=generator)
    off = 0.35 * torch.randn(n, 2, generator=generator) + torch.rand(n, 2, generator=generator) - 0.5
    moved = bend(images, generator, degrees=degrees, off=off, shear=0.05, scale=0.05, about=MASS)
    return moved, Pose(torch.zeros(n, 2, dtype=torch.int64), angle=degrees.double())
