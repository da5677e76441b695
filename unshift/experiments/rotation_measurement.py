"""Figure 6, measured: digits turned by any angle, before a classifier that knows upright ones only.

Digits are resized to 224 x 224, rotated there, restored there, and resized to the classifier's 32 x 32: the
same path with and without. (Resized without smoothing, 28 to 224 to 32 gives what 28 to 32 gives.)

An enlarged digit shows the lattice of its own pixels, which turns with it and gives the angle away to a strong
network. So the digits are also turned at 28 x 28 and enlarged afterwards, where the lattice says nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift import Chain, Restorer
from unshift.coordinates import Polar, rotate
from unshift.data import dataset, resize, to_float
from unshift.evaluation import predict
from unshift.experiments.classifiers import shipped
from unshift.experiments.record import Options, Result
from unshift.experiments.rotation_baselines import principal_axis, reference_axis, vote
from unshift.progress import tracked

__all__ = ["SHOWN", "RotatedDigits", "enlarge", "load", "measure", "shrink"]

SIZE, SEEN = 224, 32
SHOWN = (40, 90, 150)
"""The angles of the paper's picture."""


@dataclass(frozen=True)
class RotatedDigits:
    """Test digits ``(n, 1, 28, 28)``, a frozen classifier, and the rotation restorers to put before it."""

    digits: Tensor
    labels: Tensor
    classifier: nn.Module
    restorers: Mapping[str, Restorer | Chain]
    axis: float
    """where the baseline turns the principal axis to, from upright training digits"""
    swept: int
    """digits in the sweep over every 10 degrees"""
    repeated: int
    """digits that are turned again with every seed; the first seed turns all of them"""
    seeds: tuple[int, ...] = (0,)
    progress: bool = True


def load(options: Options) -> RotatedDigits:
    """Return MNIST with the shipped LeNet-5 and rotation restorers; to train, fit the latter on embedded digits."""
    test, upright = dataset("mnist-10k", "test"), dataset("mnist-10k", "train")
    assert test.labels is not None
    quick = options.quick
    count = 24 if quick else len(test.images)
    if options.train:
        some = enlarge(upright.images[: 300 if quick else 6000])
        changes: dict[str, Any] = {"epochs": 1} if quick else {}
        changes |= {"data_name": "mnist-10k", "progress": options.progress}
        restorers: dict[str, Restorer | Chain] = {
            preset: unshift.fit(some, preset, coordinates=Polar.preset(preset, (SIZE, SIZE)), **changes)
            for preset in ("dense", "paper")
        }
    else:
        restorers = {name: unshift.load(name) for name in ("mnist-rotation", "mnist-rotation-paper")}
    return RotatedDigits(
        test.images[:count],
        test.labels[:count],
        shipped()["lenet5-mnist"](),
        restorers,
        reference_axis(to_float(upright.images[: 200 if quick else 5000])),
        swept=min(count, 3 if quick else 500),
        repeated=min(count, 2000),
        seeds=options.seeds,
        progress=options.progress,
    )


def enlarge(digits: Tensor) -> Tensor:
    """Resize digits to the 224 x 224 at which they are rotated and restored."""
    return resize(to_float(digits), (SIZE, SIZE))


def shrink(images: Tensor) -> Tensor:
    """Resize to the classifier's 32 x 32."""
    return resize(images, (SEEN, SEEN))


def measure(case: RotatedDigits) -> Result:
    """Measure everything, in percent and degrees: random angles, baselines, classes, errors, a sweep, pictures."""
    applied = _angles(case, case.seeds[0])
    verdicts, read = _classify(case, case.digits, applied)
    native, _ = _classify(case, case.digits, applied, native=True)
    errors = {name: (angle - applied + 180) % 360 - 180 for name, angle in read.items()}
    return {
        "data": f"MNIST test, resized to {SIZE}x{SIZE}",
        "images": len(case.digits),
        "seed": case.seeds[0],
        "classifier": "LeNet-5 (shipped)",
        "restorers": list(case.restorers),
        "accuracy": {name: _percent(found, case.labels) for name, found in verdicts.items()},
        "accuracy_native": {name: _percent(found, case.labels) for name, found in native.items()},
        "over_seeds": _over_seeds(case, verdicts),
        "per_class": {
            name: [_percent(found[case.labels == c], case.labels[case.labels == c]) for c in range(10)]
            for name, found in verdicts.items()
        },
        "cost": _cost(case),
        "errors": {name: _distribution(error) for name, error in errors.items()},
        "sweep": _sweep(case),
        "lost": _lost(case, verdicts, errors),
        "pictures": _pictures(case, applied, verdicts, errors),
    }


