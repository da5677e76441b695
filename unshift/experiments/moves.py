"""Moves that lose pixels: every way to train against every way to move. Not in the paper.

All images are windows of the same size of somewhat larger ones. They move by up to four pixels, and what enters is the
image itself (circular), zeros, its edge, or the rest of the larger image (crop). A restorer is fitted for each of the
four, and measured on all four.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift.coordinates import Canvas, Pose
from unshift.data import prepare, to_float
from unshift.evaluation import accuracy, predict
from unshift.experiments.cases import images_of
from unshift.experiments.classifiers import shipped
from unshift.experiments.record import Block, Case, Experiment, Options, Result, Results, Row, Table
from unshift.moves import MOVES, Kind, Moves
from unshift.shifts import add_margin, undo

SCOPE = 4
"""The largest shift, in pixels, and the margin that every window leaves."""


@dataclass(frozen=True)
class _Loaded:
    name: str
    train: Tensor
    """larger images, of which the net sees windows"""
    test: Tensor
    labels: Tensor
    classifier: Any
    classifier_name: str
    fitting: Mapping[str, Any]
    progress: bool


def _load(
    data: str, preparation: Mapping[str, Any], count: int, tested: int, named: str, fitting: Any, options: Options
) -> _Loaded:
    """Return training and test images with the margin that windows leave, and a frozen classifier."""
    few = "mnist-10k" if options.quick and data == "mnist" else data  # it comes with the package
    train, test = (images_of(few, options, *part) for part in (("train", 60), ("test", 10)))
    assert test.labels is not None
    fitting = {**fitting, "epochs": 1, "batch_size": 16} if options.quick else fitting
    images = [prepare(part, dict(preparation)) for part in (train.images[:count], test.images[:tested])]
    net = shipped()[named]()
    return _Loaded(data, images[0], to_float(images[1]), test.labels[:tested], net, named, fitting, options.progress)


def _measure(loaded: _Loaded) -> Result:
    restorers = {kind: _fit(loaded, kind) for kind in MOVES}
    found: Result = {
        "data": loaded.name,
        "train_images": len(loaded.train),
        "images": len(loaded.test),
        "size": list(_middle(loaded.test).shape[2:]),
        "scope": SCOPE,
        "classifier": loaded.classifier_name,
        "fitting": dict(loaded.fitting),
        "unmoved": 100 * accuracy(loaded.classifier, _middle(loaded.test), loaded.labels),
        "fitted": {kind: restorer.metadata["seconds"] for kind, restorer in restorers.items()},
        "moves": {},
    }
    for kind in MOVES:
        images = loaded.test if kind == "crop" else _middle(loaded.test)
        draws = [Moves(kind, Canvas(), SCOPE)(images, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
        true = [(undo(moved, pose.shift), pose) for moved, pose in draws]
        measured: Result = {name: _restored(loaded, draws, restorer) for name, restorer in restorers.items()}
        measured |= {"bare": _of(loaded, draws, nn.Identity()), "true": _of(loaded, true, nn.Identity())}
        found["moves"][kind] = measured
    return found


def _fit(loaded: _Loaded, kind: Kind) -> Any:
    settings: dict[str, Any] = {"data_name": loaded.name, "drop_unusable": True, "progress": loaded.progress}
    if kind != "circular":
        settings["scope"] = SCOPE
    images = loaded.train if kind == "crop" else _middle(loaded.train)
    return unshift.fit(images, moves=kind, **settings, **loaded.fitting)


def _restored(loaded: _Loaded, draws: list[tuple[Tensor, Pose]], restorer: Any) -> Result:
    """Measure a restorer on two draws of moves: is the move found, and are the two draws told alike?"""
    estimates = [restorer.estimate(moved) for moved, _ in draws]
    size = tuple(draws[0][0].shape[2:])
    off = [
        Canvas().distance(Pose(found.shift - pose.shift), size)
        for found, (_, pose) in zip(estimates, draws, strict=True)
    ]
    apart = [one.shift - pose.shift for one, (_, pose) in zip(estimates, draws, strict=True)]
    return {
        "exact": 100 * float((off[0] == 0).double().mean()),
        "within_1": 100 * float((off[0] <= 1).double().mean()),
        "alike": 100 * float((Canvas().distance(Pose(apart[0] - apart[1]), size) == 0).double().mean()),
        **_of(loaded, draws, restorer),
    }


def _of(loaded: _Loaded, draws: list[tuple[Tensor, Pose]], restorer: Any) -> Result:
    verdicts = [predict(lambda x: loaded.classifier(restorer(x)), moved) for moved, _ in draws]
    right = [float((verdict == loaded.labels).double().mean()) for verdict in verdicts]
    return {
        "accuracy": 100 * sum(right) / len(right),
        "consistent": 100 * float((verdicts[0] == verdicts[1]).double().mean()),
    }


def _middle(images: Tensor) -> Tensor:
    return add_margin(images, -SCOPE).contiguous()


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    found = result["moves"]
    size, heads = "x".join(map(str, result["size"])), [f"moved: {kind}" for kind in MOVES]
    where = (
        f"{result['data']} test, n = {result['images']:,}, windows of {size}, each moved at random by up to "
        f"{result['scope']} pixels (seeds 0 and 1)"
    )
    fitting = ", ".join(f"{key} {value}" for key, value in result["fitting"].items())
    spent = ", ".join(f"{kind} {seconds:.0f} s" for kind, seconds in result["fitted"].items())
    exact = [Row(f"trained: {kind}", [found[how][kind]["exact"] for how in MOVES]) for kind in MOVES]
    rows = [
        Row("bare", [found[how]["bare"]["accuracy"] for how in MOVES], style="bare"),
        *(Row(f"trained: {kind}", [found[how][kind]["accuracy"] for how in MOVES]) for kind in MOVES),
        Row("undone by the true move", [found[how]["true"]["accuracy"] for how in MOVES], style="aside"),
    ]
    crops = found["crop"]
    pairs = [
        Row("bare", [None, crops["bare"]["consistent"]], style="bare"),
        *(Row(f"trained: {kind}", [crops[kind]["alike"], crops[kind]["consistent"]]) for kind in MOVES),
    ]
    note = (
        f"Crop: each test photo seen through two windows, moved by up to {result['scope']} pixels each; "
        f"n = {result['images']:,}. One place: the two estimates differ by just what the windows do. One verdict: of "
        "the classifier behind it."
    )
    return [
        Table(
            "found to the pixel (%)",
            heads,
            exact,
            [f"{where}. Fitted on {result['train_images']:,} images ({fitting}; {spent})."],
        ),
        Table(
            "accuracy (%)",
            heads,
            rows,
            [f"`{result['classifier']}`, frozen, {where}, mean of both; not moved: {result['unmoved']:.2f}."],
        ),
        Table(
            "two windows of one photo (%)",
            ["one place found in both", "one verdict"],
            pairs,
            [note],
        ),
    ]


EXPERIMENT = Experiment(
    name="moves",
    title="moves that lose pixels",
    claim="A restorer undoes the moves it was trained on; where nothing in a window tells where it lies, none helps.",
    cost="5 min on MNIST and CIFAR-10, eight trainings included",
    cases=[
        Case(
            "mnist",
            "mnist",
            partial(
                _load,
                "mnist",
                {"resize": [32, 32], "pad": SCOPE},
                20_000,
                10_000,
                "lenet5-mnist",
                {"preset": "lines", "epochs": 4},
            ),
        ),
        Case(
            "cifar10",
            "cifar10",
            partial(_load, "cifar10", {}, 5_000, 1_000, "resnet20-cifar10-plain", {"preset": "seam", "epochs": 3}),
        ),
    ],
    measure=_measure,
    show=_show,
)
