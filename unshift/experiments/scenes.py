"""A digit anywhere in a larger scene, before a classifier that takes small images with one digit in their middle.

Where an object moves over a scene, what is circular is the scene. Digits of MNIST's test set are put at random places
of scenes, among pieces of other digits, and LeNet-5 gets the window that the restorer cuts out. Beside it: the window
at the true place, and the whole scene scaled down to the classifier's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import unshift
from unshift.coordinates import Pose
from unshift.data import dataset, prepare, resize, to_float
from unshift.evaluation import accuracy, predict
from unshift.experiments import plots
from unshift.experiments.classifiers import shipped
from unshift.experiments.record import Block, Case, Experiment, Options, Picture, Result, Results, Row, Table
from unshift.scenes import Scenes, clutter, cut
from unshift.shifts import times

__all__ = ["scenes_of"]

NAME = "mnist-scene"
KINDS = [((64, 64), 6), ((64, 64), 0), ((128, 128), 6), ((96, 160), 6), ((128, 128), 24), ((96, 160), 22)]
"""Sizes of scenes, and how many pieces of other digits lie in each."""
DRAWS = 3
"""Circular shifts of each scene whose verdicts are compared."""
PICTURES = ("scene", "true place", "restored")


@dataclass(frozen=True)
class DigitsInScenes:
    """Digits, a frozen classifier, and the restorer that finds them."""

    images: Tensor
    labels: Tensor
    classifier: Any
    restorer: Any
    seeds: tuple[int, ...]
    larger: int
    """digits that are put into scenes larger than those the restorer was trained on"""
    exact: int
    """scenes that are moved by each of their shifts, and compared bit for bit"""


def scenes_of(digits: Tensor, size: tuple[int, int], pieces: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return a scene of each digit, among pieces of other digits, and where the digit stands in it.

    Args:
        digits: ``(n, 1, 32, 32)``.
        size: Of the scenes.
        pieces: Of 8x8 pixels, in each scene; they may lie on the digit.
        seed: The same seed makes the same scenes.
    """
    make = Scenes(size, digits.shape[2:], digits.shape[1:], partial(clutter, pieces=pieces), value=0.0)
    scenes, pose = make.posed(digits, torch.Generator().manual_seed(seed))
    return scenes, pose.shift


def _load(options: Options) -> DigitsInScenes:
    test = dataset("mnist-10k", "test")
    assert test.labels is not None
    restorer = unshift.load(NAME)
    count = 30 if options.quick else len(test.images)
    images = to_float(prepare(test.images[:count], restorer.trained_on["preparation"]))
    few = options.quick
    seeds, larger, exact = (options.seeds[:1], 10, 0) if few else (options.seeds, 1000, 4)
    return DigitsInScenes(images, test.labels[:count], shipped()["lenet5-mnist"](), restorer, seeds, larger, exact)


def _measure(case: DigitsInScenes) -> Result:
    """Measure, in percent: the scene scaled down, the window at the true place, the window that was found."""
    rows = [_accuracies(case, size, pieces) for size, pieces in KINDS]
    scenes, _ = scenes_of(case.images[: case.larger], (64, 64), 6, case.seeds[0])
    checked = unshift.verify(
        case.restorer, scenes[: max(1, case.exact)], brute_force=True, moves=None if case.exact else 8
    )
    return {
        "data": "MNIST test, digits of 32x32",
        "seeds": list(case.seeds),
        "classifier": "LeNet-5 (shipped)",
        "restorer": NAME,
        "trained": case.restorer.metadata["scenes"]["size"],
        "scenes": rows,
        "consistent": {"images": len(scenes), **_consistency(case, scenes)},
        "verified": checked.as_dict(),
        "pictures": _pictures(case),
    }


