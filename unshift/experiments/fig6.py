"""Figure 6, rotation (section 5.2): digits turned by any angle, before a classifier that knows upright ones only.

Claims: a rotation is a shift of the angle axis, so the same estimator undoes it; quarter turns exactly. What
the paper shows in pictures is measured here, beside two simple rivals, and so is what cannot be restored.

Digits are resized to 224 x 224, rotated there, restored there, and resized to the classifier's 32 x 32: the
same path with and without. (Resized without smoothing, 28 to 224 to 32 gives what 28 to 32 gives.)

An enlarged digit shows the lattice of its own pixels, which turns with it and gives the angle away to a strong
network. So the digits are also turned at 28 x 28 and enlarged afterwards, where the lattice says nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

import unshift
from unshift import Restorer
from unshift.data import dataset, resize, to_float
from unshift.evaluation import predict
from unshift.experiments.classifiers import shipped
from unshift.experiments.rivals import principal_axis, reference_axis, vote
from unshift.polar import rotate

__all__ = ["CASE", "SHOWN", "TurnSetting", "run", "setting", "text"]

CASE = "mnist-rotation"

SIZE, SEEN = 224, 32
SHOWN = (40, 90, 150)
"""The angles of the paper's picture."""
PAPER = {"data": "MNIST", "pictures": "the first 24 test digits at 40, 90 and 150 degrees; no accuracy is given"}


@dataclass(frozen=True)
class TurnSetting:
    """Test digits ``(n, 1, 28, 28)``, a frozen classifier, and the rotation restorers to put before it."""

    digits: Tensor
    labels: Tensor
    classifier: nn.Module
    restorers: dict[str, Restorer]
    axis: float
    """where the rival turns the principal axis to, from upright training digits"""
    swept: int
    """digits in the sweep over every 10 degrees"""
    repeated: int
    """digits that are turned anew with every seed; with the first one, all are"""
    seeds: tuple[int, ...] = (0,)
    progress: bool = True


def setting(
    case: str = CASE,
    *,
    train: bool = False,
    quick: bool = False,
    seeds: tuple[int, ...] = (0,),
    progress: bool = True,
) -> TurnSetting:
    """Return MNIST with the shipped LeNet-5 and rotation restorers; ``train`` fits the latter on embedded digits."""
    test, upright = dataset("mnist-10k", "test"), dataset("mnist-10k", "train")
    assert test.labels is not None
    count = 24 if quick else len(test.images)
    if train:
        some = enlarge(upright.images[: 300 if quick else 6000])
        options: dict[str, Any] = {"data_name": "mnist-10k", "progress": progress, **({"epochs": 1} if quick else {})}
        restorers = {p: unshift.fit(some, p, kind="rotation", **options) for p in ("dense", "paper")}
    else:
        restorers = {name: unshift.load(name) for name in ("mnist-rotation", "mnist-rotation-paper")}
    axis = reference_axis(to_float(upright.images[: 200 if quick else 5000]))
    return TurnSetting(
        test.images[:count],
        test.labels[:count],
        shipped()["lenet5-mnist"](),
        restorers,
        axis,
        swept=min(count, 3 if quick else 500),
        repeated=min(count, 2000),
        seeds=seeds,
        progress=progress,
    )


def enlarge(digits: Tensor) -> Tensor:
    """Resize digits to the 224 x 224 at which they are rotated and restored."""
    return resize(to_float(digits), (SIZE, SIZE))


def shrink(images: Tensor) -> Tensor:
    """Resize to the classifier's 32 x 32."""
    return resize(images, (SEEN, SEEN))


def run(setting: TurnSetting) -> dict[str, Any]:
    """Measure everything: random angles, rivals, classes, errors, every 10 degrees, pictures. Percent and degrees."""
    applied = _angles(setting, setting.seeds[0])
    verdicts, read = _classify(setting, setting.digits, applied)
    native, _ = _classify(setting, setting.digits, applied, native=True)
    errors = {name: (angle - applied + 180) % 360 - 180 for name, angle in read.items()}
    return {
        "data": f"MNIST test, resized to {SIZE}x{SIZE}",
        "images": len(setting.digits),
        "seed": setting.seeds[0],
        "classifier": "LeNet-5 (shipped)",
        "restorers": list(setting.restorers),
        "paper": PAPER,
        "accuracy": {name: _percent(found, setting.labels) for name, found in verdicts.items()},
        "accuracy_native": {name: _percent(found, setting.labels) for name, found in native.items()},
        "over_seeds": _over_seeds(setting, verdicts),
        "per_class": {
            name: [_percent(found[setting.labels == c], setting.labels[setting.labels == c]) for c in range(10)]
            for name, found in verdicts.items()
        },
        "cost": _cost(setting),
        "errors": {name: _distribution(error) for name, error in errors.items()},
        "sweep": _sweep(setting),
        "lost": _lost(setting, verdicts, errors),
        "pictures": _pictures(setting, applied, verdicts, errors),
    }


