"""Undoing: what follows from an estimate, and the one place where images come in, in whatever form they are."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from unshift.as_given import Given, as_given
from unshift.coordinates import rows
from unshift.exact import IntegerEstimator, is_traced
from unshift.ragged import is_ragged
from unshift.shifts import check_images
from unshift.torch_tools import compiled_estimate, refuse_recorders, refuse_scripts, register
from unshift.trained_on import KINDS, LOOKED_AT, unlike

__all__ = ["Estimate", "Undoing", "check_finite", "joined"]


class Estimate(NamedTuple):
    """What a restorer read off a batch of images: a pose, and how sure it is.

    ``restorer.undo(images, estimate)`` takes the pose back. Confidence and tie are the same for every move, to the last
    bit.
    """

    shift: Tensor
    """int64 ``(batch, d)``: the shift that was applied, in pixels along each axis of the image. If the restorer
    undoes only circular shifts, without padding, ``unshift.undo(images, shift)`` takes it back."""
    turn: Tensor | None
    """int64 ``(batch,)``: the element of the group of turns; None if the restorer undoes no turns."""
    angle: Tensor | None
    """float64 ``(batch,)``: degrees counter-clockwise; None if the restorer undoes no rotations."""
    confidence: Tensor
    """float64 ``(batch,)``, in [0, 1]: the softmax probability of the chosen position; once calibrated, the
    probability that the pose is exactly right."""
    tied: Tensor
    """bool ``(batch,)``: several positions had the highest score, and the tie rule chose among them."""
    doubtful: Tensor | None = None
    """bool ``(batch,)``: the confidence is below the restorer's ``min_confidence``. The pose is then no move, and the
    image passes unchanged. None if there is no such bound."""


def check_finite(images: Tensor) -> tuple[float, float] | None:
    """Return the range of images of floats; raise a ``ValueError`` that counts those with NaN or infinity, if any."""
    if not images.is_floating_point() or not images.numel():
        return None
    wide = images if images.element_size() > 1 else images.float()  # 8-bit floats know no isfinite
    low, high = map(float, wide.aminmax())  # one pass, nothing kept
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = (~torch.isfinite(wide)).flatten(1).any(1).nonzero().flatten()
        raise ValueError(f"images must be finite: NaN or infinity in {len(bad)} of them, first at {int(bad[0])}")
    return low, high


def joined(parts: Sequence[Estimate]) -> Estimate:
    """Join the estimates of several batches."""
    joined: list[Any] = [None if part[0] is None else torch.cat(part) for part in zip(*parts, strict=True)]
    return Estimate(*joined)


def _beside(mark: Tensor, part: Tensor) -> Tensor:
    return mark.view(-1, *[1] * (part.ndim - 1))


class Undoing(nn.Module):
    """What a restorer and a chain of them share: everything that follows from an estimate."""

    coordinates: Any
    metadata: dict[str, Any]
    """What is known of these weights: training data, seed, measured rates. Saved with them; nothing acts on it."""
    trained_on: dict[str, Any]
    """What the images were like that it was trained on: size, channels, range, preparation. Saved with it."""
    min_confidence: float = 0.0
    """Images of a lower confidence pass unchanged, marked as ``doubtful``: their moves are not undone."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = {}
        self.trained_on = {}
        self._number = register(self)
        self._warned: set[str] = set()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Come back from a copy: as another restorer."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._number, self._warned = register(self), set(self._warned)

    def __prepare_scriptable__(self) -> Any:
        """Refuse ``torch.jit.script``, which asks here."""
        refuse_scripts()

    @property
    def stages(self) -> list[Any]:
        """The restorers that work one after another."""
        raise NotImplementedError

    @overload
    def estimate(self, images: Any, of: Any = None, *, top: None = None) -> Estimate: ...
    @overload
    def estimate(self, images: Any, of: Any = None, *, top: int) -> list[Estimate]: ...
    def estimate(self, images: Any, of: Any = None, *, top: int | None = None) -> Estimate | list[Estimate]:
        """Read the pose off ``images``.

        Args:
            images: A tensor ``(batch, channel, *spatial)``, or one image ``(channel, *spatial)``; a NumPy array of
                either shape, with the channels first or last; a Pillow image; or a list of tensors
                ``(channel, *spatial)`` of any sizes.
            of: What will be undone, if the network sees another form of it (the grey of a colour image): ties are
                settled by comparing these. Default: ``images``.
            top: For scenes with several objects: how many positions to return. No two are within half a window of each
                other or, without a window, next to each other.

        Returns:
            The estimate of the batch; a single image is a batch of one. With ``top``, a list of this many estimates,
            the best first, in an order that no move changes; each confidence is among the positions that were left.

        Warns:
            UserWarning: Once for each restorer, if the images are unlike those it was trained on.

        Raises:
            ValueError: If the images do not fit, or hold NaN or infinity, or have no room for ``top`` positions.
        """
        if top is not None and (type(top) is not int or top < 1):
            raise ValueError(f"top must be 1 or more positions, got {top!r}")
        if is_ragged(images):
            if not len(images):
                raise ValueError("no images to estimate the pose of: got an empty list")
            shown = images if of is None else of
            each = [self._looked(image[None], look[None], top) for image, look in zip(images, shown, strict=True)]
            found = [joined(parts) for parts in zip(*each, strict=True)]
        else:
            given = self._given(images)
            found = self._looked(given.seen, given.values if of is None else of, top)
        return found[0] if top is None else found

    @overload
    def undo(self, images: Tensor, estimate: Any) -> Tensor: ...
    @overload
    def undo(self, images: Any, estimate: Any) -> Any: ...
    def undo(self, images: Any, estimate: Any) -> Any:
        """Take ``images`` back to where they were before the pose of ``estimate``, in the form they were given in."""
        return self._each(self.coordinates.undo, images, estimate)

    @overload
    def redo(self, images: Tensor, estimate: Any, *, size: Sequence[int] | None = None) -> Tensor: ...
    @overload
    def redo(self, images: Any, estimate: Any, *, size: Sequence[int] | None = None) -> Any: ...
    def redo(self, images: Any, estimate: Any, *, size: Sequence[int] | None = None) -> Any:
        """Put upright ``images`` back where the input was: a mask, a map of boxes, another image.

        Args:
            images: Of the size that :meth:`restore` returns.
            estimate: What :meth:`estimate` said of the input.
            size: The size of the scene, if a window was cut out of one.
        """
        return self._each(
            lambda x, pose: self.coordinates.redo(self.coordinates.on_scene(x, size), pose), images, estimate
        )

    @overload
    def restore(self, images: Tensor) -> Tensor: ...
    @overload
    def restore(self, images: Any) -> Any: ...
    def restore(self, images: Any) -> Any:
        """Estimate the pose of each image and undo it: ``undo(images, estimate(images))``.

        What :meth:`estimate` takes comes back as what it was: a tensor, an array, a Pillow image, a list, of the same
        shape, type and mode. (Rotations mix values, so there a palette becomes RGB.)
        """
        if is_ragged(images):
            return self.undo(images, self.estimate(images))
        given = self._given(images)
        # Nobody is told how sure it was: where nothing depends on it, it is not computed.
        found = self._looked(given.seen, given.values, sure=self.min_confidence > 0)
        return given.back(self.coordinates.undo(given.values, found[0]))

    def forward(self, images: Tensor) -> Tensor:
        """Restore ``images``, so that ``nn.Sequential(restorer, classifier)`` is all there is to write."""
        return self.restore(images)

    def _each(self, act: Callable[..., Tensor], images: Any, estimate: Any) -> Any:
        """Undo or redo images in any form: those of a list one by one."""
        if not is_ragged(images):
            given = self._given(images)
            return given.back(act(given.values, estimate))
        if len(images) != len(estimate.shift):
            raise ValueError(f"the estimate is of {len(estimate.shift)} images, but {len(images)} were given")
        return [act(image[None], rows(estimate, slice(at, at + 1)))[0] for at, image in enumerate(images)]

    def _given(self, images: Any) -> Given:
        first = self.stages[0]
        size = self.trained_on.get("size") or first.coordinates.image_size(getattr(first.scorer, "size", None))
        axes = len(size) if size else getattr(first.scorer, "axes", None)
        if isinstance(images, Tensor):
            return as_given(images, axes, None)
        channels = getattr(first.scorer, "in_channels", None)
        if size and channels:
            channels = first.coordinates.image_channels(channels, tuple(size))
        return as_given(images, axes, channels, rotated="angle" in self.coordinates.reads)

    def _looked(self, images: Tensor, of: Tensor, top: int | None = None, sure: bool = True) -> list[Estimate]:
        """Check images, and estimate them, ``top`` times over; without ``sure``, confidences may be left out."""
        traced = is_traced()
        if not traced:
            refuse_recorders(images)
        check_images(images)
        images, of = (images.detach(), of.detach()) if of.requires_grad or images.requires_grad else (images, of)
        if traced and top is not None:
            raise ValueError("torch.compile and torch.export take one position an image: call estimate without top")
        if traced and not torch.compiler.is_exporting():
            return [self.doubted(compiled_estimate(images, of, self._number, self.coordinates.reads, Estimate))]
        if traced:
            return [self.doubted(self._estimated(images, of))]
        ends = check_finite(images)
        found = [self._estimated(images, of, sure)] if top is None else self._several(images, of, top)
        self._compare(images, ends)  # last: what does not fit at all is refused
        return [self.doubted(one) for one in found]

    def doubted(self, estimate: Estimate) -> Estimate:
        """Mark the images of a confidence below ``min_confidence``, and set their pose to no move."""
        if not self.min_confidence:
            return estimate
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"min_confidence must lie between 0 and 1, got {self.min_confidence}")
        # A tensor: a graph would round a number to float32.
        least = torch.tensor([self.min_confidence], dtype=torch.float64, device=estimate.confidence.device)
        doubtful = estimate.confidence < least
        shift, turn, angle = (
            None if part is None else torch.where(_beside(doubtful, part), torch.zeros_like(part), part)
            for part in estimate[:3]
        )
        assert shift is not None
        return Estimate(shift, turn, angle, estimate.confidence, estimate.tied, doubtful)

    def _estimated(self, images: Tensor, of: Tensor, sure: bool = True) -> Estimate:
        """Estimate images that were checked; without ``sure``, with no confidences."""
        raise NotImplementedError

    def _several(self, images: Tensor, of: Tensor, top: int) -> list[Estimate]:
        """Estimate the best ``top`` positions of images that were checked."""
        raise ValueError(f"top is for one restorer of shifts, not for a chain of {len(self.stages)}")

    def _compare(self, images: Tensor, ends: tuple[float, float] | None) -> None:
        """Warn, once, if these images, whose pixels lie between ``ends``, are unlike the training images."""
        first = self.stages[0]
        scorer = first.scorer
        if not isinstance(scorer, IntegerEstimator) or len(self._warned) == KINDS or not images.shape[0]:
            return
        canvas: Callable[[], Tensor] = lambda: first.coordinates.canvas(images[:LOOKED_AT])  # noqa: E731
        top: Callable[[], float] = lambda: scorer.largest / scorer.pixel_scale  # noqa: E731
        known = self.trained_on
        if first.coordinates.window is not None:  # objects are as large in scenes of any size
            known = {name: value for name, value in known.items() if name != "size"}
        for kind, words in unlike(images, ends, known, canvas, top, scorer.line_axes > 0, self._warned):
            if kind not in self._warned:
                self._warned.add(kind)
                warnings.warn(f"this restorer may be wrong on these images: {words}", stacklevel=4)

    def save(self, path: str | Path) -> None:
        """Write this restorer to one ``.safetensors`` file; :func:`unshift.load` reads it back."""
        from unshift.weights import save  # the file format stands below: this method is only its spelling

        save(self, path)  # type: ignore[arg-type]
