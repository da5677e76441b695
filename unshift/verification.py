"""verify: is every move of an image undone to the same bits? As many of them as there is time for.

A photo of 500x375 has 187,500 shifts, and each of them is a photo: nobody waits for all. So the work can be bounded, by
moves and by time, and the result counts what was checked and what there is. :func:`verify` says what need not be tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unshift.coordinates import Coordinates, rows
from unshift.exact import IntegerEstimator, choose, ordered_bits
from unshift.progress import Progress, duration, tracked
from unshift.ragged import Images, is_ragged
from unshift.restorer import Chain, Restorer, check_finite
from unshift.shifts import check_images

__all__ = ["Verification", "verify"]

FEWEST = 16
"""Moves of each image that a bound on the time leaves, before it leaves out images."""

Compare = Callable[[Any], int]

TRIED = 32
"""Moves that are timed first."""

OVERTIME = 1.5
"""How many times the time planned the work may take before it stops: a tied image costs more than others."""


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` checked and found."""

    images: int
    """images checked"""
    moves: int
    """moves checked, over all images"""
    mismatches: int
    """moves under which the restored image was not the same bit for bit"""
    ties: int
    """images whose highest score stood at several positions"""
    brute_force: bool
    """whether every move that was checked went through the whole network"""
    possible: int | None = None
    """moves that these images have, over all of them; None where all were checked"""

    @property
    def exact(self) -> bool:
        """Whether nothing differed."""
        return self.mismatches == 0

    @property
    def complete(self) -> bool:
        """Whether every move of every image was checked."""
        return self.possible is None or self.moves == self.possible

    def __str__(self) -> str:
        how = "every moved image through the whole network" if self.brute_force else "scores once, every move chosen"
        if self.complete:
            each = f" x {self.moves // self.images:,} moves = {self.moves:,}" if self.images else ""
            done = f"{self.images:,} images{each} checked"
            if self.images and self.moves % self.images:  # of different sizes, they have different numbers of moves
                done = f"{self.images:,} images, all of their {self.moves:,} moves checked"
        else:
            how = how.replace("every move", "each move")
            done = f"{self.images:,} images, {self.moves:,} of {self.possible:,} moves checked"
        return f"{done} ({how}): {self.mismatches:,} mismatches, {self.ties:,} tied images"

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, for JSON."""
        possible = self.moves if self.possible is None else self.possible
        return {**asdict(self), "possible": possible, "exact": self.exact, "complete": self.complete}


class _Work(NamedTuple):
    """What is to be checked, and about how long it takes."""

    images: int
    moves: int
    """of each image"""
    possible: int
    """moves of all images there are"""
    seconds: float
    in_full: float
    """seconds that all moves of all images would take"""

    def __str__(self) -> str:
        whole = self.images * self.moves == self.possible
        part = "all of them" if whole else f"{self.moves:,} of each of {self.images:,} images"
        rest = "" if whole else f" (all would take about {duration(self.in_full)})"
        return f"{part}, about {duration(self.seconds)}{rest}"


def verify(
    restorer: Restorer | Chain,
    images: Images,
    *,
    brute_force: bool = False,
    moves: int | None = None,
    seconds: float | None = None,
    batch_size: int = 1024,
    progress: bool = False,
) -> Verification:
    """Check that moves of images are undone to the same image, bit for bit: every move of every image, unless bounded.

    The moves are those of the restorer's own group: all shifts; all shifts and turns; for rotations, the quarter turns.

    **Brute force** sends each of the moved images through the whole restorer and compares the bits.

    **Otherwise** the scores are computed for each image and for a few of its moves, which must agree. That all others
    do follows: the network adds integers exactly (each layer's worst sum is checked against its limit before it runs),
    and integers add up the same in any order. What is computed for *every* move is the rest: the argmax over the moved
    scores, the tie rule on the moved image, and the image that results. To rely on no argument at all, run brute force
    on a sample as well. The argument is about our integers, so any other scorer gets brute force, and so does a chain.

    **With a bound**, moves are drawn at random, the same ones each time. For an image with one highest score, the moves
    left out follow by that argument: moved scores have one highest score too, where it was moved to. For a tied image,
    where the tie rule chooses, they do not.

    Args:
        restorer: What to check. With padding, moves are taken on the padded canvas, where they are circular.
        images: ``(batch, channel, *spatial)``, or a list of ``(channel, *spatial)`` of any sizes; unmoved or not.
        brute_force: Send every moved image through the whole restorer.
        moves: Check at most this many moves of each image.
        seconds: Check as many moves, and if need be images, as take about this long: how long one takes is tried first.
        batch_size: Moved images at a time.
        progress: Tell how far it is.

    Returns:
        What was checked and found.

    Raises:
        ValueError: If there are no images, or they do not fit.
    """
    if not isinstance(images, Tensor) and is_ragged(images):
        bounds = {"brute_force": brute_force, "moves": moves, "batch_size": batch_size}
        return _one_by_one(restorer, images, seconds, progress, bounds)
    check = _Check(restorer, images, brute_force, batch_size)  # type: ignore[arg-type]
    work = check.plan(moves, seconds, measure=progress)
    deadline = math.inf if seconds is None else time.monotonic() + OVERTIME * seconds
    generator = torch.Generator().manual_seed(0)
    done = checked = mismatches = ties = 0
    with Progress("verify", work.images * work.moves, "moves", progress) as told:
        each = f"{len(images):,} images x {len(check.moves.shift):,} moves = {work.possible:,}"
        told.say(f"{each}, {'through the whole network' if check.by_force else 'by their scores'}: checking {work}")
        for number in check.numbers(work.images):
            if done and time.monotonic() > deadline:
                break
            image = check.ground[number : number + 1]
            ties += int(check.subject.estimate(image).tied)
            found, wrong = check.run(image, work.moves, generator, told, deadline)
            done, checked, mismatches = done + 1, checked + found, mismatches + wrong
    return Verification(done, checked, mismatches, ties, check.by_force, work.possible)


def _one_by_one(
    restorer: Restorer | Chain, images: Images, seconds: float | None, progress: bool, bounds: dict[str, Any]
) -> Verification:
    """Check a list of arrays, each of which has moves of its own; the time is shared out among those that are left."""
    if not len(images):
        raise ValueError("no images to verify on")
    started, found = time.monotonic(), []
    possible = 0
    for at, image in enumerate(tracked(images, "verify", "images", progress)):
        ground, coordinates = restorer.coordinates.ground(image[None])
        possible += len(coordinates.moves(check_images(ground)).shift)
        left = None if seconds is None else seconds - (time.monotonic() - started)
        if at and left is not None and left <= 0:
            continue
        share = None if left is None else max(left, 0.0) / (len(images) - at)
        found.append(verify(restorer, image[None], seconds=share, **bounds))
    moves, mismatches, ties = (sum(getattr(one, key) for one in found) for key in ("moves", "mismatches", "ties"))
    return Verification(len(found), moves, mismatches, ties, found[0].brute_force, possible)


class _Check:
    """One restorer and the images to check it on, where its moves are exact."""

    def __init__(self, restorer: Restorer | Chain, images: Tensor, brute_force: bool, batch_size: int) -> None:
        check_images(images)
        check_finite(images)
        if not len(images):
            raise ValueError("no images to verify on")
        self.coordinates: Coordinates
        self.ground, self.coordinates = restorer.coordinates.ground(images)
        self.moves = self.coordinates.moves(check_images(self.ground))
        plain = isinstance(restorer, Restorer) and isinstance(restorer.scorer, IntegerEstimator)
        self.subject: Any = restorer
        if isinstance(restorer, Restorer):
            self.subject = Restorer(restorer.scorer, coordinates=self.coordinates)
        self.by_force = brute_force or not plain
        self.batch_size = batch_size

    def plan(self, moves: int | None, seconds: float | None, measure: bool = False) -> _Work:
        """Return what to check in the time there is."""
        images, possible = len(self.ground), len(self.moves.shift)
        each = min(possible, possible if moves is None else max(1, moves))
        if seconds is None and not measure:
            return _Work(images, each, images * possible, math.inf, math.inf)
        start, cost = self._cost()
        if seconds is not None and images * (start + each * cost) > seconds:
            each = min(each, max(min(FEWEST, each), int((seconds / images - start) / cost)))
            images = min(images, max(1, int(seconds / (start + each * cost))))
        in_full = len(self.ground) * (start + possible * cost)
        return _Work(images, each, len(self.ground) * possible, images * (start + each * cost), in_full)

    def _cost(self) -> tuple[float, float]:
        """Return the seconds that an image takes, and each move of it."""
        count = min(len(self.moves.shift), self.batch_size, TRIED)
        self._timed(1)  # the first time, filters are made ready
        start, whole = min(self._timed(1), self._timed(1)), self._timed(count)
        # On a busy machine many may take less than one did; they are not for nothing.
        return start, max(whole - start, 0.1 * whole) / count

    def _timed(self, count: int) -> float:
        started = time.monotonic()
        self.run(self.ground[:1], count, torch.Generator().manual_seed(1))
        return time.monotonic() - started

    def numbers(self, count: int) -> list[int]:
        """Return the numbers of the images to check: all, or some at random."""
        whole = len(self.ground)
        order = torch.arange(whole)
        if count < whole:
            order = torch.randperm(whole, generator=torch.Generator().manual_seed(0))[:count].sort().values
        found: list[int] = order.tolist()
        return found

    def run(
        self,
        image: Tensor,
        count: int,
        generator: torch.Generator,
        told: Progress | None = None,
        deadline: float = math.inf,
    ) -> tuple[int, int]:
        """Check ``count`` moves of one image; return how many were, and how many are not undone to the same bits."""
        probes = rows(self.moves, torch.randint(len(self.moves.shift), (4,), generator=generator))
        some = self.moves
        if count < len(self.moves.shift):
            some = rows(some, torch.randperm(len(some.shift), generator=generator)[:count])
        wrong, compare = self._by_force(image) if self.by_force else self._by_proof(image, probes)
        done = 0
        for part in _chunks(some, self.batch_size):
            wrong += compare(part)
            done += len(part.shift)
            if told is not None:
                told.update(len(part.shift))
            if time.monotonic() > deadline:
                break
        return done, wrong

    def _by_force(self, image: Tensor) -> tuple[int, Compare]:
        """Return a function that counts the moves which the whole restorer does not undo to the same bits."""
        wanted = ordered_bits(self.subject(image)[0])
        return 0, lambda moves: _different(ordered_bits(self.subject(self._moved(image, moves))), wanted)

    def _by_proof(self, image: Tensor, probes: Any) -> tuple[int, Compare]:
        """Return the same, given that scores move along; and how many of a few moves contradict that."""
        coordinates, size = self.coordinates, tuple(image.shape[2:])
        scores = self.subject.scores(coordinates.canvas(image))
        seen = self.subject.scores(coordinates.canvas(self._moved(image, probes)))
        still = coordinates.pose(self._chosen(scores, image), scores, size)
        wanted = ordered_bits(coordinates.undo(image, still))

        def compare(moves: Any) -> int:
            moved, carried = self._moved(image, moves), self._carried(scores, moves)
            pose = coordinates.pose(self._chosen(carried, moved), carried, size)
            return _different(ordered_bits(coordinates.undo(moved, pose)), wanted)

        return _different(seen, self._carried(scores, probes)), compare

    def _chosen(self, scores: Tensor, images: Tensor) -> Tensor:
        """Return the candidates that are chosen."""
        settle = lambda *found: self.coordinates.settle(images, scores, *found)  # noqa: E731
        return choose(scores, lambda: self.coordinates.looks(images), settle)[0]

    def _moved(self, image: Tensor, moves: Any) -> Tensor:
        return self.coordinates.move(image.expand(len(moves.shift), *image.shape[1:]), moves)

    def _carried(self, scores: Tensor, moves: Any) -> Tensor:
        return self.coordinates.carry(scores.expand(len(moves.shift), *scores.shape[1:]), moves)


def _chunks(moves: Any, size: int) -> Iterator[Any]:
    for at in range(0, len(moves.shift), size):
        yield rows(moves, slice(at, at + size))


def _different(found: Tensor, wanted: Tensor) -> int:
    return int((found != wanted).flatten(1).any(1).sum())
