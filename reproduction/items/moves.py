"""Moves that lose pixels: every way to train against every way to move.

Claim: A restorer undoes the moves that it was trained on. No restorer helps where a window does not show its place.
Paper: circular shifts only.
Cost: 6 min for MNIST, 11 min for CIFAR-10, four trainings each included.

All images are windows of one size of larger images. They move by up to four pixels, and the pixels that enter are the
image itself (circular), zeros, its edge, or the rest of the larger image (crop).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import unshift
from reproduction.classifiers import frozen
from reproduction.images import images_of, labelled
from reproduction.records import Options, Result
from reproduction.tables import Block, Row, Table
from unshift.coordinates import Pose, Shifts
from unshift.coordinates.lossy import MOVES, Moves
from unshift.data import prepare
from unshift.evaluation import accuracy, predict
from unshift.shifts import add_margin, undo

CASES = {
    "mnist": ("mnist", "lenet5-mnist"),
    "cifar10": ("cifar10", "resnet20-cifar10-plain"),
    "zero-filled": ("cifar10", "resnet20-cifar10-plain"),
}
SCOPE = 4
"""The largest shift, and the margin around every window, in pixels."""
LOST = (2, 4, 8)
"""Largest zero-filled shifts, in pixels, of the case that trains nothing."""
PREPARATIONS: dict[str, dict[str, Any]] = {"mnist": {"resize": [32, 32], "pad": SCOPE}, "cifar10": {}}
FITTING: dict[str, dict[str, Any]] = {
    "mnist": {"preset": "lines", "epochs": 4},
    "cifar10": {"preset": "seam", "epochs": 3},
}
COUNTS = {"mnist": (20_000, 10_000), "cifar10": (5_000, 1_000)}
"""Training and test images."""


def measure(case: str, options: Options) -> Result:
    """Fit a restorer for each kind of move, and measure each on all four."""
    if case == "zero-filled":
        return _zero_filled(options)
    trained_on, tested_on = COUNTS[case]
    quick = {"epochs": 1, "batch_size": 16} if options.quick else {}
    fitting = {**FITTING[case], **quick}
    larger = prepare(images_of(case, options, "train", few=60).images[:trained_on], PREPARATIONS[case])
    test, labels = labelled(case, options, PREPARATIONS[case], 10 if options.quick else tested_on)
    classifier = frozen(CASES[case][1], options).model
    restorers = {}
    for kind in MOVES:
        settings: dict[str, Any] = {"moves": kind} if kind == "circular" else {"moves": kind, "scope": SCOPE}
        images = larger if kind == "crop" else _middle(larger)
        settings |= {"data_name": case, "drop_unusable": True, "progress": options.progress}
        restorers[kind] = unshift.fit(images, **settings, **fitting)
    moves: Result = {}
    for kind in MOVES:
        images = test if kind == "crop" else _middle(test)
        draws = [Moves(kind, Shifts(), SCOPE)(images, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
        moved = [shown for shown, _ in draws]
        true = [undo(shown, pose.shift) for shown, pose in draws]
        moves[kind] = {name: _restored(restorer, classifier, draws, labels) for name, restorer in restorers.items()}
        moves[kind] |= {"bare": _predicted(classifier, moved, labels), "true": _predicted(classifier, true, labels)}
    return {
        "data": case,
        "train_images": len(larger),
        "images": len(test),
        "size": list(_middle(test).shape[2:]),
        "scope": SCOPE,
        "classifier": CASES[case][1],
        "fitting": fitting,
        "unmoved": 100 * accuracy(classifier, _middle(test), labels),
        "fitted": {kind: restorer.metadata["seconds"] for kind, restorer in restorers.items()},
        "moves": moves,
    }


def _zero_filled(options: Options) -> Result:
    """Measure a shipped restorer of circular shifts on photos that were shifted with zeros."""
    restorer, behind = unshift.load("cifar10-seam"), frozen("resnet20-cifar10-plain", options)
    images, labels = labelled("cifar10", options, {})
    bare, restored = [], []
    for scope in LOST:
        moved, _ = Moves("zeros", Shifts(), scope)(images, torch.Generator().manual_seed(0))
        bare.append(100 * accuracy(behind.model, moved, labels))
        restored.append(100 * accuracy(nn.Sequential(restorer, behind.model), moved, labels))
    effect = [after - before for before, after in zip(bare, restored, strict=True)]
    facts = {"data": "CIFAR-10 test, 32x32", "images": len(images), "seed": 0, "scopes": list(LOST)}
    return {**facts, "classifier": behind.title, "bare": bare, "restored": restored, "effect": effect}


def _middle(images: Tensor) -> Tensor:
    return add_margin(images, -SCOPE).contiguous()


def _restored(restorer: Any, classifier: nn.Module, draws: list[tuple[Tensor, Pose]], labels: Tensor) -> Result:
    """Return how often the move is estimated exactly, and how often two draws of an image are estimated alike."""
    size = tuple(draws[0][0].shape[2:])
    errors = [restorer.estimate(moved).shift - pose.shift for moved, pose in draws]
    off, apart = (Shifts().distance(Pose(error), size) for error in (errors[0], errors[0] - errors[1]))
    return {
        "exact": 100 * float((off == 0).double().mean()),
        "within_1": 100 * float((off <= 1).double().mean()),
        "alike": 100 * float((apart == 0).double().mean()),
        **_predicted(nn.Sequential(restorer, classifier), [moved for moved, _ in draws], labels),
    }


def _predicted(classifier: nn.Module, draws: list[Tensor], labels: Tensor) -> Result:
    verdicts = [predict(classifier, moved) for moved in draws]
    right = [float((verdict == labels).double().mean()) for verdict in verdicts]
    return {
        "accuracy": 100 * sum(right) / len(right),
        "consistent": 100 * float((verdicts[0] == verdicts[1]).double().mean()),
    }


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the exact rates, the accuracies, and the agreement of two windows of one image."""
    result = results[case]
    if case == "zero-filled":
        rows = [
            Row(f"{result['classifier']}, bare", result["bare"], "bare"),
            Row("with unshift (cifar10-seam)", result["restored"], "restored"),
            Row("effect", result["effect"], "detail", "{:+.2f}"),
        ]
        note = f"Accuracy in %, {result['data']}, n = {result['images']:,}, seed 0. A restorer of circular shifts only."
        return [Table("zero-filled shift up to (pixels)", [str(scope) for scope in result["scopes"]], rows, [note])]
    moves, crops = result["moves"], result["moves"]["crop"]
    size, heads = "x".join(map(str, result["size"])), [f"moved: {kind}" for kind in MOVES]
    where = (
        f"{result['data']} test, n = {result['images']:,}, windows of {size}, each moved at random by up to "
        f"{result['scope']} pixels (seeds 0 and 1)"
    )
    fitting = ", ".join(f"{key} {value}" for key, value in result["fitting"].items())
    spent = ", ".join(f"{kind} {seconds:.0f} s" for kind, seconds in result["fitted"].items())
    exact = [Row(f"trained: {kind}", [moves[how][kind]["exact"] for how in MOVES]) for kind in MOVES]
    accuracies = [
        Row("bare", [moves[how]["bare"]["accuracy"] for how in MOVES], style="bare"),
        *(Row(f"trained: {kind}", [moves[how][kind]["accuracy"] for how in MOVES]) for kind in MOVES),
        Row("undone by the true move", [moves[how]["true"]["accuracy"] for how in MOVES], style="aside"),
    ]
    pairs = [
        Row("bare", [None, crops["bare"]["consistent"]], style="bare"),
        *(Row(f"trained: {kind}", [crops[kind]["alike"], crops[kind]["consistent"]]) for kind in MOVES),
    ]
    fitted = f"{where}. Fitted on {result['train_images']:,} images ({fitting}; {spent})."
    behind = f"`{result['classifier']}`, frozen, {where}, mean of both; not moved: {result['unmoved']:.2f}."
    crop = (
        f"Crop: each test image through two windows, moved by up to {result['scope']} pixels each; n = "
        f"{result['images']:,}. Same place: the two estimates differ by as much as the windows do. Same prediction: of "
        "the classifier behind the restorer."
    )
    return [
        Table("estimated exactly (%)", heads, exact, [fitted]),
        Table("accuracy (%)", heads, accuracies, [behind]),
        Table("two windows of one image (%)", ["same place", "same prediction"], pairs, [crop]),
    ]
