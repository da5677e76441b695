"""Test whether a module is equivariant and whether a restorer is exact."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from unshift.coordinates import Pose, rows
from unshift.exact import ordered_bits
from unshift.inputs import Images, check_finite, is_list
from unshift.progress import Progress
from unshift.restorer import Chain, Restorer
from unshift.shifts import all_shifts, apply, check_images

__all__ = ["Verification", "assert_equivariant", "both_orders", "equivariance_error", "verify"]


@dataclass(frozen=True)
class Verification:
    """The result of :func:`verify`."""

    images: int
    """Images checked."""
    moves: int
    """Moves checked, over all images."""
    mismatches: int
    """Moves under which the restored image was not the same bit for bit."""
    ties: int
    """Images whose highest score was shared by several candidates."""
    possible: int
    """Moves that all the images have."""

    @property
    def exact(self) -> bool:
        """True if there were no mismatches."""
        return self.mismatches == 0

    @property
    def complete(self) -> bool:
        """True if every move of every image was checked."""
        return self.moves == self.possible

    def __str__(self) -> str:
        part = f"all {self.moves:,}" if self.complete else f"{self.moves:,} of {self.possible:,}"
        return (
            f"{self.images:,} images, {part} moves checked: {self.mismatches:,} mismatches, {self.ties:,} tied images"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, for JSON."""
        return {**asdict(self), "exact": self.exact, "complete": self.complete}


def verify(
    restorer: Restorer | Chain,
    images: Images,
    *,
    moves: int | None = None,
    seconds: float | None = None,
    batch_size: int = 1024,
    progress: bool = False,
) -> Verification:
    """Check that moved images are restored to the same image, bit for bit.

    Each move of the restorer's group (all shifts; all shifts and turns; for rotations, the quarter turns) is applied to
    each image, the result goes through ``restorer`` as it is, and the bits are compared. With a bound, moves are drawn
    at random, the same ones each time.

    The restorer is checked with its ``min_confidence``: rejected images pass unchanged, so moves of a rejected image
    count as mismatches. To check the images that are not rejected, leave the others out.

    Args:
        restorer: The restorer to check. With padding, moves are taken on the padded canvas, where they are circular.
        images: ``(batch, channel, *spatial)``, or a list of ``(channel, *spatial)`` of any sizes; moved or not.
        moves: Check at most this many moves of each image.
        seconds: Stop after about this long. Every image gets the same share of the time.
        batch_size: Moved images per batch.
        progress: Show progress.

    Returns:
        Counts of what was checked and of mismatches.

    Raises:
        ValueError: If there are no images, or they do not fit.
    """
    if not len(images):
        raise ValueError("no images to verify on")
    if not is_list(images):
        check_images(images)  # type: ignore[arg-type]
        check_finite(images)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    started = time.monotonic()
    checked = checked_moves = mismatches = ties = possible = 0
    with Progress("verify", len(images), "images", progress) as bar:
        for number, image in enumerate(images):
            subject, base, all_moves = _prepare(restorer, image[None])
            count = len(all_moves.shift)
            possible += count
            bar.update(1)
            left = math.inf if seconds is None else seconds - (time.monotonic() - started)
            if number and left <= 0:
                continue
            deadline = time.monotonic() + left / (len(images) - number)
            order = torch.randperm(count, generator=generator) if moves is not None or seconds is not None else None
            chosen = all_moves if order is None else rows(all_moves, order[: count if moves is None else max(1, moves)])
            done, wrong = _check_moves(subject, base, chosen, batch_size, deadline)
            ties += int(subject.estimate(base).tied)
            checked, checked_moves, mismatches = checked + 1, checked_moves + done, mismatches + wrong
    return Verification(checked, checked_moves, mismatches, ties, possible)


def _prepare(restorer: Restorer | Chain, image: Tensor) -> tuple[Any, Tensor, Pose]:
    """Return the restorer to check, the image on which moves are exact, and the moves."""
    base, coordinates = restorer.coordinates.exact_on(image)
    subject: Any = restorer
    if coordinates is not restorer.coordinates:  # keep everything else: scorer, curve, min_confidence
        subject = copy.copy(restorer)
        subject._modules = {**restorer._modules, "coordinates": coordinates}
        subject.trained_on = {**restorer.trained_on, "size": None}  # the images are padded now
    return subject, base, coordinates.moves(check_images(base))


