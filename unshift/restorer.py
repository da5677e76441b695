"""Restorer: coordinates, estimate, undo. Images in, images out; the classifier follows.

model = torch.nn.Sequential(restorer, classifier)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unshift.exact import choose, confidence
from unshift.shifts import check_images, undo

__all__ = ["Canvas", "Estimate", "Restorer"]


class Estimate(NamedTuple):
    """What a restorer read off a batch of images; confidence and tie are the same for every shift, to the last bit."""

    shift: Tensor
    """int64 ``(batch, d)``: the shift that was applied; ``unshift.undo(images, shift)`` takes it back."""
    confidence: Tensor
    """float64 ``(batch,)``: softmax probability of the chosen position, in (0, 1]."""
    tied: Tensor
    """bool ``(batch,)``: several positions had the highest score, and the tie rule chose among them."""
    angle: Tensor | None = None
    """float64 ``(batch,)``, of a rotation: degrees counter-clockwise that were applied; ``shift`` counts grid steps."""


class Canvas(nn.Module):
    """Cartesian coordinates: the image itself, on a margin of ``pad`` constant pixels if wanted.

    ``crop(apply(pad(x), s))`` is a zero-filled shift of ``x`` by up to ``pad`` pixels: on the padded
    canvas it is a circular one, which can be undone.
    """

    def __init__(self, pad: int = 0, value: float = 0.0) -> None:
        super().__init__()
        if pad < 0:
            raise ValueError(f"pad must be 0 or more pixels, got {pad}")
        self.pad = pad
        self.value = value

    def describe(self) -> dict[str, Any]:
        """Return the coordinates as plain data, for the weights file."""
        return {"kind": "canvas", "pad": self.pad, "value": self.value}

    def forward(self, images: Tensor) -> Tensor:
        """Put ``images`` on their canvas: where the estimator looks for the shift."""
        return F.pad(images, [self.pad] * 2 * (images.ndim - 2), value=self.value) if self.pad else images

    def undo(self, images: Tensor, shift: Tensor) -> Tensor:
        """Undo ``shift`` on the canvas and cut ``images`` out again."""
        restored = undo(self(images), shift)
        if not self.pad:
            return restored
        return F.pad(restored, [-self.pad] * 2 * (images.ndim - 2))  # negative padding crops

    def extra_repr(self) -> str:
        """Show the padding."""
        return f"pad={self.pad}, value={self.value}" if self.pad else ""


def check_finite(images: Tensor) -> None:
    """Raise a ``ValueError`` that counts the images with NaN or infinity, if any."""
    if images.is_floating_point():
        wide = images if images.element_size() > 1 else images.float()  # 8-bit floats know no isfinite
        bad = (~torch.isfinite(wide)).flatten(1).any(1).nonzero().flatten()
        if len(bad):
            raise ValueError(f"images must be finite: NaN or infinity in {len(bad)} of them, first at {int(bad[0])}")


class Restorer(nn.Module):
    """Undo the circular shift of images before anything else sees them, exactly.

    For every image ``x`` and every shift ``M``, ``restorer(apply(x, M))`` equals ``restorer(x)`` bit for
    bit (with ``pad``, shifts on the padded canvas).

    ``scorer`` is any module from images to equivariant **int64** scores ``(batch, *spatial)``:
    :func:`unshift.quantise` makes one from a trained estimator, ``unshift.theory`` constructs one.
    ``coordinates`` say where a shift is to be looked for; ``pad`` is short for ``Canvas(pad)``.

    The undo is an integer gather (of a rotation: quarter turns, then a bilinear rest), so gradients pass
    through it to the images.
    """

    def __init__(self, scorer: nn.Module, *, pad: int = 0, coordinates: nn.Module | None = None) -> None:
        super().__init__()
        if coordinates is not None and pad:
            raise ValueError("give pad or coordinates, not both")
        self.scorer = scorer
        self.coordinates = coordinates if coordinates is not None else Canvas(pad)
        self.metadata: dict[str, Any] = {}
        """What is known of these weights: training data, seed, measured rates. Saved with them."""

    @torch.no_grad()
    def estimate(self, images: Tensor) -> Estimate:
        """Read the shift off ``images``. Nothing is kept on the module."""
        check_images(images)
        check_finite(images)
        canvas = self.coordinates(images)
        scores = self.scores(canvas)
        # Coordinates may have more to say: which image to prefer where canvases are one, and an angle.
        prefer, angle = (getattr(self.coordinates, name, None) for name in ("prefer", "angle"))
        look = (lambda row, found: prefer(images[row], scores[row], found)) if prefer else None
        shift, tied = choose(scores, canvas, look)
        unit = getattr(self.scorer, "score_unit", 1.0)
        return Estimate(shift, confidence(scores, unit), tied, angle(shift, scores) if angle else None)

    @torch.no_grad()
    def scores(self, canvas: Tensor) -> Tensor:
        """Score every position of images that are on their canvas: int64 ``(batch, *spatial)``."""
        scores = self.scorer(canvas)
        wanted = (canvas.shape[0], *canvas.shape[2:])
        if not isinstance(scores, Tensor) or tuple(scores.shape) != wanted:
            found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(f"a scorer must return scores (batch, *spatial) = {wanted}, got {found}")
        if scores.dtype != torch.int64:
            raise ValueError(
                f"a Restorer wants int64 scores, got {scores.dtype}: float scores cannot be exact. "
                "Turn the estimator into integers with unshift.quantise(estimator, sample_images)"
            )
        return scores

    def restore(self, images: Tensor) -> Tensor:
        """Estimate the shift of each image and undo it."""
        estimate = self.estimate(images)
        read = (estimate.shift,) if estimate.angle is None else (estimate.shift, estimate.angle)
        return self.coordinates.undo(images, *read)  # type: ignore[operator]

    def forward(self, images: Tensor) -> Tensor:
        """Restore ``images``, so that ``nn.Sequential(restorer, classifier)`` is all there is to write."""
        return self.restore(images)

    def save(self, path: str | Path) -> None:
        """Write this restorer to one ``.safetensors`` file; :func:`unshift.load` reads it back."""
        from unshift.weights import save  # the file format stands below: this method is only its spelling

        save(self, path)
