"""Measure how often a restorer is right, how reliable its confidence is, and what a classifier gains by it.

Protocol (the paper's, section 5.1): each test image is moved at random by the restorer's coordinates, and classified
with and without the restorer, which runs on every moved image: exactness is not assumed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from unshift import distributed as ranks
from unshift.coordinates import draw_shifts, rows
from unshift.coordinates.lossy import Kind, Moves
from unshift.data.reading import Batch, Reader, one_tensor, open_reader
from unshift.exact import Curve
from unshift.inputs import Images, batches
from unshift.progress import Progress, tracked
from unshift.restorer import Chain, Restorer
from unshift.shifts import check_images

__all__ = ["FEWEST", "Judged", "Rates", "Reliability", "ScopeRow", "accuracy", "accuracy_over_scopes",
           "calibrate", "curve_of", "in_its_dtype", "judge", "judged_on", "predict", "random_shifts",
           "rates_from", "reliability", "restoration_rates"]  # fmt: skip

Classifier = Callable[[Tensor], Tensor]


# --- how often a restorer is right -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Record:
    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Rates(_Record):
    """The success rates of a restorer on unmoved images and hence, because it is exact, on all their moves."""

    images: int
    exact: float
    """Share of images restored to themselves."""
    within_1: float
    """Share restored to within one step: one pixel along every axis, for shifts."""
    confidence: float
    """Mean confidence."""
    tied: int
    """Number of images on which the tie rule had to choose."""


class Judged(NamedTuple):
    """The result of restoring unmoved images, one entry per image."""

    confidence: Tensor
    """float64 ``(n,)``."""
    distance: Tensor
    """float64 ``(n,)``: distance of the estimated pose from the identity, in steps."""
    tied: Tensor
    """bool ``(n,)``."""

    @property
    def right(self) -> Tensor:
        """True where the pose is exactly right, bool ``(n,)``."""
        return self.distance == 0


def restoration_rates(
    restorer: Restorer | Chain,
    images: Images | Dataset[Tensor] | Reader,
    *,
    batch_size: int = 256,
    progress: bool = False,
) -> Rates:
    """Measure how often a restorer leaves unmoved images where they are.

    Args:
        restorer: The restorer to measure.
        images: Unmoved images. A data set is read batch by batch.
        batch_size: Images per batch.
        progress: Show progress.
    """
    return rates_from(judged_on(restorer, images, batch_size=batch_size, progress=progress))


def judged_on(
    restorer: Restorer | Chain,
    images: Images | Dataset[Tensor] | Reader,
    *,
    batch_size: int = 256,
    progress: bool = False,
) -> Judged:
    """Restore unmoved images and return the result of each. The arguments are those of :func:`restoration_rates`."""
    reader = open_reader(images)
    if not len(reader):
        raise ValueError("no images to measure on")
    ranks.check_enough(len(reader))
    parts = [rows for rows in map(ranks.share, reader.rows(batch_size)) if len(rows)]
    return judge(restorer, tracked(reader.read(parts), "rates", "batches", progress, len(parts)))


def judge(restorer: Restorer | Chain, batches: Iterable[Batch]) -> Judged:
    """Restore unmoved images, this rank's share of them, and gather the results of all ranks."""
    results = [torch.zeros(0, 3, dtype=torch.float64)]
    for images in itertools.chain.from_iterable(batches):
        estimate = restorer.estimate(images)
        distance = restorer.coordinates.distance(estimate, check_images(images))
        if estimate.rejected is not None:  # passed unchanged, which is not the same as restored
            distance = torch.where(estimate.rejected, math.inf, distance)
        parts = (estimate.confidence, distance, estimate.tied.to(torch.float64))
        results.append(torch.stack([part.cpu() for part in parts], 1))
    confidence, distance, tied = ranks.gathered(torch.cat(results)).unbind(1)
    return Judged(confidence, distance, tied.bool())


def rates_from(judged: Judged) -> Rates:
    """Summarise results."""
    count = len(judged.distance)
    exact, within_1 = (int((judged.distance <= most).sum()) for most in (0, 1))
    return Rates(count, exact / count, within_1 / count, float(judged.confidence.mean()), int(judged.tied.sum()))


# --- classifiers -------------------------------------------------------------------------------------------------


def random_shifts(n: int, axes: int, scope: int, seed: int) -> Tensor:
    """Draw random shifts, int64 ``(n, axes)``.

    Args:
        n: Number of shifts.
        axes: Number of spatial axes.
        scope: Each axis is uniform in ``[-scope, scope]``.
        seed: The same seed gives the same shifts.
    """
    return draw_shifts((1,) * axes, n, scope, torch.Generator().manual_seed(seed))


def in_its_dtype(classifier: Classifier) -> Classifier:
    """Return a classifier that converts images to the floating-point dtype of its parameters."""
    if not isinstance(classifier, nn.Module):
        return classifier
    state = itertools.chain(classifier.parameters(), classifier.buffers())
    dtype = next((tensor.dtype for tensor in state if tensor.is_floating_point()), torch.float32)
    return classifier if dtype == torch.float32 else lambda images: classifier(images.to(dtype))


