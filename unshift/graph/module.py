"""The whole way as one module: canvas, scores, choice, confidence, undo and, behind them, a classifier."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from unshift.exact import IntegerEstimator
from unshift.graph.choice import Confidence, Ties, unravel
from unshift.graph.network import Network
from unshift.graph.turning import GRAIN, Turning
from unshift.polar import Polar
from unshift.restorer import Canvas, Restorer


class Graph(nn.Module):
    """Images to a dictionary of ``restored``, ``shift``, ``confidence``, ``tied`` and what else was asked for."""

    def __init__(
        self, restorer: Restorer, size: Sequence[int], classifier: Callable[[Tensor], Tensor] | None, scores: bool
    ) -> None:
        super().__init__()
        net, coordinates = restorer.scorer, restorer.coordinates
        assert isinstance(net, IntegerEstimator)
        self.turning = Turning(coordinates) if isinstance(coordinates, Polar) else None
        self.canvas = coordinates if self.turning is None else self.turning
        if isinstance(coordinates, Polar):
            canvas = [coordinates.angles]
        else:
            assert isinstance(coordinates, Canvas)
            canvas = [n + 2 * coordinates.pad for n in size]
        self.network = Network(net, canvas)
        self.ties = Ties(canvas)
        self.confidence = Confidence(net.score_unit, math.prod(canvas))
        self.classifier, self.scores = classifier, scores

    @property
    def outputs(self) -> list[str]:
        """The names in the dictionary, in its order."""
        wanted = {"angle": self.turning is not None, "logits": self.classifier is not None, "scores": self.scores}
        return ["restored", "shift", "confidence", "tied", *(name for name, given in wanted.items() if given)]

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Estimate, undo and, with a classifier, classify."""
        canvas = self.canvas(images)
        scores = self.network(canvas)
        ranks, tied = self.ties(scores, canvas)
        index = ranks.argmax(1) if self.turning is None else self.turning.prefer(images, scores, ranks, tied)
        shift = unravel(index, scores.shape[1:])
        finite = images.isfinite().flatten(1).all(1)
        found = {"shift": shift, "confidence": torch.where(finite, self.confidence(scores), math.nan), "tied": tied}
        if self.turning is None:
            found["restored"] = self.canvas.undo(images, shift)  # type: ignore[operator]
        else:
            angle = self.turning.angle(shift, scores)
            found["restored"] = self.turning.undo(images, angle)
            found["angle"] = angle.to(torch.float64) / GRAIN
        if self.classifier is not None:
            found["logits"] = self.classifier(found["restored"].clone())  # it may work in place
        return {name: {**found, "scores": scores}[name] for name in self.outputs}
