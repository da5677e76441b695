"""Figure 6: rotation, a shift of the angle axis.

Claim: A rotation is a shift of the angle axis, so the same estimator undoes it; quarter turns exactly.
Paper: pictures of the first 24 test digits at 40, 90 and 150 degrees; no accuracy.
Cost: 10 min.

Digits are resized to 224x224, rotated and restored there, and resized to the classifier's 32x32: the same path with and
without a restorer. An enlarged digit shows the lattice of its pixels, which turns with it and gives the angle away to a
strong network. So the digits are also rotated at 28x28 and enlarged afterwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import unshift
from reproduction import plots
from reproduction.classifiers import frozen
from reproduction.records import Options, Result
from reproduction.tables import Block, Picture, Row, Table
from unshift.coordinates import rotate
from unshift.data import dataset, resize, to_float
from unshift.evaluation import predict
from unshift.progress import tracked

CASES = {"mnist-rotation": ("mnist-10k", "lenet5-mnist")}
RESTORERS = ("mnist-rotation", "mnist-rotation-paper")
SIZE, SEEN = 224, 32
SHOWN = (40, 90, 150)
"""Angles of the paper's picture."""
SWEPT, REPEATED = 500, 2000
"""Digits that are rotated by every 10 degrees, and digits that are rotated with every seed."""
VOTES = 36
PICTURES = ("original", "rotated", "restored")


# --- Baselines ------------------------------------------------------------------------------------------------------


def vote(classifier: Callable[[Tensor], Tensor], images: Tensor, size: int = SEEN, turns: int = VOTES) -> Tensor:
    """Return the class predicted most often over evenly spaced rotations (test-time augmentation).

    Each rotation is sampled at the pixels that the classifier sees only.

    Args:
        classifier: From images to logits.
        images: Square images ``(batch, channel, n, n)``.
        size: Side of the images that the classifier takes.
        turns: Number of rotations.

    Returns:
        Classes ``(batch,)``; of several with most votes, the lowest.
    """
    verdicts = []
    for turn in range(turns):
        angle = 2 * math.pi * turn / turns
        matrix = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
        shape = [len(images), images.shape[1], size, size]
        grid = F.affine_grid(matrix.expand(len(images), 2, 3), shape, align_corners=False)
        verdicts.append(predict(classifier, F.grid_sample(images, grid, align_corners=False)))
    return torch.stack(verdicts).mode(0).values


def principal_axis(images: Tensor) -> Tensor:
    """Return the direction of each image's longest axis, in degrees counter-clockwise from the right, ``(batch,)``.

    The second moments of the grey values give the axis; the sign of the third moment gives its direction.
    """
    grey = images.double().mean(1)
    size = grey.shape[-1]
    along = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    mass = grey.sum((1, 2)).clamp(min=1e-12)
    right = along[None, None, :] - ((grey * along).sum((1, 2)) / mass)[:, None, None]
    up = -along[None, :, None] - ((grey * -along[:, None]).sum((1, 2)) / mass)[:, None, None]
    across, tall, mixed = ((grey * moment).sum((1, 2)) for moment in (right * right, up * up, right * up))
    angle = 0.5 * torch.atan2(2 * mixed, across - tall)
    reach = right * angle.cos()[:, None, None] + up * angle.sin()[:, None, None]
    reverse = torch.where((grey * reach**3).sum((1, 2)) < 0, math.pi, 0.0)
    return torch.rad2deg(angle + reverse)


def reference_axis(images: Tensor) -> float:
    """Return the circular mean of the principal axes of upright images."""
    angles = torch.deg2rad(principal_axis(images))
    return math.degrees(math.atan2(float(angles.sin().mean()), float(angles.cos().mean())))


# --- Measurement ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Digits:
    """Test digits ``(n, 1, 28, 28)``, a frozen classifier, and the restorers."""

    images: Tensor
    labels: Tensor
    classifier: nn.Module
    restorers: dict[str, Any]
    axis: float
    """Mean principal axis of upright training digits."""
    options: Options


def enlarge(digits: Tensor) -> Tensor:
    """Resize digits to 224x224, where they are rotated and restored."""
    return resize(to_float(digits), (SIZE, SIZE))


def shrink(images: Tensor) -> Tensor:
    """Resize to the classifier's 32x32."""
    return resize(images, (SEEN, SEEN))


