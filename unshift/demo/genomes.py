"""The page's tab of genomes: the network that scores a sequence, the tables of letters, and two genomes to begin with.

The page brings the choice of a start, which :mod:`unshift.exact.ties` makes here, and turns the text.

``samples/mitogenomes.fa.gz``: two fish of GenBank, of genera that ``mitogenome`` was not trained on, each written from
another base than it was deposited from, the first on its other strand.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift.data.sequences import MEANING, encode, oriented
from unshift.demo.models import export_module, put
from unshift.demo.samples import FOLDER
from unshift.exact import IntegerEstimator

__all__ = ["RESTORER", "Windows", "export_windows", "put_genomes"]

RESTORER = "mitogenome"


class Windows(nn.Module):
    """The scores of windows ``(batch, 4, margin + length + margin)``: float32 ``(batch, length)``, whole numbers.

    A window brings its margin of the circle, so that a graph of this takes any length and wraps nothing round: a
    genome is scored window by window, in bounded memory.

    Args:
        scorer: Of sequences of any length, whose sums stay below 2^24, where float32 is exact.
    """

    def __init__(self, scorer: IntegerEstimator) -> None:
        super().__init__()
        self.scorer = scorer
        layers: list[Any] = list(scorer.local)
        assert max(layer.worst for layer in layers) < 2**24
        self.taps = max(layer.weight.shape[-1] for layer in layers)
        self.margin = sum(layer.weight.shape[-1] // 2 for layer in layers)
        self.ready = [layer.ready((self.taps,), strips=True, plain=True, traced=True) for layer in layers]
        getattr(scorer, "score_unit", None)  # read now: a graph made of this module cannot

    def forward(self, windows: Tensor) -> Tensor:
        """Score the positions between the margins."""
        features = self.scorer.pixels(windows)
        for made in self.ready:
            features = made(features, margin=True)
        return features.squeeze(1).to(torch.float32)


def put_genomes(folder: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    """Write the model and the sample into the page's folder; return what the page must know of them."""
    scorer: Any = unshift.load(RESTORER).stages[0].scorer
    windows = Windows(scorer)
    place = "samples/mitogenomes.fa"
    (folder / place).write_bytes(gzip.decompress((FOLDER / "mitogenomes.fa.gz").read_bytes()))
    return {
        "restorer": RESTORER,
        "model": put(folder, f"{RESTORER}-windows", lambda path: export_windows(windows, path), progress),
        "sample": place,
        "taps": windows.taps,
        "margin": windows.margin,
        "unit": scorer.score_unit,
        "letters": {letter: encode(letter).flatten().tolist() for letter in MEANING},
        "complement": {letter: oriented(letter, 0, 1) for letter in MEANING},
    }


def export_windows(windows: Windows, path: Path) -> None:
    """Write the graph: both strands of a window of any length."""
    example = torch.zeros(2, 4, 2 * windows.margin + 100)
    length = torch.export.Dim("length", min=2 * windows.margin + 1)
    export_module(windows, example, path, ("windows", "scores"), {2: length})