@torch.no_grad()
def predict(classifier: Classifier, images: Tensor, *, batch_size: int = 256) -> Tensor:
    """Return the predicted class of each image, ``(n,)``.

    Args:
        classifier: Maps images to logits.
        images: ``(n, channel, *spatial)``.
        batch_size: Images per batch.
    """
    classes = []
    classifier = in_its_dtype(classifier)
    for batch in batches(images, batch_size):
        logits = classifier(batch)
        if logits.ndim != 2 or len(logits) != len(batch):
            raise ValueError(
                f"a classifier must return logits (batch, classes), got {tuple(logits.shape)} for {len(batch)} images"
            )
        classes.append(logits.argmax(1))
    return torch.cat(classes) if classes else torch.zeros(0, dtype=torch.int64)


def accuracy(classifier: Classifier, images: Tensor, labels: Tensor, *, batch_size: int = 256) -> float:
    """Return the share of images that are classified correctly.

    Args:
        classifier: Maps images to logits.
        images: ``(n, channel, *spatial)``.
        labels: The true classes, ``(n,)``.
        batch_size: Images per batch.
    """
    return float((predict(classifier, images, batch_size=batch_size) == labels).double().mean())


@dataclass(frozen=True)
class ScopeRow(_Record):
    """Accuracy at one translation scope: a column of the paper's Table 1. Shares in [0, 1], over seeds."""

    scope: int | None
    images: int
    seeds: tuple[int, ...]
    without: tuple[float, ...]
    """Accuracy without the restorer, one per seed."""
    restored: tuple[float, ...]
    """Accuracy with the restorer, one per seed."""
    consistent_without: float
    """Share of images with the same predicted class for all seeds, without the restorer."""
    consistent_restored: float
    """The same with the restorer."""

    @property
    def effect(self) -> float:
        """Mean gain of the restorer, in [-1, 1]."""
        return sum(self.restored) / len(self.restored) - sum(self.without) / len(self.without)


def accuracy_over_scopes(
    classifier: Classifier,
    images: Images | Dataset[Tensor] | Reader,
    labels: Tensor,
    restorer: Restorer | Chain,
    *,
    scopes: Iterable[int | None] = range(9),
    seeds: Sequence[int] = (0,),
    moves: Kind = "circular",
    batch_size: int = 256,
    progress: bool = False,
) -> list[ScopeRow]:
    """Classify moved images with and without ``restorer``, for each scope and seed.

    Args:
        classifier: Maps images to logits.
        images: Unmoved images. A data set is read once, batch by batch.
        labels: The true classes.
        restorer: Its coordinates draw the moves, in their own unit, and apply them.
        scopes: The largest moves, e.g. in pixels; None for any move at all.
        seeds: Seeds of the random moves.
        moves: The pixels that fill the vacated side, as in :mod:`unshift.coordinates.lossy`. With crops, the
            classifier sees images that are smaller by the largest scope on every side.
        batch_size: Images per batch.
        progress: Show progress.
    """
    coordinates, reader, classifier = restorer.coordinates, open_reader(images), in_its_dtype(classifier)
    scopes = list(scopes)
    runs = [(scope, seed) for scope in scopes for seed in seeds]
    lossy = Moves(moves, coordinates, None if None in scopes else max(scope or 0 for scope in scopes))
    size = lossy.visible_size(check_images(one_tensor(next(reader.read([torch.zeros(1, dtype=torch.int64)])))))
    # Drawn for all images at once, so that they depend neither on batches nor on ranks.
    poses = {run: coordinates.draw(size, len(reader), run[0], torch.Generator().manual_seed(run[1])) for run in runs}
    parts = [part for part in map(ranks.share, reader.rows(batch_size)) if len(part)]
    table = [torch.zeros(0, 1 + 2 * len(runs), dtype=torch.int64)]
    with Progress("scopes", len(parts) * len(runs), "runs", progress) as bar:
        for at, batch in zip(parts, reader.read(parts), strict=True):
            columns = [at]
            for run in runs:
                moved = lossy.move(one_tensor(batch), rows(poses[run], at))
                columns += [predict(classifier, each, batch_size=batch_size) for each in (moved, restorer(moved))]
                bar.update()
            table.append(torch.stack(columns, 1).cpu())
    gathered = ranks.gathered(torch.cat(table))
    classes = gathered[gathered[:, 0].argsort(), 1:].unflatten(1, (len(scopes), len(seeds), 2))
    right = (classes == labels.view(-1, 1, 1, 1)).double().mean(0)
    same = (classes == classes[:, :, :1]).all(2).double().mean(0)
    result = []
    for k, scope in enumerate(scopes):
        without, restored = map(tuple, right[k].T.tolist())
        result.append(ScopeRow(scope, len(reader), tuple(seeds), without, restored, *same[k].tolist()))
    return result


# --- the reliability of confidences ------------------------------------------------------------------------------

BINS = 15  # bins of equal width for the calibration error (Guo et al., 2017)
GROUPS = 20  # largest number of equal groups of images from which a curve is fitted
FEWEST = 10  # smallest number of images to calibrate on; a group has at least half as many


