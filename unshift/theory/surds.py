"""Exact sums of square roots, ``Σ q_i √f_i``: the numbers the theorem's network computes with.

The norms ``||Z_s||`` are square roots of integers and the weights ``α^(s-1)`` leave float64 at once.
A :class:`Surd` holds rational coefficients of square roots of *different squarefree* integers. Those
are linearly independent over the rationals, so a surd is zero only if it has no terms; the sign of
any other is found by integer square roots of growing precision, which must end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from fractions import Fraction

__all__ = ["Surd"]


@functools.total_ordering
class Surd:
    """An exact real number ``Σ terms[f]·√f`` over squarefree ``f``; 1 is among them."""

    def __init__(self, terms: Mapping[int, Fraction] | None = None) -> None:
        self.terms = {f: q for f, q in (terms or {}).items() if q}

    @classmethod
    def of(cls, value: int | Fraction) -> Surd:
        """Return a rational as a surd."""
        return cls({1: Fraction(value)})

    @classmethod
    def root(cls, n: int) -> Surd:
        """Return ``√n``, say ``√12 = 2√3``."""
        outside, inside = _squarefree(n)
        return cls({inside: Fraction(outside)})

    def __add__(self, other: Surd) -> Surd:
        terms = dict(self.terms)
        for f, q in other.terms.items():
            terms[f] = terms.get(f, Fraction(0)) + q
        return Surd(terms)

    def __mul__(self, factor: int | Fraction) -> Surd:
        return Surd({f: q * factor for f, q in self.terms.items()})

    def __sub__(self, other: Surd) -> Surd:
        return self + other * -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Surd) and self.terms == other.terms

    def __lt__(self, other: Surd) -> bool:
        return (self - other).sign() < 0

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __repr__(self) -> str:
        return " + ".join(f"{q}·√{f}" for f, q in sorted(self.terms.items())) or "0"

    def sign(self) -> int:
        """Return -1, 0 or 1, exactly."""
        if not self.terms:
            return 0
        bits = 64
        while True:
            low, high = self._bracket(bits)
            if low > 0 or high < 0:
                return 1 if low > 0 else -1
            bits *= 2

    def __float__(self) -> float:
        """Return the nearest float or its neighbour; ``OverflowError`` beyond float64."""
        if not self.terms:
            return 0.0
        bits = 64
        while True:
            low, high = self._bracket(bits)
            # Both ends of one sign and equal to 60 bits: either rounds to the value's own float.
            if low * high > 0 and (high - low) << 60 <= abs(low):
                return float(Fraction(low, self._scale(bits)))
            bits *= 2

    def _scale(self, bits: int) -> int:
        return math.lcm(*(q.denominator for q in self.terms.values())) << bits

    def _bracket(self, bits: int) -> tuple[int, int]:
        """Return integers around ``value · scale``: each term is cut down to one, so off by less than one."""
        scale = self._scale(bits)
        low = high = 0
        for f, q in self.terms.items():
            whole = q.numerator * (scale // q.denominator)
            root = math.isqrt(whole * whole * f)
            exact = root * root == whole * whole * f
            low += root if whole > 0 else -root - (not exact)
            high += root + (not exact) if whole > 0 else -root
        return low, high


@functools.cache
def _squarefree(n: int) -> tuple[int, int]:
    """Return ``(k, f)`` with ``n = k²·f`` and ``f`` squarefree."""
    if n < 0:
        raise ValueError(f"the root of a negative number is not real, got {n}")
    if n == 0:
        return 0, 1  # no term at all, rather than one with a root that is zero
    outside, p = 1, 2
    while p * p <= n:
        while n % (p * p) == 0:
            n //= p * p
            outside *= p
        p += 1
    return outside, n
