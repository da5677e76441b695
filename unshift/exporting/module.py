"""The whole way as one module: estimate, undo and, behind them, a classifier. The arithmetic is the restorer's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from unshift.evaluation import in_its_dtype
from unshift.exact import score_map
from unshift.restorer import Chain, Restorer


class Graph(nn.Module):
    """Images to a dictionary of ``restored``, ``shift``, ``confidence``, ``tied`` and what else was asked for."""

    def __init__(
        self,
        restorer: Restorer | Chain,
        classifier: Callable[[Tensor], Tensor] | None,
        scores: bool,
    ) -> None:
        super().__init__()
        self.restorer, self.classifier, self.scores = restorer, classifier, scores
        reads = restorer.coordinates.reads
        wanted = {
            "turn": "turn" in reads,
            "angle": "angle" in reads,
            "logits": classifier is not None,
            "scores": scores,
            "doubtful": restorer.min_confidence > 0,
        }
        self.outputs = ["restored", "shift", "confidence", "tied", *(name for name, given in wanted.items() if given)]

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Estimate, undo and, with a classifier, classify."""
        estimate, scores = self.restorer.read(images, images)
        estimate = self.restorer.doubted(estimate)
        found: dict[str, Any] = {**estimate._asdict(), "scores": score_map(scores)}
        found["restored"] = self.restorer.undo(images, estimate)
        if self.classifier is not None:
            found["logits"] = in_its_dtype(self.classifier)(found["restored"].clone())  # it may work in place
        return {name: found[name] for name in self.outputs}