@dataclass(frozen=True)
class Reliability(_Record):
    """The reliability of confidences, as probabilities and for ranking images."""

    images: int
    ece: float
    """Expected calibration error: the mean distance between confidence and accuracy over 15 bins."""
    bins: tuple[tuple[float, float, int], ...]
    """Mean confidence, share that is right, and number of images, of each bin that is not empty."""
    risk: tuple[tuple[float, float, float], ...]
    """Coverage, error rate among the images covered, and the lowest confidence among them."""

    def risk_at(self, coverage: float) -> float:
        """Return the error rate of the share ``coverage`` of images with the highest confidence."""
        return next(risk for share, risk, _ in self.risk if share >= coverage - 1e-9)

    def as_dict(self) -> dict[str, Any]:
        """See :class:`_Record`."""
        return {**super().as_dict(), "risk_at_90": self.risk_at(0.9)}


def reliability(confidence: Tensor, right: Tensor) -> Reliability:
    """Compare confidences, float64 ``(n,)``, with outcomes, bool ``(n,)``."""
    count, right = len(confidence), right.double()
    if not count:
        raise ValueError("no images to compare confidences on")
    number = (confidence * BINS).to(torch.int64).clamp(max=BINS - 1)
    bins = []
    for at in range(BINS):
        inside = number == at
        if inside.any():
            bins.append((float(confidence[inside].mean()), float(right[inside].mean()), int(inside.sum())))
    ece = sum(n * abs(mean - share) for mean, share, n in bins) / count
    order = confidence.argsort(descending=True, stable=True)
    wrong = (1 - right[order]).cumsum(0)
    ends = [max(1, -(-count * percent // 100)) for percent in range(1, 101)]
    risk = [(n / count, float(wrong[n - 1]) / n, float(confidence[order[n - 1]])) for n in ends]
    return Reliability(count, ece, tuple(bins), tuple(dict.fromkeys(risk)))


# --- calibration -------------------------------------------------------------------------------------------------


def curve_of(confidence: Tensor, right: Tensor) -> Curve | None:
    """Fit a rising curve from confidence to the share that is right; return None for fewer than ten images.

    Isotonic regression on groups: images of neighbouring confidence form groups, and neighbouring groups are merged
    until their shares rise. A single group is a knot at its mean confidence; over merged ones the curve is nearly flat.
    """
    if len(confidence) < FEWEST:
        return None
    order = confidence.argsort(stable=True)
    blocks: list[tuple[Tensor, list[tuple[int, int]]]] = []
    for group in order.tensor_split(min(GROUPS, 2 * len(order) // FEWEST)):
        knots = _knots(confidence[group], right[group], merged=False)
        while blocks and not all(low < high for low, high in zip(blocks[-1][1][-1], knots[0], strict=True)):
            group = torch.cat([blocks.pop()[0], group])
            knots = _knots(confidence[group], right[group], merged=True)
        blocks.append((group, knots))
    return Curve([knot for _, knots in blocks for knot in knots if 0 < knot[0] < Curve.WHOLE])


def _knots(confidence: Tensor, right: Tensor, merged: bool) -> list[tuple[int, int]]:
    """Return the knot of a single group, or the two end knots of merged groups, one step apart as a curve must rise."""
    # Add one right and one wrong image, so that the share is never 0 or 1.
    share = round(Curve.WHOLE * (float(right.sum()) + 1) / (len(right) + 2))
    if not merged:
        return [(round(Curve.WHOLE * float(confidence.mean())), share)]
    first, last = (round(Curve.WHOLE * float(end)) for end in (confidence[0], confidence[-1]))
    return [(last, share)] if first == last else [(first, share - 1), (last, share)]


def calibrate(restorer: Restorer | Chain, batches: Callable[[], Iterable[Batch]]) -> Judged:
    """Turn a restorer's confidence into the probability that the estimated pose is exactly right.

    A chain is calibrated stage by stage, each on images restored by the stages before it. The calibration errors before
    and after are stored in the metadata. With too few images, curves are replaced by none.

    ``batches`` returns batches of unmoved images that it was not trained on; it is called several times. Return the
    results on these images, with the calibrated confidences.
    """
    if restorer.min_confidence:
        raise ValueError(f"set min_confidence to 0 before calibrating a restorer; it is {restorer.min_confidence}")
    before = judge(restorer, batches())
    for number, stage in enumerate(restorer.stages):
        stage.curve, earlier = None, nn.Sequential(*restorer.stages[:number])
        judged = judge(stage, ([earlier(images) for images in batch] for batch in batches()))
        stage.curve = curve_of(judged.confidence, judged.right)
    after = judge(restorer, batches())
    restorer.metadata.pop("calibration", None)
    if all(stage.curve is not None for stage in restorer.stages):
        ece_before, ece = (reliability(each.confidence, each.right).ece for each in (before, after))
        restorer.metadata["calibration"] = {"images": len(after.right), "ece_before": ece_before, "ece": ece}
    return after
