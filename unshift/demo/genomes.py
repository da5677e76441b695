"""The genomes tab: the graph that scores a sequence, the tables of letters, and two sample genomes.

The page itself breaks ties as :mod:`unshift.exact.choice` does, and rotates the text.

``samples/mitogenomes.fa.gz`` holds two fish from GenBank, of genera that ``mitogenome`` was not trained on. Both start
at another base than in GenBank, and the first is on the other strand.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import unshift
from unshift.data.sequences import MEANING, encode, oriented
from unshift.demo.models import export_module, put
from unshift.demo.samples import FOLDER
from unshift.exact import Curve

__all__ = ["RESTORER", "Windows", "export_windows", "put_genomes"]

RESTORER = "mitogenome"


class Windows(nn.Module):
    """Score windows ``(batch, 4, margin + length + margin)``: float32 ``(batch, length)`` that hold integers.

    Each window comes with a margin of its circle. The graph therefore needs no wrap-around and takes any length, and a
    genome is scored window by window in bounded memory.

    Args:
        scorer: A scorer of sequences whose sums stay below 2^24, so that float32 is exact.
    """

    def __init__(self, scorer: Any) -> None:
        super().__init__()
        self.layers: list[Any] = list(scorer.local)
        assert all(layer.worst < 2**24 and layer.weight.shape[-1] % 2 for layer in self.layers)
        self.taps = max(layer.weight.shape[-1] for layer in self.layers)
        self.margin = sum(layer.weight.shape[-1] // 2 for layer in self.layers)
        self.scale, self.largest = scorer.pixel_scale, scorer.largest

    def forward(self, windows: Tensor) -> Tensor:
        """Score the positions between the margins."""
        features = (windows * self.scale).round().clamp(-self.largest, self.largest)
        for layer in self.layers:
            sums = F.conv1d(features, layer.weight.to(torch.float32), layer.bias.to(torch.float32))
            if layer.divisor is None:
                return sums.squeeze(1)
            if layer.activation == "abs":
                sums = sums.abs()
            least = -self.largest if layer.activation == "none" else 0
            # No sum reaches 2^24, so dividing by more gives the same quotients.
            divisor = layer.divisor.clamp(max=2**24).to(torch.float32)
            features = sums.div(divisor[:, None]).floor().clamp(least, self.largest)
        raise AssertionError("the last layer has no divisor")


def put_genomes(folder: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    """Write the model and the sample to the page's folder; return their entry in the manifest."""
    stage = unshift.load(RESTORER).stages[0]
    scorer: Any = stage.scorer
    knots = [[0, 0], *(stage.curve.describe() if stage.curve else []), [Curve.WHOLE, Curve.WHOLE]]
    windows = Windows(scorer)
    place = "samples/mitogenomes.fa"
    (folder / place).write_bytes(gzip.decompress((FOLDER / "mitogenomes.fa.gz").read_bytes()))
    return {
        "model": put(folder, f"{RESTORER}-windows", lambda path: export_windows(windows, path), progress),
        "sample": place,
        "taps": windows.taps,
        "margin": windows.margin,
        "unit": scorer.score_unit,
        "knots": [[x / Curve.WHOLE, y / Curve.WHOLE] for x, y in knots],
        "letters": {letter: encode(letter).flatten().tolist() for letter in MEANING},
        "complement": {letter: oriented(letter, 0, 1) for letter in MEANING},
    }


def export_windows(windows: Windows, path: Path) -> None:
    """Export the graph of both strands of a window of any length."""
    example = torch.zeros(2, 4, 2 * windows.margin + 100)
    length = torch.export.Dim("length", min=2 * windows.margin + 1)
    export_module(windows, example, path, {2: length}, ("windows", "scores"))
