"""Photos without a margin: CIFAR-10 at 32x32, where only the seam shows the shift. Not in the paper.

Two classifiers: the ResNet-20 that is shipped, and a ResNet-18 that others trained to 94%. How often the seam is found
depends on how long the restorer was trained: with ``--train`` it is fitted with several budgets as well, each measured
on a held-out part of the training set and on the test set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import unshift
from unshift import Chain, Restorer
from unshift.data import root
from unshift.experiments import plots, shipped_restorers
from unshift.experiments.accuracy_table import measure, table
from unshift.experiments.cases import CASES, LoadedCase
from unshift.experiments.record import Block, Case, Experiment, Options, Picture, Result, Results, Row, Table

BUDGETS = (1, 3)
"""Epochs over the 45,000 training photos; the shipped restorer had 60."""


@dataclass(frozen=True)
class _Loaded:
    case: LoadedCase
    fitted: list[Restorer | Chain]


def _load_borrowed(options: Options) -> _Loaded:
    return _Loaded(CASES["cifar10-resnet18-plain"].load(replace(options, train=False)), [])


def _load(options: Options) -> _Loaded:
    if options.train and options.quick:
        raise ValueError("cifar10-plain has no quick training: leave out --train or --quick")
    case = CASES["cifar10-plain"].load(replace(options, train=False))
    fitted = [_fit(epochs, options.progress) for epochs in BUDGETS] if options.train else []
    return _Loaded(case, [*fitted, *case.restorers.values()])


def _fit(epochs: int, progress: bool) -> Restorer | Chain:
    """Fit ``cifar10-seam`` by its own recipe, unless an earlier run left it in the data folder."""
    folder = root() / "seam" / f"{epochs}-epochs"
    path = folder / "cifar10-seam.safetensors"
    if path.exists():
        return unshift.load(path)
    folder.mkdir(parents=True, exist_ok=True)
    changes: dict[str, Any] = {"epochs": epochs, "patience": epochs, "progress": progress}
    return shipped_restorers.make("cifar10-seam", folder, **changes)


def _measure(loaded: _Loaded) -> Result:
    budget = [
        {"epochs": about["epochs_run"], "seconds": about["seconds"], **{k: about[k] for k in ("validation", "test")}}
        for about in (restorer.metadata for restorer in loaded.fitted)
    ]
    return {**measure(loaded.case, [0, 4, 8, 16]), "budget": budget}


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    *scopes, widest = map(str, result["scopes"])
    columns, forms = ["exact (test)", "within 1 (test)", "exact (held out)", "seconds"], ["{:.2%}"] * 3 + ["{:.0f}"]
    rows = []
    for entry in result["budget"]:
        test, held = entry["test"], entry["validation"]
        values = [test["exact"], test["within_1"], held["exact"], entry["seconds"]]
        rows.append(Row(str(entry["epochs"]), values, form=forms))
    blocks: list[Block] = [replace(table(result), columns=[*scopes, f"{widest} (any)"])]
    if len(result["budget"]) > 1:
        blocks.append(Picture("seam-budget", "Exact rate against epochs of training", lambda: _draw(result)))
    return [*blocks, Table("epochs of training", columns, rows)] if rows else blocks


def _draw(result: Result) -> bytes:
    figure, axes = plots.axes(5.6, 3.4)
    epochs = [entry["epochs"] for entry in result["budget"]]
    for kind, color in (("test", plots.RESTORED), ("validation", plots.PAPER)):
        rates = [100 * entry[kind]["exact"] for entry in result["budget"]]
        axes.plot(epochs, rates, "o-", color=color, label=f"{kind}, n = {result['budget'][0][kind]['images']:,}")
    axes.set_xlabel("epochs of training")
    axes.set_ylabel("found to the pixel (%)")
    axes.legend(frameon=False, loc="lower right")
    return plots.png(figure)


EXPERIMENT = Experiment(
    name="seam",
    title="photos without a margin, any shift",
    claim="No padding is needed: rolled by any shift, a photo shows a seam where its left edge meets its right one.",
    cost="5 min on CIFAR-10 with ResNet-20, 8 with ResNet-18; --train adds the curve over budgets",
    cases=[
        Case("cifar10-plain", "cifar10", _load, trainable=True),
        Case("cifar10-resnet18-plain", "cifar10", _load_borrowed),
    ],
    measure=_measure,
    show=_show,
)
