"""Confidence as a probability: calibration, risk against coverage, and images of another kind.

Claim: The confidence is the probability that an image is restored exactly, the same for every shift bit for bit.
Paper: no confidence.
Cost: 2 min.

``shipped`` shows to every shipped restorer its own test images, noise, a blank image and images of another kind, and
counts how many ``min_confidence`` rejects, for several bounds. ``"cautious"`` is the one that the table shows.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from importlib import import_module
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction.images import images_of
from reproduction.records import Options, Result
from reproduction.tables import Block, Row, Table
from unshift.data import prepare, to_float
from unshift.evaluation import judged_on, reliability
from unshift.files import CAUTIOUS, pretrained

CASES = {
    "mnist": ("mnist-10k", "fashion-mnist"),
    "cifar10": ("cifar10", "mnist-10k"),
    "shipped": ("mnist", "fashion-mnist", "cifar10", "mitogenomes", "photographs"),
}
FOREIGN = {"mnist": ("Fashion-MNIST test", "fashion-mnist"), "cifar10": ("MNIST test", "mnist")}
"""For each restorer, images of another kind."""
COVERAGES = (0.5, 0.8, 0.9, 0.95, 1.0)
THRESHOLD = 0.5
"""``min_confidence`` in the table of other images."""
KINDS, FORMS = ("own", "noise", "blank", "other"), ["{:,}", *["{:.1f}"] * 4]
BOUNDS = (0.5, 0.8, CAUTIOUS, 0.95, 0.99)
MOST = 100
"""Images of a kind that are shown to each shipped restorer; genomes are fewer."""


def measure(case: str, options: Options) -> Result:
    """Measure the reliability of a shipped restorer's confidence on its test images, and on images of another kind."""
    if case == "shipped":
        return {name: _shipped(name, options) for name in pretrained()}
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


def _shipped(name: str, options: Options) -> Result:
    """Return the share that each bound rejects, of several kinds of images. A quick run takes noise for all of them."""
    restorer: Any = unshift.load(name)
    restorer.min_confidence = 0.0
    chance = torch.Generator().manual_seed(0)
    channels, size = restorer.image_shape()
    whole = not options.quick
    count = MOST if whole else 2
    own: Any = torch.rand(
        count, channels or 1, *(size or [64] * (restorer.stages[0].scorer.axes or 2)), generator=chance
    )
    if whole:
        made = import_module(f"reproduction.train.{name.replace('-', '_')}").images("test")
        count = min(count, len(made), 30 if channels == 4 else count)
        rows = torch.randperm(len(made), generator=chance)[:count].tolist()
        own = [to_float(made[row][0] if name == "pages" else made[row]) for row in rows]  # pages are batches of one
    shape = own[0].shape
    noise = torch.rand(count, *shape, generator=chance)
    if channels == 4:  # genomes: random bases
        noise = torch.nn.functional.one_hot(noise.argmax(1), 4).movedim(-1, 1).float()
    kinds = {"own": own, "noise": noise, "blank": torch.zeros(1, *shape)}
    if len(shape) == 3:
        other = "fashion-mnist" if shape[0] == 1 and name != "fashion-mnist" else "mnist"
        kinds["other"] = _test(other, restorer, options)[:count]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unlike the images it was trained on: that is the point
        return {
            kind: _rejected(torch.cat([restorer.estimate(image[None]).confidence for image in images]))
            for kind, images in kinds.items()
        }


def _rejected(confidence: Tensor) -> Result:
    shares = {str(bound): float((confidence < bound).double().mean()) for bound in BOUNDS}
    return {"images": len(confidence), "confidence": float(confidence.mean()), "rejected": shares}


def _test(data: str, restorer: Any, options: Options) -> Tensor:
    """Return test images with the restorer's channels, prepared as its own."""
    images = to_float(images_of(data, options, few=60).images)
    channels, preparation = restorer.image_shape()[0] or images.shape[1], restorer.trained_on.get("preparation", {})
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
    if case == "shipped":
        return [_shipped_table(result)]
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


def _shipped_table(result: Result) -> Table:
    rows = [
        Row(f"`{name}`", [kinds["own"]["images"], *(_share(kinds.get(kind), CAUTIOUS) for kind in KINDS)], form=FORMS)
        for name, kinds in result.items()
    ]
    passed = [f"{bound}: {', '.join(f'{kind} {_mean(result, kind, bound):.1f}' for kind in KINDS)}" for bound in BOUNDS]
    note = (
        f'Rejected in % with min_confidence="cautious" ({CAUTIOUS}), seed 0. Blank: one image. Another kind: Fashion-'
        "MNIST for digits, MNIST for all others. Noise: each pixel, or base, by itself. Mean over "
        f"restorers for each bound: {'; '.join(passed)}."
    )
    return Table("", ["n", "own test images", "noise", "blank", "another kind"], rows, [note])


def _share(one: Result | None, bound: float) -> float | None:
    return None if one is None else 100 * one["rejected"][str(bound)]


def _mean(result: Result, kind: str, bound: float) -> float:
    return fmean(_share(kinds[kind], bound) or 0.0 for kinds in result.values() if kind in kinds)


def _risk_at(worth: Mapping[str, Any], coverage: float) -> float:
    return float(next(wrong for share, wrong, _ in worth["risk"] if share >= coverage - 1e-9))
