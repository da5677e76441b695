"""Photos without a margin, any shift: only the seam shows the shift.

Claim: No padding is needed: a photo shifted circularly shows a seam where its opposite edges meet.
Paper: pads photos by 4 pixels.
Cost: 7 min with ResNet-20, of which 1 min to 6 min to train two restorers for the curve; 2 min with ResNet-18.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from reproduction import plots, translation
from reproduction.records import Options, Result
from reproduction.tables import Block, Picture, Row, Table
from reproduction.train import cifar10_seam
from unshift.evaluation import restoration_rates

CASES = translation.needs("cifar10-plain", "cifar10-resnet18-plain")
BUDGETS = (1, 3)
"""Epochs over 45,000 training photos, beside the 60 of the shipped restorer."""


def measure(case: str, options: Options) -> Result:
    """Return the accuracies at four scopes; for ResNet-20 also the exact rate of restorers trained for less time."""
    loaded = translation.load(case, options)
    budget = []
    if case == "cifar10-plain":
        trained: list[Any] = [] if options.quick else [_train(epochs, loaded.images, options) for epochs in BUDGETS]
        for facts in [*trained, loaded.restorers["cifar10-seam"].metadata]:
            rates = {key: facts[key] for key in ("validation", "test")}
            budget.append({"epochs": facts["epochs_run"], "seconds": facts["seconds"], **rates})
    return {**translation.measure(loaded, [0, 4, 8, 16]), "budget": budget}


def _train(epochs: int, test: torch.Tensor, options: Options) -> Result:
    """Train by the recipe of the shipped restorer; return its metadata with the rates on the test set."""
    restorer = cifar10_seam.train(epochs=epochs, patience=epochs, progress=options.progress)
    return {**restorer.metadata, "test": restoration_rates(restorer, test).as_dict()}


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table, and the exact rate against epochs of training."""
    result = results[case]
    *scopes, widest = map(str, result["scopes"])
    blocks: list[Block] = [replace(translation.table(result), columns=[*scopes, f"{widest} (any)"])]
    columns, forms = ["exact (test)", "within 1 (test)", "exact (held out)", "seconds"], ["{:.2%}"] * 3 + ["{:.0f}"]
    rows = []
    for entry in result["budget"]:
        test, held = entry["test"], entry["validation"]
        values = [test["exact"], test["within_1"], held["exact"], entry["seconds"]]
        rows.append(Row(str(entry["epochs"]), values, form=forms))
    if len(rows) > 1:
        blocks.append(Picture("seam-budget", "Exact rate against epochs of training", lambda: _draw(result)))
    return [*blocks, Table("epochs of training", columns, rows)] if rows else blocks


def _draw(result: Result) -> bytes:
    figure, axes = plots.axes(5.6, 3.4)
    epochs = [entry["epochs"] for entry in result["budget"]]
    for kind, color in (("test", plots.RESTORED), ("validation", plots.PAPER)):
        rates = [100 * entry[kind]["exact"] for entry in result["budget"]]
        axes.plot(epochs, rates, "o-", color=color, label=f"{kind}, n = {result['budget'][0][kind]['images']:,}")
    axes.set_xlabel("epochs of training")
    axes.set_ylabel("restored exactly (%)")
    axes.legend(frameon=False, loc="lower right")
    return plots.png(figure)
