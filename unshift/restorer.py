"""Restorer: coordinates, estimate, undo. Images in, images out; the classifier follows.

    model = torch.nn.Sequential(restorer, classifier)

A :class:`Chain` of restorers is a restorer: it undoes one kind of move after another. All take a list of arrays of
different sizes as well as a tensor.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from unshift.coordinates import Canvas, Chained, merged, rows
from unshift.exact import LineScores, choose, confidence, is_traced
from unshift.ragged import Images, is_ragged
from unshift.shifts import check_images

__all__ = ["Chain", "Estimate", "Restorer", "check_finite"]

BLOCK = 2**17
"""Positions to choose among at a time: what stays in the cache. ``benchmarks/run.py blocks``."""


class Estimate(NamedTuple):
    """What a restorer read off a batch of images: a pose, and how sure it is.

    ``restorer.undo(images, estimate)`` takes the pose back. Confidence and tie are the same for every move, to the last
    bit.
    """

    shift: Tensor
    """int64 ``(batch, d)``: the shift that was applied, in pixels along each axis of the image. Of a restorer that
    undoes nothing but circular shifts, without padding, ``unshift.undo(images, shift)`` takes it back."""
    turn: Tensor | None
    """int64 ``(batch,)``: the element of the group of turns; None where the restorer knows of none."""
    angle: Tensor | None
    """float64 ``(batch,)``: degrees counter-clockwise; None where the restorer knows of none."""
    confidence: Tensor
    """float64 ``(batch,)``: softmax probability of the chosen position, in (0, 1]."""
    tied: Tensor
    """bool ``(batch,)``: several positions had the highest score, and the tie rule chose among them."""


def check_finite(images: Tensor) -> None:
    """Raise a ``ValueError`` that counts the images with NaN or infinity, if any."""
    if images.is_floating_point():
        wide = images if images.element_size() > 1 else images.float()  # 8-bit floats know no isfinite
        if not wide.numel() or all(math.isfinite(float(end)) for end in wide.aminmax()):  # one pass, nothing kept
            return
        bad = (~torch.isfinite(wide)).flatten(1).any(1).nonzero().flatten()
        if len(bad):
            raise ValueError(f"images must be finite: NaN or infinity in {len(bad)} of them, first at {int(bad[0])}")


def _each(act: Callable[..., Tensor], images: Images, estimate: Any) -> Tensor | list[Tensor]:
    """Undo or redo a batch at once, or the arrays of a list one by one."""
    if isinstance(images, Tensor) or not is_ragged(images):
        return act(images, estimate)
    if len(images) != len(estimate.shift):
        raise ValueError(f"an estimate of {len(estimate.shift)} images does not fit {len(images)} of them")
    return [act(image[None], rows(estimate, slice(at, at + 1)))[0] for at, image in enumerate(images)]


def _joined(parts: Sequence[Estimate]) -> Estimate:
    """Join the estimates of several batches."""
    joined: list[Any] = [None if part[0] is None else torch.cat(part) for part in zip(*parts, strict=True)]
    return Estimate(*joined)


class _Undoing(nn.Module):
    """What a restorer and a chain of them share: everything that follows from an estimate."""

    coordinates: Any
    metadata: dict[str, Any]
    """What is known of these weights: training data, seed, measured rates. Saved with them; nothing acts on it."""
    trained_on: dict[str, Any]
    """What the images were like that it was trained on: size, channels, range, preparation. Saved with it."""

    def estimate(self, images: Images, of: Images | None = None) -> Estimate:
        """Read the pose off ``images``. Nothing is kept on the module.

        Args:
            images: ``(batch, channel, *spatial)``, or a list of ``(channel, *spatial)`` of any sizes.
            of: What will be undone, where the network sees another form of it (the grey of a colour image): ties are
                settled by comparing these. Default: ``images``.

        Raises:
            ValueError: If the images do not fit, or hold NaN or infinity.
        """
        if isinstance(images, Tensor) or not is_ragged(images):
            return self._estimate(images, of)  # type: ignore[arg-type]
        if not len(images):
            raise ValueError("no images to estimate the pose of: got an empty list")
        shown = images if of is None else of
        return _joined([self._estimate(image[None], look[None]) for image, look in zip(images, shown, strict=True)])

    def _estimate(self, images: Tensor, of: Tensor | None) -> Estimate:
        """Read the pose off images of one size."""
        raise NotImplementedError

    @overload
    def undo(self, images: Tensor, estimate: Any) -> Tensor: ...
    @overload
    def undo(self, images: Sequence[Tensor], estimate: Any) -> list[Tensor]: ...
    def undo(self, images: Images, estimate: Any) -> Tensor | list[Tensor]:
        """Take ``images`` back to where they were before the pose of ``estimate``: ``restore`` is this, estimated."""
        return _each(self.coordinates.undo, images, estimate)

    @overload
    def redo(self, images: Tensor, estimate: Any) -> Tensor: ...
    @overload
    def redo(self, images: Sequence[Tensor], estimate: Any) -> list[Tensor]: ...
    def redo(self, images: Images, estimate: Any) -> Tensor | list[Tensor]:
        """Put upright ``images`` back where the input was: a mask, a map of boxes, another image."""
        return _each(self.coordinates.redo, images, estimate)

    @overload
    def restore(self, images: Tensor) -> Tensor: ...
    @overload
    def restore(self, images: Sequence[Tensor]) -> list[Tensor]: ...
    def restore(self, images: Images) -> Tensor | list[Tensor]:
        """Estimate the pose of each image and undo it."""
        return self.undo(images, self.estimate(images))

    def forward(self, images: Tensor) -> Tensor:
        """Restore ``images``, so that ``nn.Sequential(restorer, classifier)`` is all there is to write."""
        return self.restore(images)

    def save(self, path: str | Path) -> None:
        """Write this restorer to one ``.safetensors`` file; :func:`unshift.load` reads it back."""
        from unshift.weights import save  # the file format stands below: this method is only its spelling

        save(self, path)  # type: ignore[arg-type]


class Restorer(_Undoing):
    """Undo the pose of images before anything else sees them, exactly.

    For every image ``x`` and every move ``m`` of the coordinates' group, ``restorer(move(x, m))`` equals
    ``restorer(x)`` bit for bit (with padding, for shifts on the padded canvas).

    The undo moves pixels (of a rotation: quarter turns, then a bilinear rest), so gradients pass through it.

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
        self.metadata = {}
        self.trained_on = {}
        getattr(scorer, "score_unit", None)  # read now: a graph made of this module cannot

    @property
    def stages(self) -> list[Restorer]:
        """The restorers that work one after another: here, this one."""
        return [self]

    @torch.no_grad()
    def _estimate(self, images: Tensor, of: Tensor | None) -> Estimate:
        check_images(images)
        shown = images if of is None else of
        if not is_traced():
            check_finite(images)
        block = max(1, BLOCK // math.prod(images.shape[2:]))
        if is_traced() or len(images) <= block:
            return self.read(images, shown)[0]
        starts = range(0, len(images), block)
        return _joined([self.read(images[at : at + block], shown[at : at + block])[0] for at in starts])

    def read(self, images: Tensor, of: Tensor) -> tuple[Estimate, Tensor | LineScores]:
        """Return the estimate of one block of images, unchecked, and the scores it was read off."""
        canvas = self.coordinates.canvas(images)
        along = getattr(self.scorer, "along", None)  # a net of lines: of one copy, its map need not be made
        scores = self.scores(canvas) if along is None or canvas.shape[1] > 1 else LineScores(along(canvas[:, 0]))
        settle: Callable[..., Tensor] = lambda *found: self.coordinates.settle(of, scores, *found)  # noqa: E731
        index, tied = choose(scores, lambda: self.coordinates.looks(of), settle)
        pose = self.coordinates.pose(index, scores, tuple(images.shape[2:]))
        sure = confidence(scores, getattr(self.scorer, "score_unit", 1.0))
        if is_traced():  # a graph cannot refuse an image that is not finite
            sure = torch.where(images.isfinite().flatten(1).all(1), sure, math.nan)
        return Estimate(pose.shift, pose.turn, pose.angle, sure, tied), scores

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


class Chain(_Undoing):
    """Restorers one after another, as one: first the centre, then the turn.

    Args:
        restorers: In the order in which they undo. Each reads another part of the pose.
    """

    def __init__(self, *restorers: Restorer) -> None:
        super().__init__()
        self.restorers = nn.ModuleList(restorers)
        self.coordinates = Chained([restorer.coordinates for restorer in restorers])
        self.metadata = {}
        self.trained_on = {}

    @property
    def stages(self) -> list[Restorer]:
        """The restorers that work one after another."""
        return list(self.restorers)  # type: ignore[arg-type]

    @torch.no_grad()
    def _estimate(self, images: Tensor, of: Tensor | None) -> Estimate:
        """See :meth:`_Undoing.estimate`. The confidence is the product of the stages'; one tie makes it tied."""
        check_images(images)
        if not is_traced():
            check_finite(images)
        return self._staged(images, of, lambda stage, *shown: stage.estimate(*shown))

    def read(self, images: Tensor, of: Tensor) -> tuple[Estimate, Tensor | LineScores]:
        """Return the estimate of one block of images, unchecked, and the scores of the first stage."""
        scores: list[Tensor | LineScores] = []

        def look(stage: Restorer, *shown: Any) -> Estimate:
            estimate, found = stage.read(*shown)
            scores.append(found)
            return estimate

        return self._staged(images, of, look), scores[0]

    def _staged(self, images: Tensor, of: Tensor | None, look: Callable[..., Estimate]) -> Estimate:
        """Let each stage look at what the ones before it have undone, and join what they read."""
        found: list[Estimate] = []
        for stage in self.stages:
            found.append(look(stage, images, of))
            if stage is not self.stages[-1]:
                images, of = stage.undo(images, found[-1]), None if of is None else stage.undo(of, found[-1])
        pose = merged(found, [stage.coordinates.reads for stage in self.stages])
        sure = functools.reduce(torch.mul, [one.confidence for one in found])
        return Estimate(*pose, sure, torch.stack([one.tied for one in found]).any(0))
