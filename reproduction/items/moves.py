"""Moves that lose pixels: each kind in training against each kind in the test, and shifts by a fraction of a pixel.

Claim: A restorer undoes the moves that it was trained on. No restorer helps if a crop does not show its position.
Paper: circular shifts only.
Cost: 11 min for CIFAR-10, four trainings included; 1 min to 3 min for each of the others.

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
from reproduction.items import imagenet
from reproduction.records import Options, Result, percent
from reproduction.spatial_transformer import shift_smoothly
from reproduction.tables import Block, Row, Table
from unshift.coordinates import Pose, Shifts, draw_shifts
from unshift.coordinates.lossy import MOVES, Moves
from unshift.evaluation import accuracy, predict
from unshift.shifts import add_margin, format_size, undo

RESNET18 = "resnet18-cifar10-autoattack"
CASES = {
    "cifar10": ("cifar10", "resnet20-cifar10-plain"),
    "zero-filled": ("cifar10", "resnet20-cifar10-plain"),
    "sub-pixel-cifar10": ("cifar10", RESNET18),
    "sub-pixel-photos": ("photographs", "efficientnet-lite1"),
}
SCOPE = 4
"""The largest shift, and the margin around every window, in pixels."""
LOST = (2, 4, 8)
"""Largest zero-filled shifts, in pixels."""
FITTING: dict[str, Any] = {"preset": "seam", "epochs": 3}
TRAINED_ON, TESTED_ON = 5_000, 1_000
FRACTIONAL = 500
"""Photos that are shifted by fractions of a pixel."""


def measure(case: str, options: Options) -> Result:
    """Fit a restorer for each kind of move, and measure each on all four; or measure a shipped one."""
    if case == "zero-filled":
        return _zero_filled(options)
    if case != "cifar10":
        return _sub_pixel(case, options)
    fitting = {**FITTING, **({"epochs": 1, "batch_size": 16} if options.quick else {})}
    larger = images_of(case, options, "train", few=60).images[:TRAINED_ON]
    test, labels = labelled(case, options, {}, 10 if options.quick else TESTED_ON)
    classifier = frozen(CASES[case][1], options).model
    restorers = {}
    for kind in MOVES:
        settings: dict[str, Any] = {"moves": kind} if kind == "circular" else {"moves": kind, "scope": SCOPE}
        settings |= {"data_name": case, "drop_unusable": True, "progress": options.progress}
        restorers[kind] = unshift.fit(larger if kind == "crop" else _middle(larger), **settings, **fitting)
    moves: Result = {}
    for kind in MOVES:
        images = test if kind == "crop" else _middle(test)
        draws = [Moves(kind, Shifts(), SCOPE)(images, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
        true = [undo(shown, pose.shift) for shown, pose in draws]
        moves[kind] = {name: _restored(restorer, classifier, draws, labels) for name, restorer in restorers.items()}
        moves[kind]["bare"] = {"accuracy": _accuracy(classifier, [shown for shown, _ in draws], labels)}
        moves[kind]["true"] = {"accuracy": _accuracy(classifier, true, labels)}
    return {
        "data": case,
        "train_images": len(larger),
        "images": len(test),
        "size": list(_middle(test).shape[2:]),
        "scope": SCOPE,
        "classifier": CASES[case][1],
        "fitting": fitting,
        "unmoved": 100 * accuracy(classifier, _middle(test), labels),
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
    facts = {"data": "CIFAR-10 test, 32x32", "images": len(images), "seed": 0, "restorer": "cifar10-seam"}
    return {**facts, "columns": [str(n) for n in LOST], "classifier": behind.title, "bare": bare, "restored": restored}


def _sub_pixel(case: str, options: Options) -> Result:
    """Shift photos circularly by a whole number of pixels and a fraction, bilinearly; measure a shipped restorer.

    An answer is right if it is the bare classifier's answer for the photo before the shift.
    """
    name = case.removeprefix("sub-pixel-")
    restorer: Any = unshift.load(name)
    if name == "photos":
        images, model, title = imagenet.photos_and_classifier(options)
    else:
        images, _ = labelled(name, options, restorer.trained_on["preparation"], FRACTIONAL)
        behind = frozen(RESNET18, options)
        model, title = behind.model, behind.title
    answers = predict(model, images, batch_size=50)
    whole = draw_shifts(tuple(images.shape[2:]), len(images), None, torch.Generator().manual_seed(0))
    rows: dict[str, list[float]] = {"bare": [], "restored": [], "within_1": []}
    for fraction in (0.0, 0.25, 0.5):
        moved = shift_smoothly(images, -(whole + fraction))
        estimate = restorer.estimate(moved)
        off = Shifts().distance(Pose(estimate.shift - whole), tuple(images.shape[2:]))
        up = Shifts().distance(Pose(estimate.shift - whole - 1), tuple(images.shape[2:]))
        rows["within_1"].append(percent((off <= 1) | (up <= 1)))
        for kind, shown in (("bare", moved), ("restored", restorer.undo(moved, estimate))):
            rows[kind].append(percent(predict(model, shown, batch_size=50) == answers))
    facts = {"data": f"photos of {format_size(images.shape[2:])}", "images": len(images), "seed": 0, "restorer": name}
    return {**facts, "columns": ["0", "1/4", "1/2"], "classifier": title, **rows}


def _middle(images: Tensor) -> Tensor:
    return add_margin(images, -SCOPE).contiguous()


def _restored(restorer: Any, classifier: nn.Module, draws: list[tuple[Tensor, Pose]], labels: Tensor) -> Result:
    """Return how often the move is estimated exactly, and the accuracy behind the restorer."""
    errors = torch.cat([restorer.estimate(moved).shift - pose.shift for moved, pose in draws[:1]])
    off = Shifts().distance(Pose(errors), tuple(draws[0][0].shape[2:]))
    shown = [moved for moved, _ in draws]
    return {
        "exact": percent(off == 0),
        "accuracy": _accuracy(nn.Sequential(restorer, classifier), shown, labels),
    }


def _accuracy(classifier: nn.Module, draws: list[Tensor], labels: Tensor) -> float:
    return 100 * sum(accuracy(classifier, moved, labels) for moved in draws) / len(draws)


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the exact rates and the accuracies."""
    result = results[case]
    if case != "cifar10":
        return [_shipped(result)]
    moves, heads = result["moves"], [f"moved: {kind}" for kind in MOVES]
    where = (
        f"{result['data']} test, n = {result['images']:,}, windows of {format_size(result['size'])}, each moved at "
        f"random by up to {result['scope']} pixels"
    )
    fitting = ", ".join(f"{key} {value}" for key, value in result["fitting"].items())
    exact = [Row(f"trained: {kind}", [moves[how][kind]["exact"] for how in MOVES]) for kind in MOVES]
    accuracies = [
        Row("bare", [moves[how]["bare"]["accuracy"] for how in MOVES], style="bare"),
        *(Row(f"trained: {kind}", [moves[how][kind]["accuracy"] for how in MOVES]) for kind in MOVES),
        Row("undone by the true move", [moves[how]["true"]["accuracy"] for how in MOVES], style="aside"),
    ]
    fitted = f"{where} (seed 0). Fitted on {result['train_images']:,} images ({fitting})."
    behind = f"`{result['classifier']}`, frozen, {where} (mean of seeds 0 and 1); not moved: {result['unmoved']:.2f}."
    return [Table("estimated exactly (%)", heads, exact, [fitted]), Table("accuracy (%)", heads, accuracies, [behind])]


def _shipped(result: Result) -> Table:
    """Return the rows of a shipped restorer of whole circular shifts, under zero-filled or fractional ones."""
    effect = [after - before for before, after in zip(result["bare"], result["restored"], strict=True)]
    rows = [
        Row(f"{result['classifier']}, bare", result["bare"], "bare"),
        Row(f"with unshift ({result['restorer']})", result["restored"], "restored"),
        Row("effect", effect, "detail", "{:+.2f}"),
    ]
    columns = result["columns"]
    note = f"{result['data']}, n = {result['images']:,}, seed 0."
    if "within_1" not in result:
        return Table("zero-filled shift up to (pixels)", columns, rows, [f"Accuracy in %, {note}"])
    rows.append(Row("shift found to within a pixel", result["within_1"], "aside"))
    note = (
        f"Answers in % that are those for the photo before the shift, {note} Bilinear, both axes, any whole shift plus"
    )
    return Table("fraction of a pixel", columns, rows, [f"{note} this fraction. Half a pixel blurs the photo most."])
