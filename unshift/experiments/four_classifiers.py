"""Table 2: four architectures behind one restorer, CIFAR-10 padded to 40x40, shifts of up to 4 pixels."""

from __future__ import annotations

from functools import partial
from typing import Any

from unshift.experiments.accuracy_table import measure, table
from unshift.experiments.cases import CASES
from unshift.experiments.record import Block, Experiment, Results, Row, Table

PAPER: dict[str, Any] = {
    "cifar10-vgg16": {"classifier": "VGG-16", "without": [89.27, 83.40], "restored": 89.23},
    "cifar10-resnet18": {"classifier": "ResNet-18", "without": [88.21, 82.16], "restored": 88.18},
    "cifar10-densenet-bc100": {"classifier": "DenseNet-121", "without": [92.14, 90.46], "restored": 92.12},
    "cifar10-mobilenet-v2": {"classifier": "MobileNet v2", "without": [88.10, 83.36], "restored": 88.09},
}
"""At scopes 0 and 4."""


def _show(case: str, results: Results) -> list[Block]:
    return [table(results[case], PAPER[case])]


def _summary(results: Results) -> list[Block]:
    """Return one row a classifier, as the paper lays its table out: ours, then the paper's."""
    every = f"(n = {next(iter(results.values()))['images']:,})"
    columns = [
        f"bare, unshifted {every}",
        f"with unshift, any shift {every}",
        f"effect, unshifted {every}",
        *("bare, shifted by up to 4", "effect, shifted", "images x draws, shifted"),
        *("paper: bare", "restored", "effect", "shifted", "effect, shifted"),
    ]
    forms = ["{:.2f}", "{:.2f}", "{:+.2f}", "{:.2f}", "{:+.2f}"]
    rows = []
    for case, result in results.items():
        (entry,) = result["restored"].values()
        # Where the bare classifier saw all images, there is no larger measurement.
        every_image = entry.get("all") or {
            "without": result["without"][0],
            "accuracy": entry["accuracy"],
            "effect": entry["effect"][0],
        }
        ours = [every_image["without"], every_image["accuracy"][1], every_image["effect"]]
        spread = result["without_spread"][1]
        shifted = f"{result['without'][1]:.2f}" + ("" if spread is None else f" ±{spread:.2f}")
        size = f"{result['bare_images']:,} x {len(result['seeds'])}"
        paper = PAPER[case]
        restored, (still, moved) = paper["restored"], paper["without"]
        theirs = [still, restored, restored - still, moved, restored - moved]
        values = [*ours, shifted, entry["effect"][1], size, *theirs]
        other = "" if result["classifier"].startswith(paper["classifier"]) else f"; paper: {paper['classifier']}"
        rows.append(Row(result["classifier"] + other, values, form=[*forms, "{}", *forms]))
    return [Table("", columns, rows)]


EXPERIMENT = Experiment(
    name="table2",
    item="Table 2",
    title="four classifiers behind one restorer",
    claim="Any classifier may follow; on images that are not shifted the restorer costs nearly nothing.",
    cost="30 min for VGG-16, ResNet-18, DenseNet-BC-100 and MobileNet v2 on CIFAR-10",
    paper=PAPER,
    cases=[CASES[name] for name in PAPER],
    measure=partial(measure, scopes=[0, 4], bare=10_000),
    show=_show,
    summary=_summary,
)
