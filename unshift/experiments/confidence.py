"""What the confidence is worth: as a probability, as a reason to leave an image alone, against images of another kind.

Not in the paper. *Right* means restored exactly, to the pixel. The curve was fitted on training images held out; all
that is shown is measured on test images.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import unshift
from unshift.data import prepare, to_float
from unshift.evaluation import judged_on
from unshift.experiments.cases import images_of
from unshift.experiments.record import Block, Case, Experiment, Options, Result, Results, Row, Table
from unshift.experiments.reliability_plots import pictures
from unshift.reliability import Judged, reliability, separation

COVERAGES = (0.5, 0.8, 0.9, 0.95, 1.0)
LEAST = 0.5
"""The confidence from which on an image is let through in the table of other kinds."""


@dataclass(frozen=True)
class _Loaded:
    name: str
    data: str
    restorer: Any
    images: Tensor
    others: Mapping[str, Tensor]


def _load(name: str, data: str, foreign: Mapping[str, str], options: Options) -> _Loaded:
    """Return a shipped restorer, its test images and images of other kinds, prepared as its own."""
    restorer = unshift.load(name)
    count = 60 if options.quick else 10_000
    images = _test(data, restorer, options)
    generator = torch.Generator().manual_seed(0)
    kinds = {kind: _test(other, restorer, options) for kind, other in foreign.items()}
    kinds["noise, each pixel by itself"] = torch.rand(min(count, 1000), *images.shape[1:], generator=generator)
    kinds["blank"] = torch.zeros(1, *images.shape[1:])
    return _Loaded(name, data, restorer, images, kinds)


def _test(data: str, restorer: Any, options: Options) -> Tensor:
    """Return test images in the restorer's channels."""
    channels, images = restorer.trained_on["channels"], images_of(data, options, few=60).images
    grey = to_float(images).mean(1, keepdim=True)
    shown = to_float(images) if images.shape[1] == channels else grey.expand(-1, channels, -1, -1)
    if "resize" not in restorer.trained_on["preparation"] and shown.shape[2:] != (32, 32):
        shown = torch.nn.functional.pad(shown, [2, 2, 2, 2])  # 28x28 where the photos have 32x32
    return prepare(shown.contiguous(), restorer.trained_on["preparation"])


def _measure(loaded: _Loaded) -> Result:
    raw = copy.deepcopy(loaded.restorer)
    for stage in raw.stages:
        stage.curve = None
    own = judged_on(loaded.restorer, loaded.images)
    bare = judged_on(raw, loaded.images)
    return {
        "data": loaded.data,
        "restorer": loaded.name,
        "images": len(loaded.images),
        "calibrated_on": loaded.restorer.metadata["calibration"]["images"],
        "before": reliability(bare.confidence, bare.right).as_dict(),
        "after": reliability(own.confidence, own.right).as_dict(),
        "within_1": float((own.distance <= 1).double().mean()),
        "passed": _passed(own.confidence),
        "others": {kind: _other(loaded.restorer, own, images) for kind, images in loaded.others.items()},
    }


def _other(restorer: Any, own: Judged, images: Tensor) -> Result:
    sure = judged_on(restorer, images).confidence
    mean = float(sure.mean())
    return {
        "images": len(images),
        "confidence": mean,
        "passed": _passed(sure),
        "separation": separation(own.confidence, sure),
    }


def _passed(confidence: Tensor) -> float:
    return float((confidence < LEAST).double().mean())


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    own, before = result["after"], result["before"]
    forms = ["{:.4f}", *["{:.2f}"] * len(COVERAGES)]
    values = [[worth["ece"], *(100 * _wrong(worth, share) for share in COVERAGES)] for worth in (before, own)]
    rows = [
        Row("before calibration", values[0], form=forms),
        Row("calibrated", values[1], style="restored", form=forms),
    ]
    columns = ["calibration error", *(f"wrong at {share:.0%}" for share in COVERAGES)]
    note = (
        f"`{result['restorer']}` on {result['data']} test, n = {result['images']:,}; calibrated on "
        f"{result['calibrated_on']:,} training images held out. Wrong: in %, not restored exactly, among the share of "
        f"images of the highest confidence; {result['within_1']:.2%} of all are found to within 1 pixel. Calibration "
        "error: expected, over 15 bins of equal width. A rising curve keeps the order, and so the risk."
    )
    kinds: dict[str, Result] = {"its own test images": {**result, "confidence": _mean(own), "separation": None}}
    foreign = [
        Row(
            kind,
            [one["images"], one["confidence"], 100 * one["passed"], one["separation"]],
            form=["{:,}", "{:.3f}", "{:.1f}", "{:.3f}"],
        )
        for kind, one in (kinds | result["others"]).items()
    ]
    told = (
        f"Left as they are: in %, with min_confidence={LEAST}. Told apart: how often an image of its own is surer than "
        "one of that kind (area under the ROC curve; 0.5 is chance)."
    )
    return [
        Table("", columns, rows, [note]),
        *pictures(f"confidence-{case}-", {"before": before, "calibrated": own}),
        Table("images", ["n", "mean confidence", "left as they are", "told apart"], foreign, [told]),
    ]


def _wrong(worth: Mapping[str, Any], coverage: float) -> float:
    return float(next(wrong for share, wrong, _ in worth["risk"] if share >= coverage - 1e-9))


def _mean(worth: Mapping[str, Any]) -> float:
    return float(sum(sure * count for sure, _, count in worth["bins"]) / worth["images"])


EXPERIMENT = Experiment(
    name="confidence",
    title="a confidence to act on",
    claim="The confidence is the probability of being restored exactly, and the same for every shift to the last bit.",
    cost="1 min on MNIST and CIFAR-10",
    cases=[
        Case("mnist", "mnist", partial(_load, "mnist", "mnist", {"Fashion-MNIST test": "fashion-mnist"})),
        Case("cifar10", "cifar10", partial(_load, "cifar10", "cifar10", {"MNIST test": "mnist"})),
    ],
    measure=_measure,
    show=_show,
)
