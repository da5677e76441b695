"""Restorer: coordinates, estimate, undo. Images in, images out; the classifier follows.

    model = torch.nn.Sequential(restorer, classifier)

Why the restored image is the same, bit for bit, for every shift ``m`` of an image ``x``:

1. The canvas of ``apply(x, m)`` is the canvas of ``x``, shifted by ``m``.
2. So are its scores, because they are integers (:mod:`unshift.exact.integers`).
3. If ``x`` has its only highest score at ``p``, then ``apply(x, m)`` has it at ``p + m``.
4. ``undo(apply(x, m), p + m)`` equals ``undo(x, p)``: both move the same pixels to the same place.
5. If several positions have the highest score, the arrays that they restore are the same set for all ``m``, and the
   choice depends on that set only (:mod:`unshift.exact.choice`).

Other kinds of poses replace "shifted by ``m``" by "its candidates are permuted"; each file of ``coordinates`` shows
how. In a :class:`Chain`, a move of a later stage applied to the input must move the output of an earlier stage
likewise.

An :class:`Estimate` is returned, not stored. ``torch.export`` captures the integers in its graph. ``torch.compile``
compiles the code around a restorer and calls it unchanged. ``torch.jit`` and ``vmap`` raise an error.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import torch
from torch import Tensor, nn

from unshift.coordinates import Chained, Padded, Shifts, merge_poses, rows
from unshift.coordinates.interface import Posed
from unshift.exact import Curve, Scorer, Scores, choose, is_exporting, is_traced, next_best
from unshift.inputs import InputBatch, check_finite, is_list, to_batch, warn_if_unlike
from unshift.shifts import check_images

BLOCK = 2**19  # positions to choose among at a time, which bounds the memory of a call. ``benchmarks/run.py blocks``.

AnyImages = TypeVar("AnyImages")
"""The form of images: a tensor, an array, a Pillow image or a list of tensors. The result has the same form."""

ALTERNATIVES = "torch.export.export(model, (images,)), or unshift.export(restorer, 'model.onnx', classifier=...)"


class Estimate(NamedTuple):
    """The pose of a batch of images, and the confidence in it.

    ``restorer.undo(images, estimate)`` undoes the pose. Confidence and tie are the same for every move of the image, to
    the last bit.
    """

    shift: Tensor
    """int64 ``(batch, d)``: the shift that was applied, in pixels along each axis of the image. If the restorer
    undoes only circular shifts, without padding, ``unshift.undo(images, shift)`` undoes it too."""
    turn: Tensor | None
    """int64 ``(batch,)``: the element of the group of turns; None if the restorer undoes no turns."""
    angle: Tensor | None
    """float64 ``(batch,)``: degrees counter-clockwise; None if the restorer undoes no rotations."""
    confidence: Tensor
    """float64 ``(batch,)``, in [0, 1]: the softmax probability of the choice or, once calibrated, the probability that
    the pose is exactly right."""
    tied: Tensor
    """bool ``(batch,)``: several candidates had the highest score, and the tie rule chose among them."""
    rejected: Tensor | None = None
    """bool ``(batch,)``: the confidence is below the restorer's ``min_confidence``. The pose is then zero, and the
    image passes unchanged. None if there is no such bound."""

    @staticmethod
    def concatenate(parts: Sequence[Estimate]) -> Estimate:
        """Concatenate the estimates of several batches."""
        fields: list[Any] = [None if part[0] is None else torch.cat(part) for part in zip(*parts, strict=True)]
        return Estimate(*fields)


class _BaseRestorer(nn.Module, ABC):
    """Base class of :class:`Restorer` and :class:`Chain`, which implement the estimate of one block of images."""

    coordinates: Any
    metadata: dict[str, Any]
    """Facts about these weights: training data, seed, measured rates. Saved with them; nothing acts on it."""
    trained_on: dict[str, Any]
    """Properties of the training images: size, channels, range, preparation. Saved with the weights."""
    min_confidence: float = 0.0
    """Images of a lower confidence pass unchanged, marked as ``rejected``. Exactness is promised for images that are
    not rejected: a rejected image comes out as it was given, wherever it was moved to."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = {}
        self.trained_on = {}
        self._warned: set[str] = set()

    @property
    @abstractmethod
    def stages(self) -> list[Restorer]:
        """The restorers that work one after another."""

    @abstractmethod
    def read(self, images: Tensor, target: Tensor, with_confidence: bool = True) -> tuple[Estimate, Scores]:
        """Estimate one block of images without checks; return the scores of the first stage too.

        Ties are broken by comparing ``target``, the images that will be undone. Without the confidence, it is NaN.
        """

    @overload
    def estimate(self, images: Any, target: Any = None, *, top: None = None) -> Estimate: ...
    @overload
    def estimate(self, images: Any, target: Any = None, *, top: int) -> list[Estimate]: ...
    def estimate(self, images: Any, target: Any = None, *, top: int | None = None) -> Estimate | list[Estimate]:
        """Estimate the pose of ``images``.

        Args:
            images: A tensor ``(batch, channel, *spatial)``, or one image ``(channel, *spatial)``; a NumPy array of
                either shape, with the channels first or last; a Pillow image; or a list of tensors
                ``(channel, *spatial)`` of any sizes.
            target: The images to undo, if they differ from the input of the network, such as the colour images of
                which ``images`` are the greys. Equal targets must have equal images. Ties are broken by comparing
                targets. Default: ``images``.
            top: For scenes with several objects: the number of positions to return, by non-maximum suppression.

        Returns:
            The estimate of the batch; a single image is a batch of one. With ``top``, a list of this many estimates,
            the best first, in a shift-invariant order; each confidence is computed without the
            positions already taken.

        Warns:
            UserWarning: Once for each restorer, if the images are unlike those it was trained on.
        """
        if top is not None and (type(top) is not int or top < 1):
            raise ValueError(f"top must be 1 or more positions, got {top!r}")
        if is_list(images):
            if not len(images):
                raise ValueError("no images to estimate the pose of: got an empty list")
            targets = images if target is None else target
            each = [self._checked(image[None], t[None], top) for image, t in zip(images, targets, strict=True)]
            estimates = [Estimate.concatenate(parts) for parts in zip(*each, strict=True)]
        else:
            given = self._to_batch(images)
            estimates = self._checked(given.seen, given.values if target is None else target, top)
        return estimates[0] if top is None else estimates

    def undo(self, images: AnyImages, estimate: Posed) -> AnyImages:
        """Return ``images`` as they were before the pose of ``estimate``, in the form they were given in."""
        restored: AnyImages = self._map(self.coordinates.undo, images, estimate)
        return restored

    def redo(self, images: AnyImages, estimate: Posed, *, size: Sequence[int] | None = None) -> AnyImages:
        """Put upright ``images`` (a mask, a map of boxes, another image) back where the input was.

        They have the size that :meth:`restore` returns. ``size`` is that of the scene, if a window was cut out of one.
        """
        redone: AnyImages = self._map(lambda x, pose: self.coordinates.redo(x, pose, size), images, estimate)
        return redone

    def restore(self, images: AnyImages) -> AnyImages:
        """Estimate the pose of each image and undo it: ``undo(images, estimate(images))``.

        The result has the form of the input: a tensor, an array, a Pillow image or a list, of the same shape, type and
        mode. (A rotation interpolates, so a palette image becomes RGB.) A turned image that is not square comes out in
        its upright shape; a batch of several becomes a list.
        """
        if is_list(images):
            return self.undo(images, self.estimate(images))
        given = self._to_batch(images)
        # The confidence is not returned, so skip it unless something depends on it.
        estimate = self._checked(given.seen, given.values, with_confidence=self.min_confidence > 0)[0]
        restored: AnyImages = given.to_input_form(self.coordinates.undo(given.values, estimate))
        return restored

    def forward(self, images: Tensor) -> Tensor:
        """Restore ``images``, so that ``nn.Sequential(restorer, classifier)`` is a complete model."""
        return self.restore(images)

    def save(self, path: str | Path) -> None:
        """Write this restorer to one ``.safetensors`` file; :func:`unshift.load` reads it back."""
        from unshift.files import save  # imported here: files.py imports this module

        save(self, path)  # type: ignore[arg-type]

    def reject(self, estimate: Estimate) -> Estimate:
        """Mark the images of a confidence below ``min_confidence``, and set their pose to the identity."""
        if not self.min_confidence:
            return estimate
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"min_confidence must lie between 0 and 1, got {self.min_confidence}")
        # A tensor: torch.export would round a Python float to float32.
        least = torch.tensor([self.min_confidence], dtype=torch.float64, device=estimate.confidence.device)
        rejected = estimate.confidence < least
        pose: list[Any] = [
            None
            if part is None
            else torch.where(rejected.view(-1, *[1] * (part.ndim - 1)), torch.zeros_like(part), part)
            for part in estimate[:3]
        ]
        return Estimate(pose[0], pose[1], pose[2], estimate.confidence, estimate.tied, rejected)

    def capture(self, images: Tensor, target: Tensor) -> tuple[Estimate, Scores]:
        """Estimate in a captured graph, which cannot raise: images with NaN or infinity get the confidence NaN."""
        estimate, scores = self.read(images, target)
        confidence = torch.where(images.isfinite().flatten(1).all(1), estimate.confidence, math.nan)
        return self.reject(estimate._replace(confidence=confidence)), scores

    def image_shape(self, size: Sequence[int] | None = None) -> tuple[int | None, tuple[int, ...] | None]:
        """Return the channels and the size of the images that this restorer takes; None for any or unknown."""
        first = self.stages[0]
        known = tuple(size or self.trained_on.get("size") or ()) or None
        channels, shape = first.coordinates.image_shape(first.scorer.in_channels, first.scorer.size, known)
        return channels or self.trained_on.get("channels"), shape

    def _to_batch(self, images: Any) -> InputBatch:
        """Return images in any form as a batch, and the way back to that form."""
        channels, size = self.image_shape()
        first = self.stages[0]
        axes = len(size) if size else first.scorer.axes if channels is not None else None
        return to_batch(images, axes, channels, interpolated="angle" in self.coordinates.labels.reads)

    def _map(self, act: Callable[..., Any], images: Any, estimate: Any) -> Any:
        """Undo or redo images in any form: those of a list one by one."""
        if not is_list(images):
            given = self._to_batch(images)
            return given.to_input_form(act(given.values, estimate))
        if len(images) != len(estimate.shift):
            raise ValueError(f"the estimate is of {len(estimate.shift)} images, but {len(images)} were given")
        return [act(image[None], rows(estimate, slice(at, at + 1)))[0] for at, image in enumerate(images)]

    def _checked(
        self, images: Tensor, target: Tensor, top: int | None = None, with_confidence: bool = True
    ) -> list[Estimate]:
        """Check images, estimate their poses (``top`` of each), and compare them with the training images."""
        if torch.compiler.is_compiling() and is_traced():
            if top is not None:
                raise ValueError(
                    "torch.compile and torch.export take one position per image: call estimate without top"
                )
            if is_exporting():
                return [self.capture(images, target)[0]]
            # Leave the compiler: the integers are exact as they are.
            uncompiled: list[Estimate] = torch.compiler.disable(self._checked)(images, target, None, with_confidence)
            return uncompiled
        _refuse_recorders(images)
        check_images(images)
        images, target = images.detach(), target.detach()
        limits = check_finite(images)
        if top is not None:
            estimates = self._best(images, target, top)
        else:
            block = max(1, BLOCK // math.prod(images.shape[2:]))
            parts = zip(images.split(block), target.split(block), strict=True)
            estimates = [Estimate.concatenate([self.read(*part, with_confidence)[0] for part in parts])]
        warn_if_unlike(self, images, limits, self._warned)  # last: images that do not fit at all are refused above
        return [self.reject(estimate) for estimate in estimates]

    def _best(self, images: Tensor, target: Tensor, top: int) -> list[Estimate]:
        raise ValueError(f"top is for one restorer of shifts, not for a chain of {len(self.stages)}")

    def __prepare_scriptable__(self) -> Any:
        """Refuse ``torch.jit.script``, which calls this."""
        raise ValueError(f"torch.jit.script cannot compile a restorer; use {ALTERNATIVES}")


def _refuse_recorders(images: Any) -> None:
    """Raise a ``ValueError`` in ``torch.jit.trace`` and ``vmap``."""
    if torch._C._is_tracing():
        raise ValueError(
            f"torch.jit.trace cannot record a restorer, whose answer depends on values; use {ALTERNATIVES}"
        )
    if torch._C._functorch.is_batchedtensor(images):
        raise ValueError(
            "vmap cannot run a restorer, whose answer depends on values; call it on all images at once, as "
            "(batch, channel, *spatial)"
        )


class Restorer(_BaseRestorer):
    """Undo the pose of images before anything else sees them, exactly.

    For every image ``x`` and every move ``m`` of the coordinates' group, ``restorer(move(x, m))`` equals
    ``restorer(x)`` bit for bit: with padding, for shifts that push no content out; with ``min_confidence``, for images
    that are not rejected. Gradients flow to the images.

    Args:
        scorer: A :class:`~unshift.exact.Scorer`, or any module from canvases to equivariant **int64** scores
            ``(batch, *positions)``: :func:`unshift.quantise` makes one from a trained estimator, ``unshift.theory``
            constructs one.
        coordinates: What to undo: one of ``unshift.coordinates``. Default: circular shifts.
        pad: Shorthand for ``coordinates=Padded(pad)``.
    """

    def __init__(self, scorer: nn.Module, *, coordinates: Any = None, pad: int = 0) -> None:
        super().__init__()
        if coordinates is not None and pad:
            raise ValueError("give pad or coordinates, not both")
        self.scorer = Scorer.wrap(scorer)
        self.coordinates = coordinates if coordinates is not None else Padded(pad) if pad else Shifts()
        self.coordinates.check_network(self.scorer)
        self.curve: Curve | None = None
        """From the softmax probability to the probability of being right, once calibrated."""

    @property
    def stages(self) -> list[Restorer]:
        """The restorers that work one after another: here, this one."""
        return [self]

    def read(self, images: Tensor, target: Tensor, with_confidence: bool = True) -> tuple[Estimate, Scores]:
        """See :class:`_BaseRestorer`. This is the whole method: canvases, scores, choice, pose."""
        coordinates = self.coordinates
        scores = self.scorer.scores(coordinates.canvases(images))
        index, tied = choose(scores, lambda highest, tied: coordinates.order(target, scores, highest, tied))
        pose = coordinates.pose(index, scores, tuple(images.shape[2:]))
        if with_confidence:
            confidence = self._calibrated(scores.confidence(self.scorer.score_unit))
        else:
            confidence = torch.full(index.shape, math.nan, dtype=torch.float64, device=index.device)
        return Estimate(pose.shift, pose.turn, pose.angle, confidence, tied), scores

    def _calibrated(self, confidence: Tensor) -> Tensor:
        return confidence if self.curve is None else self.curve(confidence)

    def _best(self, images: Tensor, target: Tensor, top: int) -> list[Estimate]:
        coordinates, size = self.coordinates, tuple(images.shape[2:])
        first, scores = self.read(images, target)
        if scores.shape[0] > 1:
            raise ValueError(f"top is for restorers that undo only shifts; this one undoes {coordinates.labels.undoes}")
        estimates = [first]
        positions = next_best(
            scores.map()[:, 0],
            coordinates.canvases(target)[0],
            coordinates.candidate(first, size),
            coordinates.radius or (2,) * len(scores.shape[1:]),
            top - 1,
        )
        for index, tied, left in positions:
            pose, confidence = coordinates.pose(index, scores, size), left.confidence(self.scorer.score_unit)
            estimates.append(Estimate(pose.shift, pose.turn, pose.angle, self._calibrated(confidence), tied))
        return estimates


class Chain(_BaseRestorer):
    """Restorers one after another, as one: for example first the centre, then the angle.

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

    def read(self, images: Tensor, target: Tensor, with_confidence: bool = True) -> tuple[Estimate, Scores]:
        """See :class:`_BaseRestorer`. Each stage sees what the stages before it have undone.

        The confidence is the product of the stages' confidences; one tie makes the estimate tied.
        """
        estimates, first = [], None
        for stage in self.stages:
            estimate, scores = stage.read(images, target, with_confidence)
            estimates.append(estimate)
            first = scores if first is None else first
            if stage is not self.stages[-1]:
                images, target = (stage.coordinates.undo(x, estimate) for x in (images, target))
                if is_list(images):
                    raise ValueError("a chain takes images that turns leave in one shape, or a list of images")
        assert first is not None
        pose = merge_poses(estimates, [stage.coordinates.labels.reads for stage in self.stages])
        confidence = functools.reduce(torch.mul, [estimate.confidence for estimate in estimates])
        tied = functools.reduce(torch.logical_or, [estimate.tied for estimate in estimates])
        return Estimate(pose.shift, pose.turn, pose.angle, confidence, tied), first