def _angles(case: RotatedDigits, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 360 * torch.rand(len(case.digits), generator=generator, dtype=torch.float64)


@torch.no_grad()
def _classify(
    case: RotatedDigits, digits: Tensor, applied: Tensor, native: bool = False
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return each way's verdicts on digits turned by ``applied``, and the angle that each restorer read.

    They are turned at 224 x 224; with ``native``, at their own 28 x 28.
    """
    verdicts: dict[str, list[Tensor]] = {}
    read: dict[str, list[Tensor]] = {name: [] for name in case.restorers}
    parts = torch.arange(len(digits)).split(100)
    said = f"random angles at {28 if native else SIZE}x{28 if native else SIZE}"
    for rows in tracked(parts, said, "parts", case.progress):
        upright = enlarge(digits[rows])
        turned = enlarge(rotate(to_float(digits[rows]), applied[rows])) if native else rotate(upright, applied[rows])
        seen = {"upright": upright, "without": turned}
        for name, restorer in case.restorers.items():
            estimate = restorer.estimate(turned)
            assert estimate.angle is not None
            read[name].append(estimate.angle)
            seen[name] = rotate(turned, -estimate.angle)
        seen["principal axis"] = rotate(turned, case.axis - principal_axis(turned))
        for name, images in seen.items():
            verdicts.setdefault(name, []).append(predict(case.classifier, shrink(images)))
        verdicts.setdefault("vote of 36", []).append(vote(case.classifier, turned, SEEN))
    joined = [{name: torch.cat(part) for name, part in kind.items()} for kind in (verdicts, read)]
    return joined[0], joined[1]


def _over_seeds(case: RotatedDigits, first: dict[str, Tensor]) -> dict[str, Any]:
    """Return mean and spread of the accuracy over the seeds' angles, and who has one verdict under all of them.

    Of the first ``repeated`` digits; ``first`` holds the verdicts under the first seed.
    """
    few = case.repeated
    labels = case.labels[:few]
    runs = [{name: found[:few] for name, found in first.items()}]
    for seed in case.seeds[1:]:
        runs.append(_classify(case, case.digits[:few], _angles(case, seed)[:few])[0])
    ways: dict[str, Any] = {}
    for name in first:
        found = torch.stack([run[name] for run in runs])
        each = 100 * (found == labels).double().mean(1)
        ways[name] = {
            "mean": float(each.mean()),
            "spread": float(each.std()) if len(runs) > 1 else None,
            "consistent": 100 * float((found == found[0]).all(0).double().mean()),
        }
    return {"images": few, "seeds": list(case.seeds), "ways": ways}


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
def _sweep(case: RotatedDigits) -> dict[str, Any]:
    """Return the accuracy at every 10 degrees, and whether quarter turns are restored to the very same image."""
    upright, labels = enlarge(case.digits[: case.swept]), case.labels[: case.swept]
    angles = list(range(0, 360, 10))
    accuracy: dict[str, list[float | None]] = {"without": [], **{name: [] for name in case.restorers}}
    different = dict.fromkeys(case.restorers, 0)
    still = {name: restorer(upright) for name, restorer in case.restorers.items()}
    for angle in tracked(angles, "every 10 degrees", "angles", case.progress):
        turned = rotate(upright, angle)
        accuracy["without"].append(_percent(predict(case.classifier, shrink(turned)), labels))
        for name, restorer in case.restorers.items():
            restored = restorer(turned)
            accuracy[name].append(_percent(predict(case.classifier, shrink(restored)), labels))
            if angle % 90 == 0:
                different[name] += sum(not torch.equal(a, b) for a, b in zip(restored, still[name], strict=True))
    return {"angles": angles, "images": len(upright), "accuracy": accuracy, "quarter_turns_different": different}


@torch.no_grad()
def _cost(case: RotatedDigits, count: int = 20) -> dict[str, Any]:
    """Return milliseconds a digit from 224 x 224 to its class, each way as it was measured, and passes."""
    turned = rotate(enlarge(case.digits[:count]), 40)

    def timed(verdicts: Callable[[], Tensor], passes: int = 1) -> dict[str, float]:
        verdicts()
        started = time.perf_counter()
        verdicts()
        return {"passes": passes, "ms": 1000 * (time.perf_counter() - started) / len(turned)}

    def after(correct: Callable[[Tensor], Tensor]) -> dict[str, float]:
        return timed(lambda: predict(case.classifier, shrink(correct(turned))))

    return {
        "without": after(lambda images: images),
        **{name: after(restorer) for name, restorer in case.restorers.items()},
        "principal axis": after(lambda images: rotate(images, case.axis - principal_axis(images))),
        "vote of 36": timed(lambda: vote(case.classifier, turned, SEEN), passes=36),
    }


def _lost(case: RotatedDigits, verdicts: dict[str, Tensor], errors: dict[str, Tensor]) -> dict[str, Any]:
    """Count what the first restorer cannot restore: 6 and 9 stood on their heads, 0 turned to some other upright 0."""
    name = next(iter(case.restorers))
    labels, found, off = case.labels, verdicts[name], errors[name].abs()
    swapped = {f"{a} read as {b}": int(((labels == a) & (found == b)).sum()) for a, b in ((6, 9), (9, 6))}
    return {
        "restorer": name,
        "wrong": int((found != labels).sum()),
        "wrong_upright": int((verdicts["upright"] != labels).sum()),
        **swapped,
        "median_error_of_class": [float(off[labels == c].median()) if (labels == c).any() else None for c in range(10)],
        "upside_down_of_class": [int((off[labels == c] >= 150).sum()) for c in range(10)],
    }


@torch.no_grad()
def _pictures(
    case: RotatedDigits, applied: Tensor, verdicts: dict[str, Tensor], errors: dict[str, Tensor], count: int = 24
) -> dict[str, Any]:
    """Return the paper's picture (first 24 digits at three angles), and digits that cannot be restored."""
    name, restorer = next(iter(case.restorers.items()))
    first = enlarge(case.digits[:count])
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
                "verdicts": predict(case.classifier, shrink(restored)).tolist(),
                **{k: _small(v) for k, v in (("original", first), ("rotated", turned), ("restored", restored))},
            }
        )
    examples = _unrestorable(case, applied, verdicts[name], errors[name].abs())
    return {"labels": case.labels[:count].tolist(), "restorer": name, "sheets": sheets, "examples": examples}


