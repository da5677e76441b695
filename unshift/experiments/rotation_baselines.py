"""The simple ways to meet rotation without a restorer: vote over many rotations, or turn by the moments."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.evaluation import predict

__all__ = ["principal_axis", "reference_axis", "vote"]


def vote(classifier: Callable[[Tensor], Tensor], images: Tensor, size: int = 32, turns: int = 36) -> Tensor:
    """Return the class most often predicted over evenly spaced rotations: test-time augmentation.

    Each rotation is sampled at the pixels that the classifier sees, and at no others: the same values as a
    rotated and then resized image, for far less work.

    Args:
        classifier: From images to logits.
        images: Square images ``(batch, channel, n, n)``.
        size: Side of the images that the classifier takes.
        turns: Number of rotations.

    Returns:
        Classes ``(batch,)``; ties go to the lower one.
    """
    verdicts = []
    for turn in range(turns):
        angle = 2 * math.pi * turn / turns
        matrix = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
        shape = [len(images), images.shape[1], size, size]
        grid = F.affine_grid(matrix.expand(len(images), 2, 3), shape, align_corners=False)
        verdicts.append(predict(classifier, F.grid_sample(images, grid, align_corners=False)))
    return torch.stack(verdicts).mode(0).values


def principal_axis(images: Tensor) -> Tensor:
    """Return the direction of each image's longest axis, degrees counter-clockwise from the right, ``(batch,)``.

    From the second moments of its grey values; of the axis' two ends, the one that the third moment is
    positive towards.
    """
    grey = images.double().mean(1)
    size = grey.shape[-1]
    along = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    mass = grey.sum((1, 2)).clamp(min=1e-12)
    right = along[None, None, :] - ((grey * along).sum((1, 2)) / mass)[:, None, None]
    up = -along[None, :, None] - ((grey * -along[:, None]).sum((1, 2)) / mass)[:, None, None]
    across, tall, mixed = ((grey * m).sum((1, 2)) for m in (right * right, up * up, right * up))
    angle = 0.5 * torch.atan2(2 * mixed, across - tall)
    reach = right * angle.cos()[:, None, None] + up * angle.sin()[:, None, None]
    turned = torch.where((grey * reach**3).sum((1, 2)) < 0, math.pi, 0.0)
    return torch.rad2deg(angle + turned)


def reference_axis(images: Tensor) -> float:
    """Return the mean direction (on the circle) of the axes of upright ``images``: where to turn others to."""
    angles = torch.deg2rad(principal_axis(images))
    return math.degrees(math.atan2(float(angles.sin().mean()), float(angles.cos().mean())))
