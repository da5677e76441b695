"""Scorer and Scores: the interface between a network and the choice of a pose.

A *candidate* is one turned copy of the image (only one if nothing turns) and one position of it; a scorer gives every
candidate an int64 score. A network that scores copies as a whole has one candidate for each copy, and no positions. A
network of lines scores ``f(row) + g(column)``. Such scores are *separable*: the highest sum is where every term is
highest, and the softmax of a sum is the product of the softmaxes. So neither the choice nor the confidence needs the
whole map.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from unshift.exact.confidence import softmax_of_highest
from unshift.network import add_lines


class Scores:
    """The int64 scores of all candidates of a batch of images.

    Args:
        terms: Each candidate's score is the sum of one entry of each term. A map has one term ``(batch, candidates)``;
            separable scores have a term ``(batch, n)`` per axis.
        shape: ``(copies, *positions)``, or ``(copies,)`` where copies are scored as a whole.
    """

    def __init__(self, terms: Sequence[Tensor], shape: Sequence[int]) -> None:
        self.terms, self.shape = tuple(terms), tuple(shape)

    def map(self) -> Tensor:
        """Return the score of every candidate, ``(batch, copies, *positions)``."""
        if len(self.terms) == 1:
            only: Tensor = self.terms[0]
            return only.view(-1, *self.shape)
        return add_lines(self.terms)[:, None]

    def best(self) -> tuple[Tensor, Tensor]:
        """Return the flat index of a highest score ``(batch,)``, and whether several candidates share it."""
        index, tied = None, None
        for term in self.terms:
            top, place = term.max(1)
            several = (term == top[:, None]).sum(1) > 1
            index = place if index is None else index * term.shape[1] + place
            tied = several if tied is None else tied | several
        assert index is not None
        assert tied is not None
        return index, tied

    def highest(self) -> Tensor:
        """Return which candidates have the highest score, bool ``(batch, candidates)``."""
        each = [term == term.amax(1, keepdim=True) for term in self.terms]
        return functools.reduce(lambda one, other: (one[:, :, None] & other[:, None]).flatten(1), each)

    def confidence(self, score_unit: float) -> Tensor:
        """Return the softmax probability of the highest score, float64 ``(batch,)``, for any order of positions."""
        return functools.reduce(torch.mul, [softmax_of_highest(term, score_unit) for term in self.terms])


class Scorer(nn.Module):
    """Base class of networks that score canvases: quantised, constructed, or your own.

    A subclass implements ``forward``: canvases ``(batch, channel, *positions)`` to equivariant int64 scores
    ``(batch, *positions)``, or to one score each, ``(batch,)``, if it is ``whole``. The attributes describe which
    canvases it takes; None means any.
    """

    in_channels: int | None = None
    axes: int | None = None
    size: tuple[int, ...] | None = None
    whole: bool | None = False
    """Whether it scores a canvas as a whole, not its positions; None if unknown."""
    score_unit: float = 1.0
    """The value of one integer step of the scores as a logit, in nats."""
    line_axes: int = 0
    """Number of axes along which it has line layers."""
    largest_pixel: float | None = None
    """The largest absolute pixel value that it distinguishes."""

    @staticmethod
    def wrap(module: nn.Module) -> Scorer:
        """Return ``module`` itself if it is a Scorer, else a Scorer that calls it."""
        return module if isinstance(module, Scorer) else _Wrapped(module)

    @torch.no_grad()
    def scores(self, canvases: Iterable[Tensor]) -> Scores:
        """Score the canvases of a batch, one for each copy, ``(batch, channel, *positions)``."""
        copies = list(canvases)
        flat = copies[0] if len(copies) == 1 else torch.stack(copies, 1).flatten(0, 1)
        scores = self(flat)
        whole = isinstance(scores, Tensor) and scores.ndim == 1 if self.whole is None else self.whole
        wanted = (flat.shape[0], *(() if whole else flat.shape[2:]))
        if not isinstance(scores, Tensor) or tuple(scores.shape) != wanted:
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(f"a scorer must return scores (batch, *spatial) = {wanted}, got {got}")
        if scores.dtype != torch.int64:
            raise ValueError(
                f"a Restorer wants int64 scores, got {scores.dtype}: float scores cannot be exact. "
                "Turn the estimator into integers with unshift.quantise(estimator, sample_images)"
            )
        shape = (len(copies), *wanted[1:])
        return Scores([scores.reshape(copies[0].shape[0], math.prod(shape))], shape)


class _Wrapped(Scorer):
    whole = None

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, canvas: Tensor) -> Tensor:
        scores: Tensor = self.module(canvas)
        return scores