def measure(case: str, options: Options) -> Result:
    """Return accuracies in percent at random angles, baselines, classes, errors, a sweep over angles, and pictures."""
    test, upright = dataset("mnist-10k", "test"), dataset("mnist-10k", "train").images
    assert test.labels is not None
    count = 24 if options.quick else len(test.images)
    digits = Digits(
        test.images[:count],
        test.labels[:count],
        frozen("lenet5-mnist", options).model,
        {name: unshift.load(name) for name in RESTORERS},
        reference_axis(to_float(upright[: 200 if options.quick else 5000])),
        options,
    )
    applied = _angles(digits, options.seeds[0])
    verdicts, angles = _classify(digits, digits.images, applied)
    native, _ = _classify(digits, digits.images, applied, native=True)
    errors = {name: (angle - applied + 180) % 360 - 180 for name, angle in angles.items()}
    labels = digits.labels
    return {
        "data": f"MNIST test, resized to {SIZE}x{SIZE}",
        "images": count,
        "seed": options.seeds[0],
        "classifier": "LeNet-5 (shipped)",
        "restorers": list(RESTORERS),
        "accuracy": {name: _percent(predicted, labels) for name, predicted in verdicts.items()},
        "accuracy_native": {name: _percent(predicted, labels) for name, predicted in native.items()},
        "over_seeds": _over_seeds(digits, verdicts),
        "per_class": {
            name: [_percent(predicted[labels == c], labels[labels == c]) for c in range(10)]
            for name, predicted in verdicts.items()
        },
        "cost": _cost(digits),
        "errors": {name: _distribution(error) for name, error in errors.items()},
        "sweep": _sweep(digits),
        "pictures": _pictures(digits),
    }


