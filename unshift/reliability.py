"""How far a confidence can be relied on, and the curve that makes a probability of it.

**Right** means that the pose found is the true one, to the pixel (for a rotation: to the step). So a calibrated
confidence of 0.9 says: of 100 such images, 90 are restored exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unshift import ranks
from unshift.data.batches import Batch
from unshift.exact import Curve
from unshift.restorer import Chain, Restorer
from unshift.shifts import check_images

__all__ = ["FEWEST", "Judged", "Reliability", "calibrate", "curve_of", "judge", "reliability", "separation"]

BINS = 15
"""Bins of equal width in which confidence and share are compared (Guo et al., 2017)."""
GROUPS = 20
"""Groups of equally many images that a curve is made of, at most."""
FEWEST = 10
"""Images to calibrate on, at least; a group has half as many."""


class Judged(NamedTuple):
    """What became of each of some unmoved images."""

    confidence: Tensor
    """float64 ``(n,)``"""
    distance: Tensor
    """float64 ``(n,)``: how far off the pose is that was found, in steps"""
    tied: Tensor
    """bool ``(n,)``"""

    @property
    def right(self) -> Tensor:
        """Whether the pose is exactly right, bool ``(n,)``."""
        return self.distance == 0


def judge(restorer: Restorer | Chain, batches: Iterable[Batch]) -> Judged:
    """Restore unmoved images, over all ranks.

    Args:
        restorer: What is judged.
        batches: The part of the images that belongs to this rank.
    """
    found = [torch.zeros(0, 3, dtype=torch.float64)]
    for images in itertools.chain.from_iterable(batches):
        estimate = restorer.estimate(images)
        distance = restorer.coordinates.distance(estimate, check_images(images))
        if estimate.doubtful is not None:  # left as it is, which says nothing of where it was
            distance = torch.where(estimate.doubtful, math.inf, distance)
        parts = (estimate.confidence, distance, estimate.tied.to(torch.float64))
        found.append(torch.stack([part.cpu() for part in parts], 1))
    confidence, distance, tied = ranks.gathered(torch.cat(found)).unbind(1)
    return Judged(confidence, distance, tied.bool())


@dataclass(frozen=True)
class Reliability:
    """What confidences are worth: are they probabilities, and do they tell right from wrong?"""

    images: int
    ece: float
    """expected calibration error: the mean distance of confidence and share that is right, over 15 bins"""
    bins: tuple[tuple[float, float, int], ...]
    """mean confidence, share that is right, and number of images of each bin that has any"""
    risk: tuple[tuple[float, float, float], ...]
    """coverage, share of those covered that is wrong, and the confidence from which on an image is covered"""

    def risk_at(self, coverage: float) -> float:
        """Return the share of errors among the images of highest confidence, as many as ``coverage`` says."""
        return next(wrong for share, wrong, _ in self.risk if share >= coverage - 1e-9)

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, for JSON."""
        return {**asdict(self), "risk_at_90": self.risk_at(0.9)}


