"""Figure 5, 3-D translation: bodies of digits shifted along three axes.

The paper shows pictures; measured here are the accuracy of a small 3-D classifier, as in Table 1, and how often a
volume comes back to where it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

import unshift
from unshift import Chain, Restorer, apply
from unshift.data import dataset
from unshift.evaluation import predict, random_shifts
from unshift.experiments import plots
from unshift.experiments.accuracy_table import measure, table
from unshift.experiments.cases import LoadedCase
from unshift.experiments.classifiers import shipped
from unshift.experiments.record import Block, Case, Experiment, Options, Picture, Result, Results

ROWS = ("original", "shifted", "restored")


def _load(options: Options) -> LoadedCase:
    """Return 3D-MNIST, regenerated, with the shipped classifier and restorer; to train, fit the restorer again."""
    test = dataset("mnist3d", "test")
    assert test.labels is not None
    count = 12 if options.quick else len(test.images)
    if options.train:
        some = dataset("mnist3d", "train").images[: 64 if options.quick else None]
        epochs: dict[str, Any] = {"epochs": 1} if options.quick else {}
        fitted = unshift.fit(some, "paper", data_name="mnist3d", progress=options.progress, **epochs)
        restorers: dict[str, Restorer | Chain] = {"paper": fitted}
    else:
        restorers = {"mnist3d": unshift.load("mnist3d")}
    classifier: Any = shipped()["voxels3d-mnist3d"]()
    title, said = "3D-MNIST, regenerated, test, 32x32x32", "3-D conv net (shipped)"
    seeds = options.seeds[:1] if options.quick else options.seeds
    made = LoadedCase(title, test.images[:count], test.labels[:count], classifier, said, restorers, seeds)
    return replace(made, about=classifier.about, progress=options.progress)


def _measure(case: LoadedCase) -> Result:
    return {**measure(case, list(range(9)), batch_size=50), "pictures": _pictures(case)}


def _pictures(case: LoadedCase, count: int = 6) -> dict[str, Any]:
    """Return the first volumes original, shifted and restored."""
    images = case.images[:count]
    shift = random_shifts(len(images), 3, 8, case.seeds[0])
    shifted = apply(images, shift)
    restored = next(iter(case.restorers.values()))(shifted)
    return {
        "labels": case.labels[:count].tolist(),
        "applied": shift.tolist(),
        "verdict_shifted": predict(case.classifier, shifted).tolist(),
        "verdict_restored": predict(case.classifier, restored).tolist(),
        **{
            name: (shown[:, 0] * 255).round().to(torch.uint8).tolist()
            for name, shown in zip(ROWS, (images, shifted, restored), strict=True)
        },
    }


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    draw = (lambda: _draw(result["pictures"])) if "pictures" in result else None
    return [table(result, unit="voxels"), Picture("volumes", "Volumes original, shifted and restored", draw)]


def _draw(pictures: dict[str, Any]) -> bytes:
    count = len(pictures["labels"])
    figure = plots.figure(1.9 * count, 5.6)
    for r, row in enumerate(ROWS):
        for c in range(count):
            axes: Any = figure.add_subplot(3, count, r * count + c + 1, projection="3d")
            grey = np.array(pictures[row][c]) / 255
            place = np.argwhere(grey > 0)
            axes.scatter(*place.T, c=grey[grey > 0], cmap="viridis", s=4, marker="s", depthshade=False, linewidths=0)
            axes.set(xlim=(0, 32), ylim=(0, 32), zlim=(0, 32), xticklabels=[], yticklabels=[], zticklabels=[])
            axes.set_box_aspect((1, 1, 1))
            axes.view_init(18, -25)
            axes.tick_params(length=0)
            if c == 0:
                axes.text2D(-0.12, 0.5, row, transform=axes.transAxes, rotation=90, va="center", fontsize=10)
            if row != "original":
                verdict = pictures[f"verdict_{row}"][c]
                colour = plots.verdict_colour(verdict == pictures["labels"][c])
                axes.set_title(f"“{verdict}”", color=colour, fontsize=9, y=-0.08)
    figure.subplots_adjust(left=0.03, right=0.99, top=0.99, bottom=0.03, wspace=0.02, hspace=0.05)
    return plots.png(figure)


EXPERIMENT = Experiment(
    name="volumes",
    item="Figure 5",
    title="volumes, one axis more",
    claim="The same restorer undoes shifts along three axes.",
    cost="15 min for 3D-MNIST",
    cases=[Case("mnist3d", "mnist", _load, trainable=True)],
    measure=_measure,
    show=_show,
)
