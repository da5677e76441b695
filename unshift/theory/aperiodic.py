"""Aperiodic datasets, whose shifts can be identified (Definition 4.2).

Each image is reduced to a canonical form, its lexicographically largest circular shift. Two images are shifts of each
other if and only if their canonical forms are equal, and an image is periodic if and only if two shifts yield this
form. So one pass with a dictionary replaces the comparison of all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unshift.exact import rank_restored
from unshift.shifts import check_images, unravel

BATCH = 4096
"""Images ranked at a time, which bounds the memory."""


@dataclass(frozen=True)
class Aperiodicity:
    """The result of :func:`is_aperiodic`; true or false in an ``if``."""

    aperiodic: bool
    reason: str
    pair: tuple[int, int] | None = None
    """The offending images ``(i, j)``; ``i == j`` for a zero or periodic image."""
    shift: tuple[int, ...] | None = None
    """``M`` with ``T^M(X_i) = X_j`` (the channel shift first, if those count)."""
    repeats: tuple[int, ...] = ()
    """Images equal to an earlier one. They are allowed: a dataset is a set."""

    def __bool__(self) -> bool:
        return self.aperiodic

    def __str__(self) -> str:
        return f"{'aperiodic' if self.aperiodic else 'not aperiodic'}: {self.reason}"


def is_aperiodic(dataset: Tensor, *, channel_shifts: bool = False) -> Aperiodicity:
    """Decide whether ``dataset`` is aperiodic: Definition 4.2 (Aperiodic dataset).

    It must not contain the zero image, an image that a shift leaves unchanged, or two images that are shifts of each
    other. Values are only compared, so nothing is rounded. By default only spatial shifts count, as in the paper's
    proofs; with ``channel_shifts=True`` the shift ``M`` may also rotate the channels, as in its definition.

    >>> print(is_aperiodic(torch.tensor([[[1, 2, 3]], [[3, 1, 2]]])))
    not aperiodic: image 1 is image 0 shifted by (1,)

    Raises a ``ValueError`` if ``dataset`` is not ``(image, channel, *spatial)``, or contains NaN.
    """
    check_images(dataset)
    if dataset.is_floating_point() and dataset.isnan().any():
        raise ValueError("dataset must not contain NaN, which does not equal itself")
    images = dataset.detach().cpu()
    if images.is_floating_point():
        images = images.double() + 0.0  # turns -0.0 into 0.0: equal values have equal bits
    elif images.dtype != torch.uint8:
        images = images.to(torch.int64)
    if channel_shifts:
        images = images.unsqueeze(1)
    size = torch.tensor(images.shape[2:])
    seen: dict[bytes, tuple[int, Tensor]] = {}
    repeats: list[int] = []
    ranked = (rank for part in images.split(BATCH) for rank in rank_restored([part], torch.ones(len(part)).bool()))
    for index, (image, rank) in enumerate(zip(images, ranked, strict=True)):
        if not image.any():
            return Aperiodicity(False, f"image {index} is the zero image", (index, index))
        place, *others = unravel((rank == rank.max()).nonzero().flatten(), tuple(size.tolist()))
        for other in others:
            shift = tuple(((other - place) % size).tolist())
            return Aperiodicity(False, f"image {index} is itself shifted by {shift}", (index, index), shift)
        canonical = image.roll((-place).tolist(), list(range(1, image.ndim)))
        first, its_place = seen.setdefault(canonical.numpy().tobytes(), (index, place))
        shift = tuple(((place - its_place) % size).tolist())
        if any(shift):
            return Aperiodicity(False, f"image {index} is image {first} shifted by {shift}", (first, index), shift)
        repeats += [index] if first != index else []
    reason = f"{len(seen)} images, no two of them shifts of each other"
    return Aperiodicity(True, reason, repeats=tuple(repeats))
