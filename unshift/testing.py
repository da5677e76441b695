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
from tqdm.auto import tqdm

from unshift.exact import IntegerEstimator, choose, ordered_bits
from unshift.polar import Polar
from unshift.restorer import Restorer, check_finite
from unshift.shifts import apply, check_images, compose

__all__ = ["Verification", "all_shifts", "assert_equivariant", "equivariance_error", "verify"]


def all_shifts(size: Sequence[int]) -> Tensor:
    """Return every shift of a grid, int64 ``(N, d)``, in row-major order.

    >>> all_shifts((2, 2)).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    grids = torch.meshgrid(*[torch.arange(n) for n in size], indexing="ij")
    return torch.stack([grid.flatten() for grid in grids], 1)


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
    """images checked, each under every shift"""
    shifts: int
    """shifts checked, over all images"""
    mismatches: int
    """shifts under which the restored image was not the same bit for bit"""
    ties: int
    """images whose highest score stood at several positions"""
    brute_force: bool
    """whether every shifted image went through the whole network"""

    @property
    def exact(self) -> bool:
        """Whether nothing differed."""
        return self.mismatches == 0

    def __str__(self) -> str:
        how = "every shifted image through the whole network" if self.brute_force else "scores once, every shift chosen"
        return (
            f"{self.images:,} images x {self.shifts // max(1, self.images):,} shifts = {self.shifts:,} checked "
            f"({how}): {self.mismatches:,} mismatches, {self.ties:,} tied images"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, for JSON."""
        return {**asdict(self), "exact": self.exact}


def verify(
    restorer: Restorer,
    images: Tensor,
    *,
    brute_force: bool = False,
    batch_size: int = 1024,
    progress: bool = False,
) -> Verification:
    """Check that every shift of every image is restored to the same image, bit for bit.

    **Brute force** sends each of the ``len(images) * N`` shifted images through the whole restorer and
    compares the bits.

    **Otherwise** the scores are computed for each image and for a few of its shifts (one step along
    each axis, two at random), which must agree. That all others do follows: the network adds integers
    exactly (each layer's worst sum is checked against its limit before it runs), and integers add up
    the same in any order. What is computed for *every* shift is the rest: the argmax over the shifted
    scores, the tie rule on the shifted image, and the image that results. To rely on no argument at
    all, run brute force on a sample as well.

    The argument is about our integers, so any other scorer gets brute force. Shifts are taken on the
    restorer's canvas, after any padding; ``images`` are put there first. Of rotations, only quarter turns
    are shifts of the canvas *and* exact on the image: those three are checked on each image as well.
    """
    check_images(images)
    check_finite(images)
    if not len(images):
        raise ValueError("no images to verify on")
    canvas = restorer.coordinates(images)
    size = check_images(canvas)
    brute_force = brute_force or not isinstance(restorer.scorer, IntegerEstimator)
    moves = all_shifts(size)
    bare = Restorer(restorer.scorer)  # on the canvas itself: padding a shifted canvas would pad twice
    generator = torch.Generator().manual_seed(0)
    mismatches = ties = 0
    for image in tqdm(canvas, desc="verify", unit="image", disable=None if progress else True):
        if brute_force:
            wanted = ordered_bits(bare(image[None])[0])
            for chunk in moves.split(batch_size):
                restored = bare(_shifted(image, chunk))
                mismatches += sum(not torch.equal(ordered_bits(one), wanted) for one in restored)
            ties += int(bare.estimate(image[None]).tied)
            continue
        random = torch.stack([torch.randint(n, (2,), generator=generator) for n in size], 1)
        probes = torch.cat([torch.eye(len(size), dtype=torch.int64), random])
        scores, *probed = bare.scores(torch.cat([image[None], _shifted(image, probes)]))
        agreed = _shifted(scores[None], probes)[:, 0]
        mismatches += sum(not torch.equal(*pair) for pair in zip(probed, agreed, strict=True))
        still, tied = choose(scores[None], image[None])
        ties += int(tied)
        for chunk in moves.split(batch_size):
            mismatches += sum(_wrong_choices(image, scores, still, bool(tied), chunk))
    mismatches += _wrong_turns(restorer, images)
    return Verification(len(canvas), len(canvas) * len(moves), mismatches, ties, brute_force)


def _wrong_turns(restorer: Restorer, images: Tensor) -> int:
    """Count the quarter turns after which a rotation restorer does not give the same image."""
    if not isinstance(restorer.coordinates, Polar):
        return 0
    axes = [2, 3, 4][: images.ndim - 2]
    plane = [axis for axis in axes if len(axes) == 2 or axis != 2 + restorer.coordinates.axis]
    wrong = 0
    for batch in images.split(32):
        wanted = ordered_bits(restorer(batch))
        for turns in (1, 2, 3):
            turned = ordered_bits(restorer(torch.rot90(batch, turns, plane)))
            wrong += sum(not torch.equal(*pair) for pair in zip(turned, wanted, strict=True))
    return wrong


def _shifted(image: Tensor, shifts: Tensor) -> Tensor:
    """Return one ``(channel, *spatial)`` image under each of ``shifts``."""
    return apply(image.expand(len(shifts), *image.shape), shifts)


def _wrong_choices(image: Tensor, scores: Tensor, still: Tensor, tied: bool, moves: Tensor) -> Iterator[bool]:
    """Choose on the scores under each of ``moves``; yield whether the restored image came out different."""
    moved_scores = _shifted(scores[None], moves)[:, 0]
    # The tie rule needs the shifted image itself; without a tie the choice looks at the scores alone.
    shown = _shifted(image, moves) if tied else moved_scores[:, None]
    found, _ = choose(moved_scores, shown)
    size = tuple(scores.shape)
    # undo(apply(x, M), s) is apply(x, M - s): the same image as before wherever M - s is the same shift.
    left = compose(moves, -found, size)
    before = compose(torch.zeros_like(still), -still, size)
    for row in (left != before).any(1).nonzero().flatten():
        now, then = (ordered_bits(apply(image[None], shift)) for shift in (left[row : row + 1], before))
        yield not torch.equal(now, then)