def _check_moves(restorer: Any, image: Tensor, moves: Pose, batch_size: int, deadline: float) -> tuple[int, int]:
    """Return how many moves of one image were checked before the deadline, and how many were not undone exactly."""
    wanted = ordered_bits(restorer(image)[0])
    done = wrong = 0
    size = min(batch_size, 16) if math.isfinite(deadline) else batch_size
    while done < len(moves.shift) and (not done or time.monotonic() < deadline):
        part = rows(moves, slice(done, done + size))
        moved = restorer.coordinates.redo(image.expand(len(part.shift), *image.shape[1:]), part)
        restored = restorer(moved)
        for one in [restored] if isinstance(restored, Tensor) else [image[None] for image in restored]:
            same = one.shape[1:] == wanted.shape
            wrong += int((ordered_bits(one) != wanted).flatten(1).any(1).sum()) if same else len(one)
        done, size = done + len(part.shift), min(batch_size, 2 * size)
    return done, wrong


def both_orders(
    module: Callable[[Tensor], Tensor], images: Tensor, shifts: Tensor, batch_size: int = 64
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Run ``module`` on every image under every shift, integers ``(m, d)``.

    Yield the images, their shifts, ``module(apply(image, shift))`` and ``module(image)``, one row per pair, in batches.
    The images are not changed, even if the module works in place.
    """
    for part in images.split(batch_size):
        outputs = module(part.clone())
        for group in shifts.split(max(1, batch_size // len(part))):
            batch, moves = part.repeat_interleave(len(group), 0), group.repeat(len(part), 1)
            yield batch, moves, module(apply(batch, moves)), outputs.repeat_interleave(len(group), 0)


@torch.no_grad()
def equivariance_error(
    module: Callable[[Tensor], Tensor],
    size: Sequence[int],
    *,
    images: Tensor | None = None,
    shifts: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    batch_size: int = 64,
) -> float:
    """Return the largest ``|module(apply(x, M)) - apply(module(x), M)|`` over shifts ``M``.

    It is infinity for a module that changes the spatial size. Put the module in ``eval()`` first, and in the dtype to
    test.

    Args:
        module: From images to maps. It may change the number of channels, or drop their axis.
        size: Size of one image, ``(channel, *spatial)``.
        images: Images to test on. Default: two random images.
        shifts: Integers ``(n, d)``. Default: all shifts.
        dtype: Dtype of the random images.
        seed: Seed of the random images.
        batch_size: Shifts per batch.
    """
    channels, *spatial = size
    if images is None:
        generator = torch.Generator().manual_seed(seed)
        images = torch.randn(2, channels, *spatial, generator=generator, dtype=torch.float64).to(dtype)
    if tuple(images.shape[1:]) != tuple(size):
        raise ValueError(f"images must be (batch, {', '.join(map(str, size))}), got {tuple(images.shape)}")
    moves = all_shifts(tuple(spatial)) if shifts is None else shifts
    if not len(images) or not len(moves):
        raise ValueError(f"nothing to test on: {len(images)} images, {len(moves)} shifts")

    def run(x: Tensor) -> Tensor:
        y = module(x)
        return y[:, None] if y.ndim == len(spatial) + 1 else y

    worst = 0.0
    for _, shift, moved, still in both_orders(run, images, moves, batch_size):
        if tuple(still.shape[2:]) != tuple(spatial) or moved.shape != still.shape or moved.isnan().any():
            return float("inf")
        wanted = apply(still, shift)
        different = ordered_bits(moved) != ordered_bits(wanted)
        if different.any():  # bits first: equal infinities are equal, and 0.0 is not -0.0
            gap = (moved.double() - wanted.double())[different].abs().max()
            worst = max(worst, float("inf") if gap.isnan() else max(float(gap), 5e-324))
    return worst


def assert_equivariant(
    module: Callable[[Tensor], Tensor], size: Sequence[int], *, tolerance: float | None = None, **options: Any
) -> None:
    """Raise ``AssertionError`` unless ``module`` commutes with every shift, within ``tolerance``.

    Args:
        module: From images to maps.
        size: Size of one image, ``(channel, *spatial)``.
        tolerance: 0 asks for bit equality. The default allows for float rounding: 1e-9 in float64, 1e-4 otherwise.
        **options: Those of :func:`equivariance_error`.

    Raises:
        AssertionError: If an output differs by more. The message says by how much.
    """
    if tolerance is None:
        tolerance = 1e-9 if options.get("dtype", torch.float64) == torch.float64 else 1e-4
    error = equivariance_error(module, size, **options)
    if not error <= tolerance:
        raise AssertionError(
            f"not equivariant on {tuple(size)}: the output differs by up to {error:.3g} "
            f"between shift-then-module and module-then-shift, where {tolerance:g} is allowed"
        )
