"""Two stages: an integer network proposes positions, and an integer pose network scores the window at each.

1. Score all positions (:mod:`unshift.exact.integers`).
2. Propose the best few of them, by non-maximum suppression (:mod:`unshift.exact.suppression`).
3. Cut out the window at each proposal, and score it as a whole (:mod:`unshift.exact.poses`). Proposals rank by these
   scores, above all other positions, which keep their order.

An image whose highest score is unique is not periodic, so all its shifts restore different arrays. Step 2 breaks ties
by restored arrays. So proposals move with the image, and their windows are the same for every shift. Images whose
highest score is tied, which include all periodic ones, keep the scores of step 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unshift.exact.integers import IntegerEstimator
from unshift.exact.poses import IntegerPoseEstimator
from unshift.exact.scores import Scores
from unshift.exact.suppression import next_best
from unshift.shifts import take, unravel

OFFSET = 2**52
"""Subtracted from the scores of all positions but the proposals. With sums below 2^24, no score reaches 2^33."""


def windows_at(images: Tensor, places: Tensor, window: tuple[int, ...]) -> Tensor:
    """Cut windows out of images at flat positions ``(batch, k)``, with wrap-around: ``(batch * k, channel, *window)``.

    >>> windows_at(torch.tensor([[[0, 1, 2, 3]]]), torch.tensor([[3, 1]]), (2,)).tolist()
    [[[3, 0]], [[1, 2]]]
    """
    size = tuple(images.shape[2:])
    source = torch.zeros(places.numel(), 1, dtype=torch.int64, device=images.device)
    for start, n, length in zip(unravel(places.flatten(), size).unbind(1), size, window, strict=True):
        along = (start[:, None] + torch.arange(length, device=images.device)) % n
        source = (source[:, :, None] * n + along[:, None, :]).flatten(1)
    source = source.view(images.shape[0], 1, -1).expand(-1, images.shape[1], -1)
    cut = take(images.flatten(2), source).unflatten(2, (places.shape[1], *window))
    windows: Tensor = cut.movedim(2, 1).flatten(0, 1)
    return windows


def propose(scores: Tensor, images: Tensor, count: int, radius: int) -> Tensor:
    """Return the flat positions of proposals, best first, int64 ``(batch, count)``.

    Args:
        scores: int64 ``(batch, *spatial)``.
        images: Ties between all but the first are broken by comparing them.
        count: Number of proposals.
        radius: They are at least this far apart along one axis.
    """
    size = tuple(scores.shape[1:])
    first = Scores([scores.flatten(1)], (1, *size)).best()[0]
    others = next_best(scores, images, first, [radius] * len(size), count - 1)
    return torch.stack([first, *(index for index, _, _ in others)], 1)


class JudgedEstimator(IntegerEstimator):
    """An :class:`IntegerEstimator` whose best positions are scored again by their windows.

    Args:
        network: See :class:`IntegerEstimator`.
        bits: Likewise.
        size: Likewise.
        judge: The description of an :class:`IntegerPoseEstimator` of one size, the window's.
        count: Number of proposals.
        radius: Suppression radius of proposals: they are at least this far apart along one axis.
    """

    def __init__(
        self,
        network: dict[str, Any],
        *,
        bits: int = 10,
        size: Any = None,
        judge: dict[str, Any],
        count: int,
        radius: int,
    ) -> None:
        super().__init__(network, bits=bits, size=size)
        self.judge = IntegerPoseEstimator(**judge)
        self.count, self.radius = count, radius
        if self.judge.size is None or self.judge.in_channels != self.in_channels or self.judge.axes != self.axes:
            raise ValueError(
                f"the judge must look at windows of one size with {self.in_channels} channels and {self.axes} axes, "
                f"got {judge['network']}"
            )
        self._description |= {"judge": judge, "count": count, "radius": radius}

    @classmethod
    def of(cls, first: IntegerEstimator, judge: IntegerPoseEstimator, count: int, radius: int) -> JudgedEstimator:
        """Join two networks."""
        joined = cls(**first.describe(), judge=judge.describe(), count=count, radius=radius)
        parts = {**first.state_dict(), **{f"judge.{name}": value for name, value in judge.state_dict().items()}}
        joined.load_state_dict(parts)
        return joined

    @property
    def score_unit(self) -> float:  # type: ignore[override]
        """The value of one integer step of the judge's scores as a logit (nats)."""
        return self.judge.score_unit

    def filters(self) -> list[Any]:
        """Return the layers of both networks."""
        return [*super().filters(), *self.judge.filters()]

    def _judged(self, scores: Tensor, images: Tensor, judge: Any) -> Tensor:
        """Return the scores with those of proposals replaced."""
        flat = scores.flatten(1)
        places = propose(scores, images, self.count, self.radius)
        assert self.judge.size is not None
        window_scores = judge(windows_at(images, places, self.judge.size)).view(places.shape)
        tied = Scores([flat], (1, *scores.shape[1:])).best()[1]
        other = flat - OFFSET
        return torch.where(tied[:, None], other, other.scatter(1, places, window_scores)).view(scores.shape)

    @torch.no_grad()
    def reference(self, images: Tensor) -> Tensor:
        """Return the scores ``(batch, *spatial)`` by the definition, in int64 and slowly."""
        return self._judged(super().reference(images), images, self.judge.reference)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return the scores ``(batch, *spatial)``, int64: those of :meth:`reference`."""
        return self._judged(super().forward(images), images, self.judge)
