"""Aperiodic datasets: when a shift can be told at all (Definition 4.2).

Every image is brought to a canonical form, its lexicographically largest circular shift. Two images
are shifts of each other exactly if their canonical forms are equal, and an image is periodic
exactly if two positions both yield it. So one pass and one dictionary answer for all pairs.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unshift.shifts import check_images

__all__ = ["Aperiodicity", "is_aperiodic"]

_BATCH = 4096  # images brought to canonical form at once; bounds the memory, changes no answer


@dataclass(frozen=True)
class Aperiodicity:
    """The answer of :func:`is_aperiodic`; true or false in an ``if``."""

    aperiodic: bool
    reason: str
    pair: tuple[int, int] | None = None
    """The offending images ``(i, j)``; ``i == j`` for a zero or periodic image."""
    shift: tuple[int, ...] | None = None
    """``M`` with ``T^M(X_i) = X_j`` (the channel shift first, where those count)."""
    repeats: tuple[int, ...] = ()
    """Images equal to an earlier one. A dataset is a set, so they are the same element, no offence."""

    def __bool__(self) -> bool:
        return self.aperiodic

    def __str__(self) -> str:
        return f"{'aperiodic' if self.aperiodic else 'not aperiodic'}: {self.reason}"


def is_aperiodic(dataset: Tensor, *, channel_shifts: bool = False) -> Aperiodicity:
    """Decide whether ``dataset`` is aperiodic: Definition 4.2 (Aperiodic dataset).

    It must not hold the zero image, an image that a shift leaves unchanged, or two images that are
    shifts of each other. ``dataset`` is ``(image, channel, *spatial)``, of any real type; values are
    compared, never computed with. By default only spatial shifts count, which is what the proofs
    use; ``channel_shifts=True`` lets ``M`` also rotate the channels, as the paper writes it.

    >>> print(is_aperiodic(torch.tensor([[[1, 2, 3]], [[3, 1, 2]]])))
    not aperiodic: image 1 is image 0 shifted by (1,)

    Args:
        dataset: Images ``(image, channel, *spatial)`` of any real type.
        channel_shifts: Whether a shift may also rotate the channels.

    Returns:
        The answer. It is true if the dataset is aperiodic, and else names the images.

    Raises:
        ValueError: If ``dataset`` is not of that shape, or holds NaN.
    """
    check_images(dataset)
    if dataset.is_floating_point() and dataset.isnan().any():
        raise ValueError("dataset must not hold NaN: it equals nothing, not even itself")
    images = _comparable(dataset)
    if channel_shifts:
        images = images.unsqueeze(1)
    size = tuple(images.shape[2:])
    seen: dict[bytes, tuple[int, int]] = {}
    repeats: list[int] = []
    for start in range(0, len(images), _BATCH):
        batch = images[start : start + _BATCH]
        zero = (batch.flatten(1) == 0).all(dim=1)
        best = _best_shifts(batch)
        place = best.int().argmax(dim=1)
        canonical = _taken_back(batch, place).numpy()
        ties = best.sum(dim=1).tolist()
        for i, (here, form) in enumerate(zip(place.tolist(), canonical, strict=True)):
            index = start + i
            if zero[i]:
                return Aperiodicity(False, f"image {index} is the zero image", (index, index))
            if ties[i] > 1:
                other = int(best[i].nonzero()[1])
                shift = _difference(other, here, size)
                return Aperiodicity(False, f"image {index} is itself shifted by {shift}", (index, index), shift)
            first, there = seen.setdefault(form.tobytes(), (index, here))
            if first == index:
                continue
            shift = _difference(here, there, size)
            if any(shift):
                reason = f"image {index} is image {first} shifted by {shift}"
                return Aperiodicity(False, reason, (first, index), shift)
            repeats.append(index)
    reason = f"{len(seen)} images, no two of them shifts of each other"
    return Aperiodicity(True, reason, repeats=tuple(repeats))


def _comparable(dataset: Tensor) -> Tensor:
    """Return the images in a type that compares on every build and is one bit pattern per value."""
    dataset = dataset.detach().cpu()
    if dataset.is_floating_point():
        # -0.0 equals 0.0 but has other bits; adding zero makes it 0.0. Widening is exact.
        return dataset.double() + 0.0
    return dataset if dataset.dtype == torch.uint8 else dataset.to(torch.int64)


def _best_shifts(images: Tensor) -> Tensor:
    """Return ``(image, N)``: where to start reading to get the lexicographically largest image.

    Pixels are read in one fixed order from every start at once, and the starts that read less than
    the best are dropped. An image with one start left is done; ties to the end are periods.
    """
    size = images.shape[2:]
    axes = tuple(range(1, len(size) + 1))
    # Not finfo.min: a start that reads -inf would then lose to those that are out already.
    lowest = -math.inf if images.is_floating_point() else torch.iinfo(images.dtype).min
    result = torch.ones(len(images), math.prod(size), dtype=torch.bool)
    todo, alive = torch.arange(len(images)), torch.ones(len(images), *size, dtype=torch.bool)
    for channel in range(images.shape[1]):
        plane = images[todo, channel]
        for offset in itertools.product(*map(range, size)):
            read = plane.roll([-o for o in offset], axes)
            best = read.masked_fill(~alive, lowest).flatten(1).amax(dim=1)
            alive &= read == best.reshape(-1, *[1] * len(size))
            tied = alive.flatten(1).sum(dim=1) > 1
            if 2 * int(tied.sum()) <= len(tied):  # dropping the finished copies the rest: only when it pays
                result[todo] = alive.flatten(1)
                todo, alive, plane = todo[tied], alive[tied], plane[tied]
            if not len(todo):
                return result
    result[todo] = alive.flatten(1)
    return result


def _taken_back(images: Tensor, place: Tensor) -> Tensor:
    """Return ``T^-I`` of each image, for its own flat position ``I``."""
    # Not shifts.undo: with channel shifts there may be four axes, and gather copies an index per pixel.
    out = torch.empty_like(images)
    axes = tuple(range(1, images.ndim - 1))
    for i, index in enumerate(torch.stack(torch.unravel_index(place, images.shape[2:]), dim=1).tolist()):
        out[i] = images[i].roll([-o for o in index], axes)
    return out


def _difference(to: int, start: int, size: tuple[int, ...]) -> tuple[int, ...]:
    ends = [torch.unravel_index(torch.tensor(place), size) for place in (to, start)]
    return tuple(int(a - b) % n for a, b, n in zip(*ends, size, strict=True))
