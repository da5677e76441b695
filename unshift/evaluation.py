"""Measure: how often a restorer is right, and what a classifier gains by it.

Protocol (the paper's, section 5.1): each test image is moved at random by what the restorer's coordinates draw (a
circular shift, uniform in ``[-scope, scope]`` along every axis; a turn; an angle), and classified with and without the
restorer. The restorer is really run on every moved image: nothing is taken for granted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from unshift import ranks
from unshift.coordinates import draw_shifts, rows
from unshift.data.batches import one_tensor
from unshift.data.reading import Reader, open_reader
from unshift.moves import Kind, Moves
from unshift.progress import Progress, tracked
from unshift.ragged import Images
from unshift.reliability import Judged, judge
from unshift.restorer import Chain, Restorer
from unshift.shifts import check_images

__all__ = [
    "Rates",
    "ScopeRow",
    "accuracy",
    "accuracy_over_scopes",
    "in_its_dtype",
    "judged_on",
    "predict",
    "random_shifts",
    "rates_from",
    "restoration_rates",
]

Classifier = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Rates:
    """How a restorer does on unshifted images, and so, being exact, on all their shifts."""

    images: int
    exact: float
    """share of images restored to themselves"""
    within_1: float
    """share restored to within one pixel along every axis"""
    confidence: float
    """mean confidence"""
    tied: int
    """images on which the tie rule had to choose"""

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, for JSON."""
        return asdict(self)


def restoration_rates(
    restorer: Restorer | Chain,
    images: Images | Dataset[Tensor] | Reader,
    *,
    batch_size: int = 256,
    progress: bool = False,
) -> Rates:
    """Measure how often a restorer leaves unmoved images where they are.

    Args:
        restorer: What is measured.
        images: Unmoved; a data set is read as it is needed.
        batch_size: Images at a time.
        progress: Tell how far it is.
    """
    return rates_from(judged_on(restorer, images, batch_size=batch_size, progress=progress))


def judged_on(
    restorer: Restorer | Chain,
    images: Images | Dataset[Tensor] | Reader,
    *,
    batch_size: int = 256,
    progress: bool = False,
) -> Judged:
    """Restore unmoved images, and return what became of each. The arguments are those of :func:`restoration_rates`."""
    reader = open_reader(images)
    if not len(reader):
        raise ValueError("no images to measure on")
    ranks.check_enough(len(reader))
    parts = [some for some in map(ranks.share, reader.rows(batch_size)) if len(some)]
    return judge(restorer, tracked(reader.read(parts), "rates", "batches", progress, len(parts)))


def rates_from(judged: Judged) -> Rates:
    """Sum up what became of some images."""
    count = len(judged.distance)
    exact, within_1 = (int((judged.distance <= most).sum()) for most in (0, 1))
    return Rates(count, exact / count, within_1 / count, float(judged.confidence.mean()), int(judged.tied.sum()))


def random_shifts(n: int, axes: int, scope: int, seed: int) -> Tensor:
    """Draw random shifts.

    Args:
        n: How many.
        axes: Spatial axes.
        scope: Each axis is uniform in ``[-scope, scope]``.
        seed: The same seed gives the same shifts.

    Returns:
        int64 ``(n, axes)``.
    """
    return draw_shifts((1,) * axes, n, scope, torch.Generator().manual_seed(seed))


def in_its_dtype(classifier: Classifier) -> Classifier:
    """Hand images to a classifier of half or double precision in its own."""
    if not isinstance(classifier, nn.Module):
        return classifier
    state = itertools.chain(classifier.parameters(), classifier.buffers())
    kind = next((tensor.dtype for tensor in state if tensor.is_floating_point()), torch.float32)
    return classifier if kind == torch.float32 else lambda images: classifier(images.to(kind))


@torch.no_grad()
def predict(classifier: Classifier, images: Tensor, *, batch_size: int = 256) -> Tensor:
    """Classify images.

    Args:
        classifier: Images to logits.
        images: ``(n, channel, *spatial)``.
        batch_size: Images at a time.

    Returns:
        The predicted class of each image, ``(n,)``.
    """
    classes = []
    classifier = in_its_dtype(classifier)
    for batch in images.split(batch_size):
        logits = classifier(batch)
        if logits.ndim != 2 or len(logits) != len(batch):
            raise ValueError(
                f"a classifier must return logits (batch, classes), got {tuple(logits.shape)} for {len(batch)} images"
            )
        classes.append(logits.argmax(1))
    return torch.cat(classes) if classes else torch.zeros(0, dtype=torch.int64)


