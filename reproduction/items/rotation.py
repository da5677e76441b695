"""Figure 6: rotation, a shift of the angle axis.

Claim: A rotation is a shift of the angle axis, so the same estimator undoes it; quarter turns exactly.
Paper: pictures of the first 24 test digits at 40, 90 and 150 degrees; no accuracy.
Cost: 5 min.

Digits are resized to 224x224, rotated and restored there, and resized to the classifier's 32x32: the same path with and
without a restorer. An enlarged digit shows the lattice of its pixels, which turns with it and gives the angle away to a
strong network. So the digits are also rotated at 28x28 and enlarged afterwards. ``rivals`` compares with other methods.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import unshift
from reproduction import plots
from reproduction.classifiers import frozen, resized
from reproduction.images import images_of
from reproduction.records import Options, Result, percent
from reproduction.tables import Block, Picture, Row, Table
from unshift.coordinates import rotate
from unshift.data import resize, to_float
from unshift.evaluation import predict
from unshift.progress import tracked

CASES = {"mnist-rotation": ("mnist-10k", "lenet5-mnist")}
RESTORERS = ("mnist-rotation", "mnist-rotation-paper")
SIZE = 224
SHOWN = (40, 90, 150)
"""Angles of the paper's picture."""
VERIFIED = 500
"""Digits that are restored after each quarter turn."""
PICTURES = ("original", "rotated", "restored")


def enlarge(digits: Tensor) -> Tensor:
    """Resize digits to 224x224, where they are rotated and restored."""
    return resize(to_float(digits), (SIZE, SIZE))


def measure(case: str, options: Options) -> Result:
    """Return accuracies in percent at random angles, errors of the angle, a check of quarter turns, and pictures."""
    restorers: dict[str, Any] = {name: unshift.load(name) for name in RESTORERS}
    model, test = resized(frozen("lenet5-mnist", options).model), images_of("mnist-10k", options, few=24)
    digits, labels = test.images, test.labels
    assert labels is not None
    generator = torch.Generator().manual_seed(options.seeds[0])
    applied = 360 * torch.rand(len(digits), generator=generator, dtype=torch.float64)
    accuracy: dict[str, dict[str, float]] = {}
    for key, native in (("accuracy", False), ("accuracy_native", True)):
        classes, angles = _classify(model, restorers, digits, applied, native, options)
        accuracy[key] = {name: percent(found == labels) for name, found in classes.items()}
        if not native:
            errors = {name: ((angle - applied + 180) % 360 - 180).abs() for name, angle in angles.items()}
    few = enlarge(digits[: 3 if options.quick else VERIFIED])
    return {
        "data": f"MNIST test, resized to {SIZE}x{SIZE}",
        "images": len(digits),
        "seed": options.seeds[0],
        "classifier": "LeNet-5 (shipped)",
        "restorers": list(RESTORERS),
        **accuracy,
        "errors": {
            name: {"median": float(error.median()), "within_10": percent(error <= 10)} for name, error in errors.items()
        },
        "checks": {name: unshift.verify(restorer, few).as_dict() for name, restorer in restorers.items()},
        "pictures": _pictures(restorers[RESTORERS[0]], model, digits[:24], labels[:24]),
    }


def _classify(
    model: nn.Module, restorers: dict[str, Any], digits: Tensor, applied: Tensor, native: bool, options: Options
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the predictions for digits rotated by ``applied``, and the angles that the restorers estimate.

    The digits are rotated at 224x224, or with ``native`` at their own 28x28.
    """
    classes: dict[str, list[Tensor]] = {}
    angles: dict[str, list[Tensor]] = {name: [] for name in restorers}
    side = 28 if native else SIZE
    parts = torch.arange(len(digits)).split(100)
    for rows in tracked(parts, f"random angles at {side}x{side}", "parts", options.progress):
        upright = enlarge(digits[rows])
        turned = enlarge(rotate(to_float(digits[rows]), applied[rows])) if native else rotate(upright, applied[rows])
        seen = {"upright": upright, "without": turned}
        for name, restorer in restorers.items():
            estimate = restorer.estimate(turned)
            angles[name].append(estimate.angle)
            seen[name] = restorer.undo(turned, estimate)
        for name, shown in seen.items():
            classes.setdefault(name, []).append(predict(model, shown))
    joined = [{name: torch.cat(parts) for name, parts in each.items()} for each in (classes, angles)]
    return joined[0], joined[1]


def _pictures(restorer: Any, model: nn.Module, digits: Tensor, labels: Tensor) -> Result:
    """Return the pixels of the paper's picture at 56x56, with the predictions."""
    upright, sheets = enlarge(digits), []
    for angle in SHOWN:
        turned = rotate(upright, angle)
        restored = restorer(turned)
        pixels = {
            name: plots.grey(resize(x, (56, 56))) for name, x in zip(PICTURES, (upright, turned, restored), strict=True)
        }
        sheets.append({"angle": angle, "verdicts": predict(model, restored).tolist(), **pixels})
    return {"labels": labels.tolist(), "sheets": sheets}


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table and the paper's picture."""
    result = results[case]
    pictures = result.get("pictures")
    labels: dict[str, tuple[str, Any]] = {
        "upright": ("not rotated", "plain"),
        "without": ("rotated, LeNet-5 alone", "bare"),
        **{name: (f"with unshift ({name})", "restored") for name in result["restorers"]},
    }
    rows = []
    for key, (label, style) in labels.items():
        error = result["errors"].get(key, {})
        values = [result["accuracy"][key], result["accuracy_native"][key], error.get("within_10"), error.get("median")]
        rows.append(Row(label, values, style, ["{:.2f}", "{:.2f}", "{:.2f}", "{:.1f}"]))
    notes = [
        f"Accuracy in %, {result['data']}, n = {result['images']:,}, each rotated by its own random angle, seed "
        f"{result['seed']}. At 28x28: rotated at their own size and enlarged afterwards, so that the pixel lattice "
        "does not give the angle away. Within 10°: share in % of estimated angles."
    ]
    for name, checked in result.get("checks", {}).items():
        notes.append(
            f"Bit for bit, `{name}`: {checked['images']:,} digits after {checked['moves']:,} quarter turns, "
            f"{checked['mismatches']:,} mismatches."
        )
    note = (
        f"The first test digits at {', '.join(map(str, SHOWN))} degrees, restored by `{result['restorers'][0]}`, with "
        "the classifier's prediction in the corner."
    )
    draw = (lambda: _draw(pictures)) if pictures else None
    return [
        Table("", ["accuracy", "at 28x28", "within 10°", "median error (°)"], rows, notes),
        Picture("rotation-digits", "Digits original, rotated and restored", draw, [note]),
    ]


def _draw(pictures: dict[str, Any]) -> bytes:
    labels = pictures["labels"]
    rows = [(sheet, row) for sheet in pictures["sheets"] for row in PICTURES]
    figure = plots.figure(0.5 * len(labels) + 0.8, 0.56 * len(rows))
    axes = figure.subplots()
    names = [f"{sheet['angle']}°" if row == "rotated" else row for sheet, row in rows]
    side = plots.mosaic(axes, [sheet[row] for sheet, row in rows], names)
    for r, (sheet, row) in enumerate(rows):
        for c, verdict in enumerate(sheet["verdicts"] if row == "restored" else ()):
            ink = "#5eead4" if verdict == labels[c] else "#fb923c"
            place = ((c + 0.95) * side, (r + 0.97) * side)  # the lower right corner of a tile
            axes.text(*place, str(verdict), color=ink, fontsize=8, ha="right", va="bottom", fontweight="bold")
    return plots.png(figure)