def _angles(setting: TurnSetting, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 360 * torch.rand(len(setting.digits), generator=generator, dtype=torch.float64)


@torch.no_grad()
def _classify(
    setting: TurnSetting, digits: Tensor, applied: Tensor, native: bool = False
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return each way's verdicts on digits turned by ``applied``, and the angle that each restorer read.

    They are turned at 224 x 224; with ``native``, at their own 28 x 28.
    """
    verdicts: dict[str, list[Tensor]] = {}
    read: dict[str, list[Tensor]] = {name: [] for name in setting.restorers}
    parts = torch.arange(len(digits)).split(100)
    said = f"random angles at {28 if native else SIZE}x{28 if native else SIZE}"
    for rows in tqdm(parts, desc=said, disable=None if setting.progress else True):
        upright = enlarge(digits[rows])
        turned = enlarge(rotate(to_float(digits[rows]), applied[rows])) if native else rotate(upright, applied[rows])
        seen = {"upright": upright, "without": turned}
        for name, restorer in setting.restorers.items():
            estimate = restorer.estimate(turned)
            assert estimate.angle is not None
            read[name].append(estimate.angle)
            seen[name] = rotate(turned, -estimate.angle)
        seen["principal axis"] = rotate(turned, setting.axis - principal_axis(turned))
        for name, images in seen.items():
            verdicts.setdefault(name, []).append(predict(setting.classifier, shrink(images)))
        verdicts.setdefault("vote of 36", []).append(vote(setting.classifier, turned, SEEN))
    return _joined(verdicts), _joined(read)


def _over_seeds(setting: TurnSetting, first: dict[str, Tensor]) -> dict[str, Any]:
    """Return mean and spread of the accuracy over the seeds' angles, and who has one verdict under all of them.

    Of the first ``repeated`` digits; ``first`` holds the verdicts under the first seed.
    """
    few = setting.repeated
    labels = setting.labels[:few]
    runs = [{name: found[:few] for name, found in first.items()}]
    for seed in setting.seeds[1:]:
        runs.append(_classify(setting, setting.digits[:few], _angles(setting, seed)[:few])[0])
    ways: dict[str, Any] = {}
    for name in first:
        found = torch.stack([run[name] for run in runs])
        each = 100 * (found == labels).double().mean(1)
        ways[name] = {
            "mean": float(each.mean()),
            "spread": float(each.std()) if len(runs) > 1 else None,
            "consistent": 100 * float((found == found[0]).all(0).double().mean()),
        }
    return {"images": few, "seeds": list(setting.seeds), "ways": ways}


def _joined(parts: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat(part) for name, part in parts.items()}


def _percent(found: Tensor, labels: Tensor) -> float | None:
    return 100 * float((found == labels).double().mean()) if len(labels) else None


def _distribution(error: Tensor) -> dict[str, Any]:
    """Return how far off the angles are: share within some, percentiles, and a histogram in bins of 5 degrees."""
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
def _sweep(setting: TurnSetting) -> dict[str, Any]:
    """Return the accuracy at every 10 degrees, and whether quarter turns are restored to the very same image."""
    upright, labels = enlarge(setting.digits[: setting.swept]), setting.labels[: setting.swept]
    angles = list(range(0, 360, 10))
    accuracy: dict[str, list[float | None]] = {"without": [], **{name: [] for name in setting.restorers}}
    different = dict.fromkeys(setting.restorers, 0)
    still = {name: restorer(upright) for name, restorer in setting.restorers.items()}
    for angle in tqdm(angles, desc="every 10 degrees", disable=None if setting.progress else True):
        turned = rotate(upright, angle)
        accuracy["without"].append(_percent(predict(setting.classifier, shrink(turned)), labels))
        for name, restorer in setting.restorers.items():
            restored = restorer(turned)
            accuracy[name].append(_percent(predict(setting.classifier, shrink(restored)), labels))
            if angle % 90 == 0:
                different[name] += sum(not torch.equal(a, b) for a, b in zip(restored, still[name], strict=True))
    return {"angles": angles, "images": len(upright), "accuracy": accuracy, "quarter_turns_different": different}


@torch.no_grad()
def _cost(setting: TurnSetting, count: int = 20) -> dict[str, Any]:
    """Return milliseconds a digit from 224 x 224 to its class, each way as it was measured, and passes."""
    turned = rotate(enlarge(setting.digits[:count]), 40)

    def timed(what: Any) -> float:
        what()
        started = time.perf_counter()
        what()
        return 1000 * (time.perf_counter() - started) / len(turned)

    def classify(images: Tensor) -> Tensor:
        return predict(setting.classifier, shrink(images))

    cost: dict[str, Any] = {"without": {"passes": 1, "ms": timed(lambda: classify(turned))}}
    for name, restorer in setting.restorers.items():
        cost[name] = {"passes": 1, "ms": timed(lambda restorer=restorer: classify(restorer(turned)))}
    cost["principal axis"] = {
        "passes": 1,
        "ms": timed(lambda: classify(rotate(turned, setting.axis - principal_axis(turned)))),
    }
    cost["vote of 36"] = {"passes": 36, "ms": timed(lambda: vote(setting.classifier, turned, SEEN))}
    return cost


# --- what is shown --------------------------------------------------------------------------------


def _lost(setting: TurnSetting, verdicts: dict[str, Tensor], errors: dict[str, Tensor]) -> dict[str, Any]:
    """Count what the first restorer cannot restore: 6 and 9 stood on their heads, 0 turned to some other upright 0."""
    name = next(iter(setting.restorers))
    labels, found, off = setting.labels, verdicts[name], errors[name].abs()
    swapped = {f"{a} read as {b}": int(((labels == a) & (found == b)).sum()) for a, b in ((6, 9), (9, 6))}
    wrong = int((found != labels).sum())
    return {
        "restorer": name,
        "wrong": wrong,
        "wrong_upright": int((verdicts["upright"] != labels).sum()),
        **swapped,
        "median_error_of_class": [float(off[labels == c].median()) if (labels == c).any() else None for c in range(10)],
        "upside_down_of_class": [int((off[labels == c] >= 150).sum()) for c in range(10)],
    }


@torch.no_grad()
def _pictures(
    setting: TurnSetting, applied: Tensor, verdicts: dict[str, Tensor], errors: dict[str, Tensor], count: int = 24
) -> dict[str, Any]:
    """Return the paper's picture (first 24 digits at three angles), and digits that cannot be restored."""
    name, restorer = next(iter(setting.restorers.items()))
    first = enlarge(setting.digits[:count])
    sheets = []
    for angle in SHOWN:
        turned = rotate(first, angle)
        estimate = restorer.estimate(turned)
        restored = restorer(turned)
        assert estimate.angle is not None
        sheets.append(
            {
                "angle": angle,
                "read": estimate.angle.tolist(),
                "verdicts": predict(setting.classifier, shrink(restored)).tolist(),
                **{k: _small(v) for k, v in (("original", first), ("rotated", turned), ("restored", restored))},
            }
        )
    labels, off = setting.labels, errors[name].abs()
    kinds = {
        "6 and 9": ((labels == 6) | (labels == 9)) & (off >= 150),
        "0": (labels == 0) & (off >= 20),
        "others": (labels != 6) & (labels != 9) & (labels != 0) & (verdicts[name] != labels) & (off >= 30),
    }
    examples = []
    for kind, mask in kinds.items():
        for row in mask.nonzero().flatten()[:6].tolist():
            upright = enlarge(setting.digits[row : row + 1])
            turned = rotate(upright, applied[row : row + 1])
            images = {"original": upright, "rotated": turned, "restored": restorer(turned)}
            told = {"kind": kind, "label": int(labels[row]), "verdict": int(verdicts[name][row])}
            examples.append({**told, **{k: _small(v)[0] for k, v in images.items()}})
    return {"labels": labels[:count].tolist(), "restorer": name, "sheets": sheets, "examples": examples}


def _small(images: Tensor) -> list[Any]:
    """Return pixels for the page: 56 x 56 is enough to look at."""
    return resize(images, (56, 56))[:, 0].mul(255).round().to(torch.uint8).tolist()


def rows(result: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the table as labelled rows of text."""
    several = len(result["over_seeds"]["seeds"]) > 1
    drawn = [f"{len(result['over_seeds']['seeds'])} draws", "spread", "consistent"] if several else []
    table = [("", ["accuracy", "at 28x28", *drawn, *[str(c) for c in range(10)], "passes", "ms/digit"])]
    named = {
        "upright": "not rotated",
        "without": "rotated, LeNet-5 alone",
        **{name: f"with unshift ({name})" for name in result["restorers"]},
        "vote of 36": "vote over 36 rotations",
        "principal axis": "principal axis (moments)",
    }
    for key, label in named.items():
        cost = result["cost"].get(key, {"passes": 1})
        way = result["over_seeds"]["ways"][key]
        cells = [
            *[f"{result[kind][key]:.2f}" for kind in ("accuracy", "accuracy_native")],
            *([f"{way['mean']:.2f}", f"±{way['spread']:.2f}", f"{way['consistent']:.2f}"] if several else []),
            *["-" if v is None else f"{v:.1f}" for v in result["per_class"][key]],
        ]
        table.append((label, [*cells, str(cost["passes"]), f"{cost['ms']:.1f}" if "ms" in cost else ""]))
    return table


def text(result: dict[str, Any]) -> str:
    """Return the table for a terminal."""
    table = rows(result)
    wide = max(len(label) for label, _ in table)
    width = max(len(cell) for cell in table[0][1])
    lines = [f"{label:<{wide}}  " + " ".join(f"{cell:>{width}}" for cell in cells) for label, cells in table]
    lines.append(
        f"accuracy in % (also turned at 28x28, then enlarged; and per digit), {result['data']}, "
        f"n = {result['images']:,}, each rotated by its own uniformly random angle, seed {result['seed']}"
    )
    drawn = result["over_seeds"]
    if len(drawn["seeds"]) > 1:
        lines.append(
            f"draws: seeds {', '.join(map(str, drawn['seeds']))} on the first {drawn['images']:,}; "
            "consistent: one verdict under all of them"
        )
    return "\n".join(lines)
