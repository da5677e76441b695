"""Check the claim: is a module equivariant, and is a restorer exact? For our modules and for yours.

    from unshift.testing import assert_equivariant
    assert_equivariant(my_module, size=(1, 32, 32))

A tester that cannot fail proves nothing: ``tests/test_testing.py`` shows these three failing on a
zero-padded convolution, on strides and pooling, and on a float estimator with a plain argmax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from unshift.coordinates import all_shifts
from unshift.exact import ordered_bits
from unshift.shifts import apply
from unshift.verification import Verification, verify

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

    Put the module in ``eval()`` first, and in the dtype you test.

    Args:
        module: From images to maps. It may change the channels, or drop their axis.
        size: Of one image, ``(channel, *spatial)``.
        images: What to test on. Default: two random images.
        shifts: Integers ``(n, d)``. Default: all shifts.
        dtype: Of the random images.
        seed: Of the random images.
        batch_size: Shifts at a time.

    Returns:
        The largest difference; infinity for a module that changes the spatial size.
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

    Args:
        module: From images to maps.
        size: Of one image, ``(channel, *spatial)``.
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


def _shifted(image: Tensor, shifts: Tensor) -> Tensor:
    """Return one ``(channel, *spatial)`` image under each of ``shifts``."""
    return apply(image.expand(len(shifts), *image.shape), shifts)
