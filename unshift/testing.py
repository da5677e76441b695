"""Check the claim: is a module equivariant, and is a restorer exact? For our modules and for yours.

    from unshift.testing import assert_equivariant
    assert_equivariant(my_module, size=(1, 32, 32))

A tester that cannot fail proves nothing: ``tests/test_testing.py`` shows these three failing on a
zero-padded convolution, on strides and pooling, and on a float estimator with a plain argmax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from unshift.coordinates import all_shifts, rows
from unshift.exact import IntegerEstimator, choose, ordered_bits
from unshift.progress import tracked
from unshift.restorer import Chain, Restorer, check_finite
from unshift.shifts import apply, check_images

__all__ = ["Verification", "all_shifts", "assert_equivariant", "equivariance_error", "verify"]


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

    ``size`` is ``(channel, *spatial)``. Unless given, ``images`` are two random ones of ``dtype``,
    from ``seed``, and ``shifts`` are *all* shifts. The module may change the channels, or drop
    their axis; a module that changes the spatial size is not equivariant: the error is infinite.
    Put the module in ``eval()`` first, and in the dtype you test.
    """
    channels, *spatial = size
    if images is None:
        generator = torch.Generator().manual_seed(seed)
        images = torch.randn(2, channels, *spatial, generator=generator, dtype=torch.float64).to(dtype)
    if tuple(images.shape[1:]) != tuple(size):
        raise ValueError(f"images must be (batch, {', '.join(map(str, size))}), got {tuple(images.shape)}")
    moves = all_shifts(spatial) if shifts is None else shifts
    if not len(images) or not len(moves):
        raise ValueError(f"nothing to test on: {len(images)} images, {len(moves)} shifts")
    worst = 0.0
    for image in images:
        still = _with_channels(module(image[None]), len(spatial))
        if tuple(still.shape[2:]) != tuple(spatial):
            return float("inf")
        for shift in moves.split(batch_size):
            moved = _with_channels(module(_shifted(image, shift)), len(spatial))
            wanted = _shifted(still[0], shift)
            if moved.shape != wanted.shape or moved.isnan().any():
                return float("inf")
            different = ordered_bits(moved) != ordered_bits(wanted)
            if different.any():  # bits first: equal infinities are equal, and 0.0 is not -0.0
                gap = (moved.double() - wanted.double())[different].abs().max()
                worst = max(worst, float("inf") if gap.isnan() else max(float(gap), 5e-324))
    return worst


def _with_channels(output: Tensor, axes: int) -> Tensor:
    """Give scores ``(batch, *spatial)`` the channel axis that shifts expect."""
    return output[:, None] if output.ndim == axes + 1 else output


