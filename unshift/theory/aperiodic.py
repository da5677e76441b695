"""Aperiodic datasets, whose shifts can be identified (Definition 4.2).

Each image is reduced to a canonical form, its lexicographically largest circular shift. Two images are shifts of each
other exactly if their canonical forms are equal, and an image is periodic exactly if two positions yield that form. So
one pass with a dictionary replaces the comparison of all pairs.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unshift.shifts import check_images, unravel

__all__ = ["Aperiodicity", "is_aperiodic"]

_BATCH = 4096
"""Images per batch. Bounds the memory; does not change the result."""


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
    other. Values are compared, never computed with. By default only spatial shifts count, which is what the proofs
    use; with ``channel_shifts=True`` the shift ``M`` may also rotate the channels, as the paper writes it.

    >>> print(is_aperiodic(torch.tensor([[[1, 2, 3]], [[3, 1, 2]]])))
    not aperiodic: image 1 is image 0 shifted by (1,)

    Args:
        dataset: Images ``(image, channel, *spatial)`` of any real type.
        channel_shifts: Whether a shift may also rotate the channels.

    Raises:
        ValueError: If ``dataset`` does not have that shape, or contains NaN.
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
    size = tuple(images.shape[2:])
    seen: dict[bytes, tuple[int, int]] = {}
    repeats: list[int] = []
    for start in range(0, len(images), _BATCH):
        batch = images[start : start + _BATCH]
        zero = (batch.flatten(1) == 0).all(dim=1)
        starts = _canonical_starts(batch)
        places = starts.int().argmax(dim=1)
        canonical = _shift_back(batch, places).numpy()
        ties = starts.sum(dim=1).tolist()
        for i, (place, form) in enumerate(zip(places.tolist(), canonical, strict=True)):
            index = start + i
            if zero[i]:
                return Aperiodicity(False, f"image {index} is the zero image", (index, index))
            if ties[i] > 1:
                shift = _difference(int(starts[i].nonzero()[1]), place, size)
                return Aperiodicity(False, f"image {index} is itself shifted by {shift}", (index, index), shift)
            first, first_place = seen.setdefault(form.tobytes(), (index, place))
            shift = _difference(place, first_place, size)
            if any(shift):
                reason = f"image {index} is image {first} shifted by {shift}"
                return Aperiodicity(False, reason, (first, index), shift)
            if first != index:
                repeats.append(index)
    reason = f"{len(seen)} images, no two of them shifts of each other"
    return Aperiodicity(True, reason, repeats=tuple(repeats))


def _canonical_starts(images: Tensor) -> Tensor:
    """Return ``(image, N)``: the positions from which reading yields the lexicographically largest image.

    Pixels are read in a fixed order from all starts at once, and starts that read less than the largest are dropped. An
    image with a single start left is done; several starts at the end mean a period.
    """
    size = images.shape[2:]
    axes = tuple(range(1, len(size) + 1))
    # Not finfo.min: a start that reads -inf would then lose to those already dropped.
    lowest = -math.inf if images.is_floating_point() else torch.iinfo(images.dtype).min
    result = torch.ones(len(images), math.prod(size), dtype=torch.bool)
    todo, alive = torch.arange(len(images)), torch.ones(len(images), *size, dtype=torch.bool)
    for channel in range(images.shape[1]):
        plane = images[todo, channel]
        for offset in itertools.product(*map(range, size)):
            read = plane.roll([-o for o in offset], axes)
            largest = read.masked_fill(~alive, lowest).flatten(1).amax(dim=1)
            alive &= read == largest.reshape(-1, *[1] * len(size))
            tied = alive.flatten(1).sum(dim=1) > 1
            if 2 * int(tied.sum()) <= len(tied):  # dropping finished images copies the rest: only if it pays
                result[todo] = alive.flatten(1)
                todo, alive, plane = todo[tied], alive[tied], plane[tied]
            if not len(todo):
                return result
    result[todo] = alive.flatten(1)
    return result


def _shift_back(images: Tensor, places: Tensor) -> Tensor:
    """Return each image shifted so that its flat position moves to 0."""
    # Not shifts.undo: with channel shifts there may be four axes.
    axes = list(range(1, images.ndim - 1))
    rows = unravel(places, tuple(images.shape[2:])).neg().tolist()
    return torch.stack([image.roll(row, axes) for image, row in zip(images, rows, strict=True)])


def _difference(to: int, start: int, size: tuple[int, ...]) -> tuple[int, ...]:
    ends = unravel(torch.tensor([to, start]), size)
    return tuple(((ends[0] - ends[1]) % torch.tensor(size)).tolist())
