"""Integers, and their circular correlation in int64."""

from __future__ import annotations

import itertools

import torch


def integers(low, high, *shape):
    return torch.randint(low, high + 1, shape)


def by_integers(images, weight):
    """The circular correlation of int64 tensors, in int64."""
    kernel, axes = weight.shape[2:], tuple(range(2, images.ndim))
    total = torch.zeros(len(images), len(weight), *images.shape[2:], dtype=torch.int64)
    for tap in itertools.product(*map(range, kernel)):
        ahead = images.roll([k // 2 - j for j, k in zip(tap, kernel, strict=True)], axes)
        total += (ahead[:, None] * weight[(..., *tap)].view(*weight.shape[:2], *[1] * len(axes))).sum(2)
    return total