def _angles(digits: Digits, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 360 * torch.rand(len(digits.images), generator=generator, dtype=torch.float64)


@torch.no_grad()
def _classify(
    digits: Digits, images: Tensor, applied: Tensor, native: bool = False
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the predictions of each method for digits rotated by ``applied``, and the angles that restorers estimate.

    The digits are rotated at 224x224, or with ``native`` at their own 28x28.
    """
    verdicts: dict[str, list[Tensor]] = {}
    angles: dict[str, list[Tensor]] = {name: [] for name in RESTORERS}
    side = 28 if native else SIZE
    parts = torch.arange(len(images)).split(100)
    for rows in tracked(parts, f"random angles at {side}x{side}", "parts", digits.options.progress):
        upright = enlarge(images[rows])
        turned = enlarge(rotate(to_float(images[rows]), applied[rows])) if native else rotate(upright, applied[rows])
        seen = {"upright": upright, "without": turned}
        for name, restorer in digits.restorers.items():
            estimate = restorer.estimate(turned)
            angles[name].append(estimate.angle)
            seen[name] = restorer.undo(turned, estimate)
        seen["principal axis"] = rotate(turned, digits.axis - principal_axis(turned))
        for name, shown in seen.items():
            verdicts.setdefault(name, []).append(predict(digits.classifier, shrink(shown)))
        verdicts.setdefault(f"vote of {VOTES}", []).append(vote(digits.classifier, turned))
    return _concatenated(verdicts), _concatenated(angles)


def _concatenated(parts: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat(tensors) for name, tensors in parts.items()}


def _over_seeds(digits: Digits, first: dict[str, Tensor]) -> Result:
    """Return mean and spread of the accuracy over seeds, and the share of digits with one prediction for all seeds.

    ``first`` holds the predictions with the first seed.
    """
    few, seeds = min(len(digits.images), REPEATED), digits.options.seeds
    labels = digits.labels[:few]
    runs = [{name: predicted[:few] for name, predicted in first.items()}]
    runs += [_classify(digits, digits.images[:few], _angles(digits, seed)[:few])[0] for seed in seeds[1:]]
    ways: Result = {}
    for name in first:
        predicted = torch.stack([run[name] for run in runs])
        each = 100 * (predicted == labels).double().mean(1)
        ways[name] = {
            "mean": float(each.mean()),
            "spread": float(each.std()) if len(runs) > 1 else None,
            "consistent": 100 * float((predicted == predicted[0]).all(0).double().mean()),
        }
    return {"images": few, "seeds": list(seeds), "ways": ways}


def _percent(predicted: Tensor, labels: Tensor) -> float | None:
    return 100 * float((predicted == labels).double().mean()) if len(labels) else None


def _distribution(error: Tensor) -> Result:
    """Return the distribution of angle errors: shares within limits, percentiles, a histogram in bins of 5 degrees."""
    size = error.abs()
    edges = torch.arange(-180, 181, 5, dtype=torch.float64)
    return {
        "within": {str(limit): 100 * float((size <= limit).double().mean()) for limit in (5, 10, 20, 45, 90)},
        "median": float(size.median()),
        "p90": float(size.quantile(0.9)),
        "p99": float(size.quantile(0.99)),
        "upside_down": 100 * float((size >= 150).double().mean()),
        "histogram": {"edges": edges.tolist(), "counts": torch.histogram(error, edges).hist.tolist()},
    }


@torch.no_grad()
def _sweep(digits: Digits) -> Result:
    """Return the accuracy at every 10 degrees, and how often a quarter turn is restored to another image."""
    count = min(len(digits.images), 3 if digits.options.quick else SWEPT)
    upright, labels = enlarge(digits.images[:count]), digits.labels[:count]
    angles = list(range(0, 360, 10))
    accuracy: dict[str, list[float | None]] = {"without": [], **{name: [] for name in RESTORERS}}
    different = dict.fromkeys(RESTORERS, 0)
    still = {name: restorer(upright) for name, restorer in digits.restorers.items()}
    for angle in tracked(angles, "every 10 degrees", "angles", digits.options.progress):
        turned = rotate(upright, angle)
        accuracy["without"].append(_percent(predict(digits.classifier, shrink(turned)), labels))
        for name, restorer in digits.restorers.items():
            restored = restorer(turned)
            accuracy[name].append(_percent(predict(digits.classifier, shrink(restored)), labels))
            if angle % 90 == 0:
                different[name] += sum(not torch.equal(a, b) for a, b in zip(restored, still[name], strict=True))
    return {"angles": angles, "images": count, "accuracy": accuracy, "quarter_turns_different": different}


@torch.no_grad()
def _cost(digits: Digits, count: int = 20) -> Result:
    """Return the milliseconds from a 224x224 digit to its class, and the passes through the classifier."""
    turned = rotate(enlarge(digits.images[:count]), 40)

    def timed(classify: Callable[[], Tensor], passes: int = 1) -> dict[str, float]:
        classify()
        started = time.perf_counter()
        classify()
        return {"passes": passes, "ms": 1000 * (time.perf_counter() - started) / len(turned)}

    def after(correct: Callable[[Tensor], Tensor]) -> dict[str, float]:
        return timed(lambda: predict(digits.classifier, shrink(correct(turned))))

    return {
        "without": after(lambda images: images),
        **{name: after(restorer) for name, restorer in digits.restorers.items()},
        "principal axis": after(lambda images: rotate(images, digits.axis - principal_axis(images))),
        f"vote of {VOTES}": timed(lambda: vote(digits.classifier, turned), passes=VOTES),
    }


@torch.no_grad()
def _pictures(digits: Digits, count: int = 24) -> Result:
    """Return the pixels of the paper's picture, with the predictions."""
    restorer, first = digits.restorers[RESTORERS[0]], enlarge(digits.images[:count])
    sheets = []
    for angle in SHOWN:
        turned = rotate(first, angle)
        restored = restorer(turned)
        pixels = {name: _small(x) for name, x in zip(PICTURES, (first, turned, restored), strict=True)}
        sheets.append({"angle": angle, "verdicts": predict(digits.classifier, shrink(restored)).tolist(), **pixels})
    return {"labels": digits.labels[:count].tolist(), "sheets": sheets}


def _small(images: Tensor) -> list[Any]:
    """Return pixels at 56x56, which is enough for a picture."""
    return resize(images, (56, 56))[:, 0].mul(255).round().to(torch.uint8).tolist()


# --- Tables and pictures --------------------------------------------------------------------------------------------


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return a summary, the table, the pictures, and what cannot be restored."""
    result = results[case]
    accuracy, swept, name = result["accuracy"], result["sweep"], result["restorers"][0]
    pictures = result.get("pictures")
    voting, ours = result["cost"][f"vote of {VOTES}"], result["cost"][name]
    different, turns = sum(swept["quarter_turns_different"].values()), 3 * swept["images"] * len(result["restorers"])
    return [
        f"Each of {result['images']:,} digits rotated by its own random angle: {result['classifier']} alone "
        f"{accuracy['without']:.2f}%, behind `{name}` {accuracy[name]:.2f}%, not rotated {accuracy['upright']:.2f}%. A "
        f"vote over {VOTES} rotations takes {voting['ms'] / ours['ms']:.1f} times as long and reaches "
        f"{accuracy[f'vote of {VOTES}']:.2f}%. Quarter turns restored to another image than the unrotated digit: "
        f"{different} of {turns:,}.",
        _table(result),
        Picture("rotation-sweep", "Accuracy at every 10 degrees, with and without", lambda: _draw_sweep(result)),
        Picture("rotation-errors", "Distribution of the angle's error", lambda: _draw_errors(result)),
        Picture(
            "rotation-digits",
            "Digits original, rotated and restored",
            (lambda: _draw_digits(pictures)) if pictures else None,
            [
                f"The first test digits at {', '.join(map(str, SHOWN))} degrees, restored by `{name}`, with the "
                "classifier's prediction in the corner."
            ],
        ),
    ]


def _table(result: Result) -> Table:
    drawn = result["over_seeds"]
    several = len(drawn["seeds"]) > 1
    draws = [f"{len(drawn['seeds'])} draws", "spread", "consistent"] if several else []
    columns = ["accuracy", "at 28x28", *draws, *map(str, range(10)), "passes", "ms/digit"]
    forms = ["{:.2f}"] * 2 + ["{:.2f}", "±{:.2f}", "{:.2f}"][: len(draws)] + ["{:.1f}"] * 10 + ["{}", "{:.1f}"]
    ways: dict[str, tuple[str, Any]] = {
        "upright": ("not rotated", "plain"),
        "without": ("rotated, LeNet-5 alone", "bare"),
        **{name: (f"with unshift ({name})", "restored") for name in result["restorers"]},
        f"vote of {VOTES}": (f"vote over {VOTES} rotations", "plain"),
        "principal axis": ("principal axis (moments)", "plain"),
    }
    rows = []
    for way, (label, style) in ways.items():
        cost = result["cost"].get(way, {"passes": 1, "ms": ""})
        of_draws = [drawn["ways"][way][key] for key in ("mean", "spread", "consistent")] if several else []
        accuracies = [result["accuracy"][way], result["accuracy_native"][way]]
        values = [*accuracies, *of_draws, *result["per_class"][way], cost["passes"], cost["ms"]]
        rows.append(Row(label, values, style, forms))
    note = (
        f"Accuracy in %, {result['data']}, n = {result['images']:,}, each rotated by its own random angle, seed "
        f"{result['seed']}. At 28x28: rotated at their own size and enlarged afterwards, so that the pixel lattice "
        "does not give the angle away. "
    )
    if several:
        note += (
            f"Draws: mean and standard deviation over seeds {', '.join(map(str, drawn['seeds']))} on the first "
            f"{drawn['images']:,}; consistent: digits with the same prediction for all seeds. "
        )
    note += "0 to 9: per class. Passes through the classifier, and time from 224x224 to the class."
    return Table("", columns, rows, [note])


def _draw_digits(pictures: dict[str, Any]) -> bytes:
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


def _draw_sweep(result: Result) -> bytes:
    swept = result["sweep"]
    figure, axes = plots.axes(7.2, 3.6)
    axes.plot(swept["angles"], swept["accuracy"]["without"], "o-", color=plots.BARE, ms=4, label="LeNet-5, bare")
    for name, marker in zip(result["restorers"], ("o-", "s--", "^:"), strict=False):
        label = f"with unshift ({name})"
        axes.plot(swept["angles"], swept["accuracy"][name], marker, color=plots.RESTORED, ms=4, label=label)
    axes.set_xlabel("rotated by (degrees)")
    axes.set_ylabel("accuracy (%)")
    axes.set_xticks(range(0, 361, 45))
    axes.set_ylim(0, 103)
    axes.legend(frameon=False, loc="lower center")
    axes.set_title(f"{result['data']}, n = {swept['images']:,} at every angle", fontsize=10, loc="left")
    return plots.png(figure)


def _draw_errors(result: Result) -> bytes:
    """Draw the histogram of the angle's error, with a logarithmic scale."""
    figure = plots.figure(8.6, 2.9, layout="constrained")
    panels = figure.subplots(1, len(result["errors"]), squeeze=False)
    for axes, (name, error) in zip(panels[0], result["errors"].items(), strict=True):
        edges, counts = error["histogram"]["edges"], np.array(error["histogram"]["counts"])
        axes.stairs(counts, edges, fill=True, color=plots.RESTORED)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
        axes.set_xticks(range(-180, 181, 90))
        axes.set_xlabel("estimated minus applied angle (degrees)")
        axes.set_title(f"{name}: median {error['median']:.1f}°, within 10° {error['within']['10']:.1f}%", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0, 0].set_ylabel("digits")
    return plots.png(figure)