def accuracy(classifier: Classifier, images: Tensor, labels: Tensor, *, batch_size: int = 256) -> float:
    """Return the share of images that a classifier puts in their class.

    Args:
        classifier: Images to logits.
        images: ``(n, channel, *spatial)``.
        labels: Their classes, ``(n,)``.
        batch_size: Images at a time.
    """
    return float((predict(classifier, images, batch_size=batch_size) == labels).double().mean())


@dataclass(frozen=True)
class ScopeRow:
    """Accuracy at one translation scope: a column of the paper's Table 1. Shares in [0, 1], over seeds."""

    scope: int | None
    images: int
    seeds: tuple[int, ...]
    without: tuple[float, ...]
    """accuracy without the restorer, one per seed"""
    restored: tuple[float, ...]
    """accuracy with the restorer, one per seed"""
    consistent_without: float
    """share of images with the same predicted class under all seeds' shifts, without the restorer"""
    consistent_restored: float

    @property
    def effect(self) -> float:
        """Mean gain of the restorer, in [-1, 1]."""
        return sum(self.restored) / len(self.restored) - sum(self.without) / len(self.without)

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, for JSON."""
        return asdict(self)


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
        classifier: Images to logits.
        images: Unmoved; a data set is read once, as it is needed.
        labels: Their classes.
        restorer: Its coordinates draw the moves, in their own unit, and do them.
        scopes: The largest moves, e.g. in pixels; None for any move at all.
        seeds: One draw of the moves each.
        moves: What they lose: see :mod:`unshift.moves`. Crops are windows that leave the largest scope on every side.
        batch_size: Images at a time.
        progress: Tell how far it is.
    """
    coordinates, reader, classifier = restorer.coordinates, open_reader(images), in_its_dtype(classifier)
    todo = list(scopes)
    runs = [(scope, seed) for scope in todo for seed in seeds]
    real = Moves(moves, coordinates, None if None in todo else max(scope or 0 for scope in todo))
    first = real.seen(check_images(one_tensor(next(reader.read([torch.zeros(1, dtype=torch.int64)])))))
    # Drawn for all images at once, so that neither batches nor ranks show in them.
    poses = {run: coordinates.draw(first, len(reader), run[0], torch.Generator().manual_seed(run[1])) for run in runs}
    parts = [some for some in map(ranks.share, reader.rows(batch_size)) if len(some)]
    found: dict[str, list[Tensor]] = {"bare": [], "restored": []}
    with Progress("scopes", len(parts) * len(runs), "runs", progress) as told:
        for at, batch in zip(parts, reader.read(parts), strict=True):
            predicted: dict[str, list[Tensor]] = {"bare": [], "restored": []}
            for run in runs:
                moved = real.move(one_tensor(batch), rows(poses[run], at))
                predicted["bare"].append(predict(classifier, moved, batch_size=batch_size))
                predicted["restored"].append(predict(lambda x: classifier(restorer(x)), moved, batch_size=batch_size))
                told.update()
            for kind, some in predicted.items():
                found[kind].append(torch.stack([at, *some], 1))
    bare, restored = (_in_order(found[kind], len(runs)) for kind in ("bare", "restored"))
    return [
        ScopeRow(
            scope=scope,
            images=len(reader),
            seeds=tuple(seeds),
            without=tuple(float((bare[run] == labels).double().mean()) for run in own),
            restored=tuple(float((restored[run] == labels).double().mean()) for run in own),
            consistent_without=_consistency([bare[run] for run in own]),
            consistent_restored=_consistency([restored[run] for run in own]),
        )
        for k, scope in enumerate(todo)
        for own in [range(k * len(seeds), (k + 1) * len(seeds))]
    ]


def _in_order(parts: list[Tensor], runs: int) -> Sequence[Tensor]:
    """Put the classes that all ranks predicted, each with the row of its image, into the order of the images."""
    table = ranks.gathered(torch.cat(parts).cpu() if parts else torch.zeros(0, runs + 1, dtype=torch.int64))
    return table[table[:, 0].argsort()].unbind(1)[1:]


def _consistency(predictions: Sequence[Tensor]) -> float:
    stacked = torch.stack(list(predictions))
    return float((stacked == stacked[0]).all(0).double().mean())