def _unrestorable(case: RotatedDigits, applied: Tensor, verdicts: Tensor, off: Tensor) -> list[dict[str, Any]]:
    """Return some digits that the first restorer reads wrongly: stood on their heads, zeros, and others."""
    labels, restorer = case.labels, next(iter(case.restorers.values()))
    kinds = {
        "6 and 9": ((labels == 6) | (labels == 9)) & (off >= 150),
        "0": (labels == 0) & (off >= 20),
        "others": (labels != 6) & (labels != 9) & (labels != 0) & (verdicts != labels) & (off >= 30),
    }
    examples = []
    for kind, mask in kinds.items():
        for row in mask.nonzero().flatten()[:6].tolist():
            upright = enlarge(case.digits[row : row + 1])
            turned = rotate(upright, applied[row : row + 1])
            images = {"original": upright, "rotated": turned, "restored": restorer(turned)}
            told = {"kind": kind, "label": int(labels[row]), "verdict": int(verdicts[row])}
            examples.append({**told, **{k: _small(v)[0] for k, v in images.items()}})
    return examples


def _small(images: Tensor) -> list[Any]:
    """Return pixels for the page: 56 x 56 is enough to look at."""
    return resize(images, (56, 56))[:, 0].mul(255).round().to(torch.uint8).tolist()
