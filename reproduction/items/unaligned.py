"""Training digits that are not aligned.

Claim: Training digits that are off by a few pixels are as good as aligned ones, if fitting and restoring alternate.
Paper: aligned training images only.
Cost: 13 min.

Every training digit is shifted by its own unknown random shift. Restorers are fitted as if the digits were aligned, and
with ``aligned=False``: with and without the classifier, which picks the global shift.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import unshift
from reproduction.classifiers import frozen
from reproduction.images import images_of, labelled
from reproduction.records import Options, Result, percent
from reproduction.tables import Block, Row, Style, Table
from unshift.data import prepare
from unshift.evaluation import accuracy, restoration_rates

CASES = {"mnist": ("mnist", "lenet5-mnist")}
OFFSET = 4
"""Largest offset of the digits in pixels, along each axis."""
FITS: dict[str, tuple[int, bool, bool]] = {
    "aligned": (0, True, False),
    f"up to {OFFSET} pixels off, fitted as if aligned": (OFFSET, True, False),
    f"up to {OFFSET} pixels off, aligned=False": (OFFSET, False, False),
    f"up to {OFFSET} pixels off, aligned=False, classifier": (OFFSET, False, True),
    "anywhere, fitted as if aligned": (16, True, False),
    "anywhere, aligned=False, classifier": (16, False, True),
}
"""For each fit: the largest offset, ``aligned``, and whether the classifier is given."""
RESIZE = {"resize": [32, 32]}


def measure(case: str, options: Options) -> Result:
    """Fit a restorer in each way, and measure it on aligned test digits."""
    digits = prepare(images_of("mnist", options, "train").images[:10_000], RESIZE)
    test, labels = labelled("mnist-10k", options, RESIZE, 40 if options.quick else None)
    classifier = frozen("lenet5-mnist", options).model
    fitting = {"preset": "lines", "epochs": 1 if options.quick else 4}
    result: Result = {
        "data": "MNIST test",
        "train_images": len(digits),
        "images": len(test),
        "fitting": fitting,
        "bare": 100 * accuracy(classifier, test, labels),
        "fits": {},
    }
    for name, (offset, aligned, given) in FITS.items():
        generator = torch.Generator().manual_seed(0)
        shift = torch.randint(-offset, offset + 1, (len(digits), 2), generator=generator)
        settings: Any = {
            "aligned": aligned,
            "classifier": classifier if given else None,
            "data_name": "mnist",
            **fitting,
        }
        shifted = unshift.apply(digits, shift)
        restorer = unshift.fit(shifted, drop_unusable=True, progress=options.progress, **settings)
        rates = restoration_rates(restorer, test)
        result["fits"][name] = {
            "accuracy": 100 * accuracy(nn.Sequential(restorer, classifier), test, labels),
            "exact": 100 * rates.exact,
            "within_1": 100 * rates.within_1,
            "usual": _together(restorer, test),
            "seconds": restorer.metadata["seconds"],
            "alignment": restorer.metadata.get("alignment"),
        }
    return result


def _together(restorer: Any, images: Tensor) -> float:
    """Return the percentage of images restored to within a pixel of the most frequent place."""
    shift = restorer.estimate(images).shift
    places, counts = shift.unique(dim=0, return_counts=True)
    off = (shift - places[counts.argmax()]) % 32
    return percent(torch.minimum(off, 32 - off).amax(1) <= 1)


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return one row for each fit."""
    result = results[case]
    rows = []
    for name, one in result["fits"].items():
        style: Style = "restored" if "aligned=False" in name else "plain"
        rounds = (one["alignment"] or {"rounds": 1})["rounds"]
        values = [one["accuracy"], one["within_1"], one["usual"], rounds, one["seconds"]]
        rows.append(Row(name, values, style=style, form=["{:.2f}", "{:.2f}", "{:.2f}", "{:.0f}", "{:.0f}"]))
    fitting = ", ".join(f"{key} {value}" for key, value in result["fitting"].items())
    note = (
        f"LeNet-5 (shipped) behind each, accuracy in % on MNIST test, aligned, n = {result['images']:,} (bare "
        f"{result['bare']:.2f}; a restorer is exact, so every shift has the same accuracy). Within 1: restored to "
        "within a pixel of the original place. Together: to within a pixel of the most frequent place. Fitted on "
        f"{result['train_images']:,} training digits at 32x32 ({fitting}, seed 0), each off by its own random shift."
    )
    return [Table("training digits", ["accuracy", "within 1", "together", "rounds", "seconds"], rows, [note])]