def assert_equivariant(
    module: Callable[[Tensor], Tensor], size: Sequence[int], *, tolerance: float | None = None, **options: Any
) -> None:
    """Raise ``AssertionError`` unless ``module`` commutes with every shift, within ``tolerance``.

    ``tolerance=0`` asks for bit equality. The default allows for float rounding: 1e-9 in float64,
    1e-4 otherwise. ``options`` go to :func:`equivariance_error`.
    """
    if tolerance is None:
        tolerance = 1e-9 if options.get("dtype", torch.float64) == torch.float64 else 1e-4
    error = equivariance_error(module, size, **options)
    if not error <= tolerance:
        raise AssertionError(
            f"not equivariant on {tuple(size)}: the output differs by up to {error:.3g} "
            f"between shift-then-module and module-then-shift, allowed is {tolerance:g}"
        )


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` checked and found."""

    images: int
    """images checked, each under every move"""
    moves: int
    """moves checked, over all images"""
    mismatches: int
    """moves under which the restored image was not the same bit for bit"""
    ties: int
    """images whose highest score stood at several positions"""
    brute_force: bool
    """whether every moved image went through the whole network"""

    @property
    def exact(self) -> bool:
        """Whether nothing differed."""
        return self.mismatches == 0

    def __str__(self) -> str:
        how = "every moved image through the whole network" if self.brute_force else "scores once, every move chosen"
        return (
            f"{self.images:,} images x {self.moves // max(1, self.images):,} moves = {self.moves:,} checked "
            f"({how}): {self.mismatches:,} mismatches, {self.ties:,} tied images"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, for JSON."""
        return {**asdict(self), "exact": self.exact}


def verify(
    restorer: Restorer | Chain,
    images: Tensor,
    *,
    brute_force: bool = False,
    batch_size: int = 1024,
    progress: bool = False,
) -> Verification:
    """Check that every move of every image is undone to the same image, bit for bit.

    The moves are those of the restorer's own group: all shifts; all shifts and turns; of rotations, the quarter turns.

    **Brute force** sends each of the moved images through the whole restorer and compares the bits.

    **Otherwise** the scores are computed for each image and for a few of its moves, which must agree. That all others
    do follows: the network adds integers exactly (each layer's worst sum is checked against its limit before it runs),
    and integers add up the same in any order. What is computed for *every* move is the rest: the argmax over the moved
    scores, the tie rule on the moved image, and the image that results. To rely on no argument at all, run brute force
    on a sample as well. The argument is about our integers, so any other scorer gets brute force, and so does a chain.

    Args:
        restorer: What to check. With padding, moves are taken on the padded canvas, where they are circular.
        images: ``(batch, channel, *spatial)``, unmoved or not.
        brute_force: Rely on nothing.
        batch_size: Moved images at a time.
        progress: Show a bar.

    Returns:
        What was checked and found.

    Raises:
        ValueError: If there are no images, or they do not fit.
    """
    check_images(images)
    check_finite(images)
    if not len(images):
        raise ValueError("no images to verify on")
    ground, coordinates = restorer.coordinates.ground(images)
    moves = coordinates.moves(check_images(ground))
    plain = isinstance(restorer, Restorer) and isinstance(restorer.scorer, IntegerEstimator)
    subject = Restorer(restorer.scorer, coordinates=coordinates) if isinstance(restorer, Restorer) else restorer
    check = _by_proof if plain and not brute_force else _by_force
    generator = torch.Generator().manual_seed(0)
    mismatches = ties = 0
    for image in tracked(ground, "verify", "images", progress):
        ties += int(subject.estimate(image[None]).tied)
        mismatches += check(subject, image[None], moves, batch_size, generator)
    return Verification(len(ground), len(ground) * len(moves.shift), mismatches, ties, check is _by_force)


def _chunks(moves: Any, size: int) -> Iterator[Any]:
    for at in range(0, len(moves.shift), size):
        yield rows(moves, slice(at, at + size))


def _by_force(subject: Any, image: Tensor, moves: Any, batch_size: int, _: torch.Generator) -> int:
    """Count the moves that the whole restorer does not undo to the same bits."""
    wanted = ordered_bits(subject(image)[0])
    wrong = 0
    for some in _chunks(moves, batch_size):
        moved = subject.coordinates.move(image.expand(len(some.shift), *image.shape[1:]), some)
        wrong += int((ordered_bits(subject(moved)) != wanted).flatten(1).any(1).sum())
    return wrong


def _by_proof(subject: Any, image: Tensor, moves: Any, batch_size: int, generator: torch.Generator) -> int:
    """Count the moves that are not undone to the same bits, given that scores move along; try that on a few."""
    coordinates = subject.coordinates
    scores = subject.scores(coordinates.canvas(image))
    size = tuple(image.shape[2:])
    still, _ = choose(
        scores, lambda: coordinates.looks(image), lambda *found: coordinates.settle(image, scores, *found)
    )
    probes = rows(moves, torch.randint(len(moves.shift), (4,), generator=generator))
    wrong = int(
        (
            subject.scores(coordinates.canvas(_moved(coordinates, image, probes)))
            != _carried(coordinates, scores, probes)
        )
        .flatten(1)
        .any(1)
        .sum()
    )
    restored = ordered_bits(coordinates.undo(image, coordinates.pose(still, scores, size)))
    for some in _chunks(moves, batch_size):
        moved, carried = _moved(coordinates, image, some), _carried(coordinates, scores, some)
        index, _ = choose(
            carried,
            lambda moved=moved: coordinates.looks(moved),  # type: ignore[misc]
            lambda *found, moved=moved, carried=carried: coordinates.settle(moved, carried, *found),
        )
        undone = ordered_bits(coordinates.undo(moved, coordinates.pose(index, carried, size)))
        wrong += int((undone != restored).flatten(1).any(1).sum())
    return wrong


def _moved(coordinates: Any, image: Tensor, moves: Any) -> Tensor:
    found: Tensor = coordinates.move(image.expand(len(moves.shift), *image.shape[1:]), moves)
    return found


def _carried(coordinates: Any, scores: Tensor, moves: Any) -> Tensor:
    found: Tensor = coordinates.carry(scores.expand(len(moves.shift), *scores.shape[1:]), moves)
    return found


def _shifted(image: Tensor, shifts: Tensor) -> Tensor:
    """Return one ``(channel, *spatial)`` image under each of ``shifts``."""
    return apply(image.expand(len(shifts), *image.shape), shifts)
