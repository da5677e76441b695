"""Measure: how often a restorer is right, and what a classifier gains by it.

Protocol (the paper's, section 5.1): each test image is moved at random by what the restorer's coordinates draw (a
circular shift, uniform in ``[-scope, scope]`` along every axis; a turn; an angle), and classified with and without the
restorer. The restorer is really run on every moved image: nothing is taken for granted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from unshift.coordinates import draw_shifts
from unshift.progress import Progress, tracked
from unshift.ragged import Images, batches
from unshift.restorer import Chain, Restorer
from unshift.shifts import check_images

__all__ = ["Rates", "ScopeRow", "accuracy", "accuracy_over_scopes", "predict", "random_shifts", "restoration_rates"]

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
    restorer: Restorer | Chain, images: Images, *, batch_size: int = 256, progress: bool = False
) -> Rates:
    """Measure how often ``restorer`` leaves unmoved ``images`` where they are."""
    if not len(images):
        raise ValueError("no images to measure on")
    exact = within_1 = tied = 0
    total = torch.zeros((), dtype=torch.float64)
    for batch in tracked(list(batches(images, batch_size)), "rates", "batches", progress):
        estimate = restorer.estimate(batch)
        distance = restorer.coordinates.distance(estimate, check_images(batch))
        exact += int((distance == 0).sum())
        within_1 += int((distance <= 1).sum())
        tied += int(estimate.tied.sum())
        total += estimate.confidence.cpu().sum()
    n = len(images)
    return Rates(n, exact / n, within_1 / n, float(total) / n, tied)


def random_shifts(n: int, axes: int, scope: int, seed: int) -> Tensor:
    """Draw ``n`` shifts, each axis uniform in ``[-scope, scope]``; the same seed, the same shifts."""
    return draw_shifts((1,) * axes, n, scope, torch.Generator().manual_seed(seed))


@torch.no_grad()
def predict(classifier: Classifier, images: Tensor, *, batch_size: int = 256) -> Tensor:
    """Return the predicted class of each image, ``(n,)``."""
    classes = []
    for batch in images.split(batch_size):
        logits = classifier(batch)
        if logits.ndim != 2 or len(logits) != len(batch):
            raise ValueError(
                f"a classifier must return logits (batch, classes), got {tuple(logits.shape)} for {len(batch)} images"
            )
        classes.append(logits.argmax(1))
    return torch.cat(classes) if classes else torch.zeros(0, dtype=torch.int64)


def accuracy(classifier: Classifier, images: Tensor, labels: Tensor, *, batch_size: int = 256) -> float:
    """Return the share of ``images`` that ``classifier`` puts in their class."""
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
    images: Tensor,
    labels: Tensor,
    restorer: Restorer | Chain,
    *,
    scopes: Iterable[int | None] = range(9),
    seeds: Sequence[int] = (0,),
    batch_size: int = 256,
    progress: bool = False,
) -> list[ScopeRow]:
    """Classify moved images with and without ``restorer``, for each scope and seed.

    Args:
        classifier: Images to logits.
        images: Unmoved.
        labels: Their classes.
        restorer: Its coordinates draw the moves, in their own unit, and do them.
        scopes: The largest moves, e.g. in pixels; None for any move at all.
        seeds: One draw of the moves each.
        batch_size: Images at a time.
        progress: Tell how far it is.
    """
    coordinates, size = restorer.coordinates, check_images(images)
    rows = []
    todo = list(scopes)
    whole = lambda batch: classifier(restorer(batch))  # noqa: E731
    with Progress("scopes", len(todo) * len(seeds), "runs", progress) as told:
        for scope in todo:
            bare, restored = [], []
            for seed in seeds:
                pose = coordinates.draw(size, len(images), scope, torch.Generator().manual_seed(seed))
                moved = coordinates.move(images, pose)
                bare.append(predict(classifier, moved, batch_size=batch_size))
                restored.append(predict(whole, moved, batch_size=batch_size))
                told.update()
            rows.append(
                ScopeRow(
                    scope=scope,
                    images=len(images),
                    seeds=tuple(seeds),
                    without=tuple(float((p == labels).double().mean()) for p in bare),
                    restored=tuple(float((p == labels).double().mean()) for p in restored),
                    consistent_without=_consistency(bare),
                    consistent_restored=_consistency(restored),
                )
            )
    return rows


def _consistency(predictions: Sequence[Tensor]) -> float:
    stacked = torch.stack(list(predictions))
    return float((stacked == stacked[0]).all(0).double().mean())
