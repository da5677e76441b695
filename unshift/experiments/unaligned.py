"""Training digits that are not aligned, before a classifier that knows aligned ones only. Not in the paper.

Every training digit is shifted by its own random shift, and nobody says by which. Fitted as if they were aligned, and
with ``aligned=False``: with and without the classifier that settles the one shift of all that remains free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import unshift
from unshift.data import dataset, prepare, to_float
from unshift.evaluation import accuracy, judged_on, rates_from
from unshift.experiments.classifiers import shipped
from unshift.experiments.record import Block, Case, Experiment, Options, Result, Results, Row, Style, Table

JITTER = 4
"""Pixels by which digits are off, each way and along each axis."""
FITS: dict[str, tuple[int | None, bool, bool]] = {
    "aligned": (0, True, False),
    f"up to {JITTER} pixels off, fitted as if aligned": (JITTER, True, False),
    f"up to {JITTER} pixels off, aligned=False": (JITTER, False, False),
    f"up to {JITTER} pixels off, aligned=False, classifier": (JITTER, False, True),
    "anywhere, fitted as if aligned": (None, True, False),
    "anywhere, aligned=False, classifier": (None, False, True),
}
"""Training digits and fit: how far they are off (None: anywhere), ``aligned``, whether the classifier is given."""


@dataclass(frozen=True)
class _Loaded:
    train: Tensor
    test: Tensor
    labels: Tensor
    classifier: Any
    fitting: dict[str, Any]
    progress: bool


def _load(options: Options) -> _Loaded:
    """Return MNIST at 32x32 and the shipped LeNet-5."""
    source = "mnist-10k" if options.quick else "mnist"
    train, test = dataset(source, "train").images, dataset("mnist-10k", "test")
    assert test.labels is not None
    count, tested = (100, 40) if options.quick else (10_000, len(test.images))
    fitting = {"preset": "lines", "epochs": 1 if options.quick else 4}
    size = {"resize": [32, 32]}
    images = prepare(train[:count], size), to_float(prepare(test.images[:tested], size))
    return _Loaded(*images, test.labels[:tested], shipped()["lenet5-mnist"](), fitting, options.progress)


def _measure(loaded: _Loaded) -> Result:
    found: Result = {
        "data": "MNIST test",
        "train_images": len(loaded.train),
        "images": len(loaded.test),
        "fitting": loaded.fitting,
        "bare": 100 * accuracy(loaded.classifier, loaded.test, loaded.labels),
        "fits": {},
    }
    for name, (off, aligned, given) in FITS.items():
        reach = 16 if off is None else off
        generator = torch.Generator().manual_seed(0)
        shift = torch.randint(-reach, reach + 1, (len(loaded.train), 2), generator=generator)
        restorer = unshift.fit(
            unshift.apply(loaded.train, shift),
            aligned=aligned,
            classifier=loaded.classifier if given else None,
            data_name="mnist",
            drop_unusable=True,
            progress=loaded.progress,
            **loaded.fitting,
        )
        rates = rates_from(judged_on(restorer, loaded.test))
        found["fits"][name] = {
            "accuracy": 100 * accuracy(lambda x, undo=restorer: loaded.classifier(undo(x)), loaded.test, loaded.labels),  # type: ignore[misc]
            "exact": 100 * rates.exact,
            "within_1": 100 * rates.within_1,
            "usual": _usual(restorer, loaded.test),
            "seconds": restorer.metadata["seconds"],
            "alignment": restorer.metadata.get("alignment"),
        }
    return found


def _usual(restorer: Any, images: Tensor) -> float:
    """Return the share of images that are put within a pixel of where most are: aligned with each other, anywhere."""
    shift = restorer.estimate(images).shift
    places, counts = shift.unique(dim=0, return_counts=True)
    off = (shift - places[counts.argmax()]) % 32
    return 100 * float((torch.minimum(off, 32 - off).amax(1) <= 1).double().mean())


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    rows = []
    for name, one in result["fits"].items():
        style: Style = "restored" if "aligned=False" in name else "plain"
        rounds = (one["alignment"] or {"rounds": 1})["rounds"]
        values = [one["accuracy"], one["within_1"], one["usual"], rounds, one["seconds"]]
        rows.append(Row(name, values, style=style, form=["{:.2f}", "{:.2f}", "{:.2f}", "{:.0f}", "{:.0f}"]))
    fitting = ", ".join(f"{key} {value}" for key, value in result["fitting"].items())
    told = [
        f"{name}: moved {', '.join(f'{share:.1%}' for share in one['alignment']['moved'])} of the digits from round to "
        "round"
        + (f", then all by {one['alignment']['classifier']['shift']}" if "classifier" in one["alignment"] else "")
        for name, one in result["fits"].items()
        if one["alignment"]
    ]
    note = (
        f"LeNet-5 (shipped) behind each, accuracy in % on MNIST test, aligned, n = {result['images']:,} (bare "
        f"{result['bare']:.2f}; a restorer is exact, so every shift of them has the same accuracy). Within 1: put to "
        "within a pixel of where it was. Together: within a pixel of where most are put, wherever that is. Fitted on "
        f"{result['train_images']:,} training digits at 32x32 ({fitting}, seed 0), each off by its own random shift."
    )
    columns = ["accuracy", "within 1", "together", "rounds", "seconds"]
    return [Table("training digits", columns, rows, [note, *told])]


EXPERIMENT = Experiment(
    name="unaligned",
    title="training digits that are not aligned",
    claim="Digits that are off by a few pixels each teach as much as aligned ones, if fitting and restoring alternate.",
    cost="3 min on MNIST",
    cases=[Case("mnist", "mnist", _load)],
    measure=_measure,
    show=_show,
)
