"""Confidence as a probability: calibration, risk against coverage, and images of another kind.

Claim: The confidence is the probability that an image is restored exactly, the same for every shift bit for bit.
Paper: no confidence.
Cost: seconds.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction.images import images_of
from reproduction.records import Options, Result
from reproduction.tables import Block, Row, Table
from unshift.data import prepare, to_float
from unshift.evaluation import judged_on, reliability

CASES = {"mnist": ("mnist-10k", "fashion-mnist"), "cifar10": ("cifar10", "mnist-10k")}
FOREIGN = {"mnist": ("Fashion-MNIST test", "fashion-mnist"), "cifar10": ("MNIST test", "mnist")}
"""For each restorer, images of another kind."""
COVERAGES = (0.5, 0.8, 0.9, 0.95, 1.0)
THRESHOLD = 0.5
"""``min_confidence`` in the table of other images."""


def measure(case: str, options: Options) -> Result:
    """Measure the reliability of a shipped restorer's confidence on its test images, and on images of another kind."""
    restorer = unshift.load(case)
    raw = copy.deepcopy(restorer)
    for stage in raw.stages:
        stage.curve = None
    images = _test(case, restorer, options)
    own, before = judged_on(restorer, images), judged_on(raw, images)
    title, data = FOREIGN[case]
    noise = torch.rand(min(len(images), 1000), *images.shape[1:], generator=torch.Generator().manual_seed(0))
    foreign = {title: _test(data, restorer, options), "noise, each pixel by itself": noise}
    foreign["blank"] = torch.zeros(1, *images.shape[1:])
    others = {}
    for kind, shown in foreign.items():
        confidence = judged_on(restorer, shown).confidence
        others[kind] = {
            "images": len(shown),
            "confidence": float(confidence.mean()),
            "passed": float((confidence < THRESHOLD).double().mean()),
            "separation": _separation(own.confidence, confidence),
        }
    return {
        "data": case,
        "restorer": case,
        "images": len(images),
        "calibrated_on": restorer.metadata["calibration"]["images"],
        "before": reliability(before.confidence, before.right).as_dict(),
        "after": reliability(own.confidence, own.right).as_dict(),
        "within_1": float((own.distance <= 1).double().mean()),
        "passed": float((own.confidence < THRESHOLD).double().mean()),
        "others": others,
    }


def _test(data: str, restorer: Any, options: Options) -> Tensor:
    """Return test images with the restorer's channels, prepared as its own."""
    images = to_float(images_of(data, options, few=60).images)
    channels, preparation = restorer.trained_on["channels"], restorer.trained_on["preparation"]
    if images.shape[1] != channels:
        images = images.mean(1, keepdim=True).expand(-1, channels, -1, -1)
    if "resize" not in preparation and images.shape[2:] != (32, 32):
        images = torch.nn.functional.pad(images, [2, 2, 2, 2])  # digits have 28x28 pixels, photos 32x32
    return prepare(images.contiguous(), preparation)


def _separation(inside: Tensor, outside: Tensor) -> float:
    """Return how often an image of the training kind has the higher confidence: the area under the ROC curve."""
    ordered, inside = outside.sort().values, inside.contiguous()
    below, up_to = (torch.searchsorted(ordered, inside, right=right).double().mean() for right in (False, True))
    return float(below + up_to) / 2 / len(outside)


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the risk before and after calibration, and the confidences of other images."""
    result = results[case]
    own, before = result["after"], result["before"]
    forms = ["{:.4f}", *["{:.2f}"] * len(COVERAGES)]
    values = [[one["ece"], *(100 * _risk_at(one, coverage) for coverage in COVERAGES)] for one in (before, own)]
    rows = [
        Row("before calibration", values[0], form=forms),
        Row("calibrated", values[1], style="restored", form=forms),
    ]
    columns = ["calibration error", *(f"wrong at {share:.0%}" for share in COVERAGES)]
    note = (
        f"`{result['restorer']}` on {result['data']} test, n = {result['images']:,}; calibrated on "
        f"{result['calibrated_on']:,} held-out training images. Wrong: error rate in % (not restored exactly) among "
        f"the share of images with the highest confidence; {result['within_1']:.2%} of all are restored to within 1 "
        "pixel. Calibration error: expected, over 15 bins of equal width. Calibration keeps the order, and so the risk."
    )
    mean = sum(confidence * count for confidence, _, count in own["bins"]) / own["images"]
    kinds = {"its own test images": {**result, "confidence": mean, "separation": None}, **result["others"]}
    foreign = [
        Row(
            kind,
            [one["images"], one["confidence"], 100 * one["passed"], one["separation"]],
            form=["{:,}", "{:.3f}", "{:.1f}", "{:.3f}"],
        )
        for kind, one in kinds.items()
    ]
    foreign_note = (
        f"Rejected: in %, with min_confidence={THRESHOLD}. Separation: how often one of its own images has a higher "
        "confidence than one of that kind (area under the ROC curve; 0.5 is chance)."
    )
    return [
        Table("", columns, rows, [note]),
        Table("images", ["n", "mean confidence", "rejected", "separation"], foreign, [foreign_note]),
    ]


def _risk_at(worth: Mapping[str, Any], coverage: float) -> float:
    return float(next(wrong for share, wrong, _ in worth["risk"] if share >= coverage - 1e-9))
