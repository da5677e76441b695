"""Shift and turn at once: digits turned and shifted at random, before a classifier that knows upright ones only.

Two cases: quarter turns with any circular shift, all of it undone bit for bit; and any angle with any circular shift,
where the centre is found first, then the turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import unshift
from unshift.data import dataset, prepare, to_float
from unshift.evaluation import accuracy, predict
from unshift.experiments import plots
from unshift.experiments.classifiers import shipped
from unshift.experiments.record import Block, Case, Experiment, Options, Picture, Result, Results, Row, Table

ROWS = ("upright", "moved", "restored")


@dataclass(frozen=True)
class PosedDigits:
    """Digits, a frozen classifier and the restorer that undoes their pose."""

    images: Tensor
    labels: Tensor
    classifier: Any
    name: str
    restorer: Any
    seeds: tuple[int, ...]
    exact: int
    """digits that are restored under every quarter turn and a sample of shifts, and compared bit for bit"""


def _load(name: str, options: Options) -> PosedDigits:
    """Return MNIST's test digits with the shipped LeNet-5 and restorer ``name``."""
    test = dataset("mnist-10k", "test")
    assert test.labels is not None
    restorer = unshift.load(name)
    count = 40 if options.quick else len(test.images)
    images = to_float(prepare(test.images[:count], restorer.trained_on["preparation"]))
    seeds = options.seeds[:1] if options.quick else options.seeds
    return PosedDigits(
        images, test.labels[:count], shipped()["lenet5-mnist"](), name, restorer, seeds, 2 if options.quick else 25
    )


def _measure(case: PosedDigits) -> Result:
    """Measure, in percent: upright, moved and bare, moved and restored; and whether it is one image, bit for bit."""
    coordinates, size = case.restorer.coordinates, tuple(case.images.shape[2:])
    bare, restored, verdicts = [], [], []
    for seed in case.seeds:
        pose = coordinates.draw(size, len(case.images), None, torch.Generator().manual_seed(seed))
        moved = coordinates.move(case.images, pose)
        bare.append(100 * accuracy(case.classifier, moved, case.labels))
        verdicts.append(predict(lambda batch: case.classifier(case.restorer(batch)), moved))
        restored.append(100 * float((verdicts[-1] == case.labels).double().mean()))
    checked = unshift.verify(case.restorer, case.images[: case.exact], brute_force=False)
    same = torch.stack(verdicts)
    return {
        "data": "MNIST test, 32x32",
        "images": len(case.images),
        "seeds": list(case.seeds),
        "classifier": "LeNet-5 (shipped)",
        "restorer": case.name,
        "undoes": coordinates.undoes,
        "upright": 100 * accuracy(case.classifier, case.images, case.labels),
        "bare": bare,
        "restored": restored,
        "consistent": 100 * float((same == same[0]).all(0).double().mean()),
        "verified": checked.as_dict(),
        "pictures": _pictures(case),
    }


def _pictures(case: PosedDigits, count: int = 16) -> dict[str, Any]:
    images = case.images[:count]
    coordinates = case.restorer.coordinates
    generator = torch.Generator().manual_seed(case.seeds[0])
    moved = coordinates.move(images, coordinates.draw(tuple(images.shape[2:]), len(images), None, generator))
    shown = (images, moved, case.restorer(moved))
    return {name: (255 * x[:, 0]).round().to(torch.uint8).tolist() for name, x in zip(ROWS, shown, strict=True)}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    checked = result["verified"]
    rows = [
        Row("upright, bare", [result["upright"]], style="plain"),
        Row("moved, bare", [_mean(result["bare"])], style="bare"),
        Row(f"moved, with unshift ({result['restorer']})", [_mean(result["restored"])], style="restored"),
        Row("same verdict under all draws", [result["consistent"]], style="detail"),
    ]
    notes = [
        f"{result['classifier']}, accuracy in %, {result['data']}, n = {result['images']:,}, mean over draws with "
        f"seeds {result['seeds']}; each digit moved by its own random pose. `{result['restorer']}` undoes "
        f"{result['undoes']}.",
        f"Restored bit for bit: {checked['images']:,} digits under {checked['moves'] // checked['images']:,} exact "
        f"moves each, {checked['mismatches']:,} mismatches, {checked['ties']:,} tied.",
    ]
    draw = partial(_draw, result["pictures"]) if "pictures" in result else None
    alt = f"Digits upright, moved and restored by {result['restorer']}"
    return [Table("", ["accuracy"], rows, notes), Picture(f"poses-{case}", alt, draw)]


def _draw(pictures: dict[str, Any]) -> bytes:
    figure, axes = plots.axes(10, 2.2)
    axes.grid(False)
    plots.mosaic(axes, [pictures[row] for row in ROWS], ROWS)
    return plots.png(figure)


EXPERIMENT = Experiment(
    name="poses",
    title="shift and turn at once",
    claim="Shift and turn are undone together: quarter turns bit for bit, any angle after the centre.",
    cost="5 min for MNIST, quarter turns and any angle",
    cases=[
        Case("turns", "mnist", partial(_load, "mnist-turns")),
        Case("pose", "mnist", partial(_load, "mnist-pose")),
    ],
    measure=_measure,
    show=_show,
)
