"""Restorer: coordinates, estimate, undo. Images in, images out; the classifier follows.

    model = torch.nn.Sequential(restorer, classifier)

A :class:`Chain` of restorers is a restorer: it undoes one kind of move after another. All take a list of arrays of
different sizes as well as a tensor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unshift.coordinates import Canvas, Chained, merged
from unshift.exact import Curve, Scores, choose, confidence, is_traced, score_map
from unshift.several import runners_up
from unshift.undoing import Estimate, Undoing, check_finite, joined

__all__ = ["Chain", "Estimate", "Restorer", "check_finite"]

BLOCK = 2**17
"""Positions to choose among at a time: what stays in the cache. ``benchmarks/run.py blocks``."""
LINE_BLOCK = 2**21
"""The same of a net of lines, which makes no map of them: enough that a call's own cost does not count."""

NOT_ASKED = torch.empty(0, dtype=torch.float64)
"""The confidences of an estimate that is only to be undone."""


class Restorer(Undoing):
    """Undo the pose of images before anything else sees them, exactly.

    For every image ``x`` and every move ``m`` of the coordinates' group, ``restorer(move(x, m))`` equals
    ``restorer(x)`` bit for bit (with padding, for shifts on the padded canvas).

    The undo moves pixels (for a rotation: quarter turns, then a bilinear rest), so gradients pass through it.

    Args:
        scorer: Any module from canvases to equivariant **int64** scores ``(batch, *positions)``:
            :func:`unshift.quantise` makes one from a trained estimator, ``unshift.theory`` constructs one.
        coordinates: What to undo: one of ``unshift.coordinates``. Default: circular shifts.
        pad: Short for ``Canvas(pad)``.
    """

    def __init__(self, scorer: nn.Module, *, coordinates: Any = None, pad: int = 0) -> None:
        super().__init__()
        if coordinates is not None and pad:
            raise ValueError("give pad or coordinates, not both")
        self.scorer = scorer
        self.coordinates = coordinates if coordinates is not None else Canvas(pad)
        self.curve: Curve | None = None  # from the confidence to a probability, once it is calibrated
        getattr(scorer, "score_unit", None)  # read now: a graph made of this module cannot

    @property
    def stages(self) -> list[Restorer]:
        """The restorers that work one after another: here, this one."""
        return [self]

    def _estimated(self, images: Tensor, of: Tensor, sure: bool = True) -> Estimate:
        if is_traced() or images.shape[0] == 1:
            return self.read(images, of, sure)[0]
        lines = getattr(self.scorer, "along", None) is not None
        block = max(1, (LINE_BLOCK if lines else BLOCK) // math.prod(images.shape[2:]))
        if len(images) <= block:
            return self.read(images, of, sure)[0]
        starts = range(0, len(images), block)
        return joined([self.read(images[at : at + block], of[at : at + block], sure)[0] for at in starts])

    def _several(self, images: Tensor, of: Tensor, top: int) -> list[Estimate]:
        first, read = self.read(images, of)
        size = tuple(images.shape[2:])
        if isinstance(read, Tensor) and read.shape[1] > 1:
            raise ValueError(
                f"top is for restorers that undo nothing but shifts; this one undoes {self.coordinates.undoes}"
            )
        scores, found = score_map(read)[:, None], [first]
        for index, tied, sure in runners_up(
            scores,
            lambda: self.coordinates.looks(of),
            self.coordinates.candidate(first, size),
            self.coordinates.apart(scores.ndim - 2),
            top - 1,
            getattr(self.scorer, "score_unit", 1.0),
        ):
            pose = self.coordinates.pose(index, scores, size)
            found.append(Estimate(pose.shift, pose.turn, pose.angle, self._probable(sure), tied))
        return found

    def read(self, images: Tensor, of: Tensor, sure: bool = True) -> tuple[Estimate, Scores]:
        """Return the estimate of one block of images, unchecked, and the scores it was read off.

        Without ``sure`` the confidences are left out: an empty tensor.
        """
        coordinates = self.coordinates
        canvas = coordinates.canvas(images)
        along = getattr(self.scorer, "along", None)  # a net of lines: of one copy, its map need not be made
        scores = self.scores(canvas) if along is None or canvas.shape[1] > 1 else along(canvas[:, 0])
        settle: Callable[..., Tensor] = lambda *found: coordinates.settle(of, scores, *found)  # noqa: E731
        index, tied = choose(scores, lambda: coordinates.looks(of), settle)
        pose = coordinates.pose(index, scores, tuple(images.shape[2:]))
        if not sure:
            return Estimate(pose.shift, pose.turn, pose.angle, NOT_ASKED, tied), scores
        probable = self._probable(confidence(scores, getattr(self.scorer, "score_unit", 1.0)))
        if is_traced():  # a graph cannot refuse an image that is not finite
            probable = torch.where(images.isfinite().flatten(1).all(1), probable, math.nan)
        return Estimate(pose.shift, pose.turn, pose.angle, probable, tied), scores

    def _probable(self, sure: Tensor) -> Tensor:
        return sure if self.curve is None else self.curve(sure)

    @torch.no_grad()
    def scores(self, canvas: Tensor) -> Tensor:
        """Score canvases ``(batch, copies, channel, *positions)``: int64 ``(batch, copies, *positions)``."""
        flat = canvas.flatten(0, 1)
        scores = self.scorer(flat)
        wanted = (flat.shape[0], *flat.shape[2:])
        if not isinstance(scores, Tensor) or tuple(scores.shape) != tuple(wanted):
            found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(f"a scorer must return scores (batch, *spatial) = {tuple(wanted)}, got {found}")
        if scores.dtype != torch.int64:
            raise ValueError(
                f"a Restorer wants int64 scores, got {scores.dtype}: float scores cannot be exact. "
                "Turn the estimator into integers with unshift.quantise(estimator, sample_images)"
            )
        return scores.view(*canvas.shape[:2], *scores.shape[1:])


class Chain(Undoing):
    """Restorers one after another, as one: first the centre, then the turn.

    Args:
        restorers: In the order in which they undo. Each reads another part of the pose.
    """

    def __init__(self, *restorers: Restorer) -> None:
        super().__init__()
        self.restorers = nn.ModuleList(restorers)
        self.coordinates = Chained([restorer.coordinates for restorer in restorers])

    @property
    def stages(self) -> list[Restorer]:
        """The restorers that work one after another."""
        return list(self.restorers)  # type: ignore[arg-type]

    def _estimated(self, images: Tensor, of: Tensor, sure: bool = True) -> Estimate:
        """See :class:`Undoing`. The confidence is the product of the stages'; one tie makes it tied."""
        return self._staged(images, of, lambda stage, *shown: stage._estimated(*shown, sure))

    def read(self, images: Tensor, of: Tensor) -> tuple[Estimate, Scores]:
        """Return the estimate of one block of images, unchecked, and the scores of the first stage."""
        scores: list[Scores] = []

        def look(stage: Restorer, *shown: Any) -> Estimate:
            estimate, found = stage.read(*shown)
            scores.append(found)
            return estimate

        return self._staged(images, of, look), scores[0]

    def _staged(self, images: Tensor, of: Tensor, look: Callable[..., Estimate]) -> Estimate:
        """Let each stage look at what the ones before it have undone, and join what they read."""
        found: list[Estimate] = []
        for stage in self.stages:
            found.append(look(stage, images, of))
            if stage is not self.stages[-1]:
                images, of = (stage.coordinates.undo(shown, found[-1]) for shown in (images, of))
        pose = merged(found, [stage.coordinates.reads for stage in self.stages])
        sure = functools.reduce(torch.mul, [one.confidence for one in found])
        return Estimate(*pose, sure, torch.stack([one.tied for one in found]).any(0))