def reliability(confidence: Tensor, right: Tensor) -> Reliability:
    """Compare confidences with what was right.

    Args:
        confidence: float64 ``(n,)``.
        right: bool ``(n,)``.

    Raises:
        ValueError: If there are none.
    """
    count, right = len(confidence), right.double()
    if not count:
        raise ValueError("no images to compare confidences on")
    number = (confidence * BINS).long().clamp(max=BINS - 1)
    bins = []
    for at in range(BINS):
        inside = number == at
        if inside.any():
            bins.append((float(confidence[inside].mean()), float(right[inside].mean()), int(inside.sum())))
    ece = sum(n * abs(sure - share) for sure, share, n in bins) / count
    order = confidence.argsort(descending=True, stable=True)
    wrong = (1 - right[order]).cumsum(0)
    ends = [max(1, -(-count * percent // 100)) for percent in range(1, 101)]
    risk = [(n / count, float(wrong[n - 1]) / n, float(confidence[order[n - 1]])) for n in ends]
    return Reliability(count, ece, tuple(bins), tuple(dict.fromkeys(risk)))


def separation(own: Tensor, other: Tensor) -> float:
    """Return how often an image of one's own has a higher confidence than another: 0.5 is chance (area under the ROC).

    Args:
        own: Confidences of images of the kind a restorer was trained on.
        other: Confidences of images of another kind.
    """
    ordered, own = other.sort().values, own.contiguous()
    below, upto = (torch.searchsorted(ordered, own, right=right).double().mean() for right in (False, True))
    return float(below + upto) / 2 / len(other)


class _Block(NamedTuple):
    """Neighbouring images that are as often right as each other."""

    images: int
    right: float
    lowest: float
    highest: float
    ends: tuple[float, float]
    """Between which confidences the curve is flat: of one group the mean, of several from the lowest to the highest."""

    @property
    def share(self) -> int:
        """The share that is right, counted with one right and one wrong image more: never 0 or 1."""
        return round(Curve.WHOLE * (self.right + 1) / (self.images + 2))

    @property
    def knots(self) -> list[tuple[int, int]]:
        """Its two ends, a step apart because a curve rises; one knot where they are the same."""
        first, last = (round(Curve.WHOLE * end) for end in self.ends)
        return [(last, self.share)] if first == last else [(first, self.share - 1), (last, self.share)]

    def rises_to(self, other: _Block) -> bool:
        """Return whether a curve can go through both."""
        return all(low < high for low, high in zip(self.knots[-1], other.knots[0], strict=True))

    def joined(self, other: _Block) -> _Block:
        """Return both as one."""
        low, high = self.lowest, other.highest
        return _Block(self.images + other.images, self.right + other.right, low, high, (low, high))


def curve_of(confidence: Tensor, right: Tensor) -> Curve | None:
    """Return the rising curve from confidence to the share that is right; None of too few images to tell.

    Images of neighbouring confidence are one group, and groups whose shares do not rise are one block (isotonic
    regression), so that a few images are told how often all of them are right.
    """
    if len(confidence) < FEWEST:
        return None
    order = confidence.argsort(stable=True)
    blocks: list[_Block] = []
    for group in order.tensor_split(min(GROUPS, 2 * len(order) // FEWEST)):
        sure, mean = confidence[group], float(confidence[group].mean())
        new = _Block(len(group), float(right[group].sum()), float(sure[0]), float(sure[-1]), (mean, mean))
        while blocks and not blocks[-1].rises_to(new):
            new = blocks.pop().joined(new)
        blocks.append(new)
    knots = itertools.chain.from_iterable(block.knots for block in blocks)
    return Curve([knot for knot in knots if 0 < knot[0] < Curve.WHOLE])


def calibrate(restorer: Restorer | Chain, batches: Callable[[], Iterable[Batch]]) -> Judged:
    """Make the confidence of a restorer the probability that the pose it finds is exactly right.

    A chain is calibrated stage by stage, each on what the stages before it have undone.

    Args:
        restorer: Its curves are replaced, by none where there are too few images to tell.
        batches: Reads unmoved images that it was not trained on, from the first.

    Returns:
        What it finds on these images, with the confidences as they now are. The metadata tell how far off they were,
        and nothing of a calibration where there were too few.

    Raises:
        ValueError: If it lets images pass.
    """
    if restorer.min_confidence:
        raise ValueError(f"set min_confidence to 0 before calibrating a restorer; it is {restorer.min_confidence}")
    stages = restorer.stages
    for stage in stages:
        stage.curve = None
    raw = found = judge(restorer, batches())
    for number, stage in enumerate(stages):
        if len(stages) > 1:
            before = nn.Sequential(*stages[:number])
            found = judge(stage, ([before(images) for images in batch] for batch in batches()))
        stage.curve = curve_of(found.confidence, found.right)
    judged = judge(restorer, batches())
    worth = [reliability(one.confidence, one.right).ece for one in (raw, judged)]
    restorer.metadata.pop("calibration", None)
    if all(stage.curve is not None for stage in stages):
        restorer.metadata["calibration"] = {"images": len(judged.right), "ece_before": worth[0], "ece": worth[1]}
    return judged