def _accuracies(case: DigitsInScenes, size: tuple[int, int], pieces: int) -> dict[str, Any]:
    count = len(case.images) if size == (64, 64) else case.larger
    digits, labels = case.images[:count], case.labels[:count]
    found: dict[str, list[float]] = {"bare": [], "true": [], "restored": [], "within_1": []}
    for seed in case.seeds:
        right = dict.fromkeys(found, 0.0)
        for at in range(0, count, 500):  # a thousand large scenes do not fit in memory together
            some = slice(at, at + 500)
            scenes, place = scenes_of(digits[some], size, pieces, seed * 100_003 + at)
            estimate = case.restorer.estimate(scenes)
            off = case.restorer.coordinates.distance(Pose(estimate.shift - place), size)
            windows = {
                "bare": resize(scenes, (32, 32)),
                "true": cut(scenes, place, (32, 32)),
                "restored": case.restorer.undo(scenes, estimate),
            }
            for name, images in windows.items():
                right[name] += accuracy(case.classifier, images, labels[some]) * len(images)
            right["within_1"] += float((off <= 1).sum())
        for name, total in right.items():
            found[name].append(100 * total / count)
    return {"size": list(size), "pieces": pieces, "images": count, **found}


def _consistency(case: DigitsInScenes, scenes: Tensor) -> dict[str, float]:
    """Return how many scenes get one verdict wherever they are moved, in percent, with and without the restorer."""
    verdicts: dict[str, list[Tensor]] = {"bare": [], "restored": []}
    for draw in range(DRAWS):
        generator = torch.Generator().manual_seed(draw)
        pose = case.restorer.coordinates.draw((64, 64), len(scenes), None, generator)
        moved = case.restorer.coordinates.move(scenes, pose)
        verdicts["bare"].append(predict(case.classifier, resize(moved, (32, 32))))
        verdicts["restored"].append(predict(lambda batch: case.classifier(case.restorer(batch)), moved))
    stacked = {name: torch.stack(some) for name, some in verdicts.items()}
    return {name: 100 * float((same == same[0]).all(0).double().mean()) for name, same in stacked.items()}


def _pictures(case: DigitsInScenes, count: int = 10) -> dict[str, Any]:
    digits = case.images[:count]
    scenes, place = scenes_of(digits, (64, 64), 6, case.seeds[0])
    shown = (scenes, *(_framed(x) for x in (cut(scenes, place, (32, 32)), case.restorer(scenes))))
    return {name: (255 * x[:, 0]).round().to(torch.uint8).tolist() for name, x in zip(PICTURES, shown, strict=True)}


def _framed(windows: Tensor) -> Tensor:
    """Enlarge windows to the size of scenes, pixel by pixel, so that both stand in one picture."""
    return windows.repeat_interleave(2, 2).repeat_interleave(2, 3)


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    rows, checked, same = result["scenes"], result["verified"], result["consistent"]
    columns = [f"{times(row['size'])}, {row['pieces'] or 'no'} pieces" for row in rows]
    styles: dict[str, Any] = {"bare": "bare", "true": "plain", "restored": "restored", "within_1": "detail"}
    labels = (
        "scene scaled down to 32x32",
        "window at the true place",
        f"with unshift ({result['restorer']})",
        "found to within a pixel",
    )
    table = [
        Row(label, [fmean(row[key]) for row in rows], style=style)
        for label, (key, style) in zip(labels, styles.items(), strict=True)
    ]
    notes = [
        f"{result['classifier']}, accuracy in %, {result['data']}, each at a random place of its scene; pieces are 8x8 "
        f"pixels of other digits, at random places, also on the digit. n = "
        f"{', '.join(format(row['images'], ',') for row in rows)}; mean over draws with seeds {result['seeds']}. "
        f"Trained on scenes of {times(result['trained'])}, without labels.",
        f"One verdict under {DRAWS} random circular shifts of the scene (64x64, 6 pieces, n = {same['images']:,}): "
        f"{same['restored']:.2f}% with unshift, {same['bare']:.2f}% scaled down. Bit for bit: {checked['images']:,} "
        f"scenes of 64x64 under {checked['moves'] // checked['images']:,} circular shifts each, through the whole "
        f"network, {checked['mismatches']:,} windows that differ.",
    ]
    draw = partial(plots.rows, result["pictures"], 3.2) if "pictures" in result else None
    return [Table("", columns, table, notes), Picture("scenes", "Scenes, and the windows cut out of them", draw)]


EXPERIMENT = Experiment(
    name="scenes",
    title="an object anywhere in a larger scene",
    claim="An object anywhere in a larger scene is found and cut out for a frozen classifier, one window bit for bit "
    "wherever the scene is moved.",
    cost="10 min on MNIST",
    cases=[Case("mnist-scene", "mnist", _load)],
    measure=_measure,
    show=_show,
)
