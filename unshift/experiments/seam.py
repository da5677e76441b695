"""Photos without a margin: CIFAR-10 at 32x32, where only the seam betrays the shift. Not in the paper.

Claim: no padding is needed. Rolled by any shift, a photo shows a seam where its left edge meets its right one;
``cifar10-seam`` reads the shift off that. How often, depends on how long it was trained: ``--train`` fits it with
several budgets as well; each was measured on a held-out part of the training set and on the test set.
"""

from __future__ import annotations

from typing import Any

import unshift
from unshift import Restorer
from unshift.data import root
from unshift.experiments import pretrain, scopes
from unshift.experiments.setting import Setting

__all__ = ["BUDGETS", "CASES", "rows", "run", "text"]

CASES = ("cifar10-plain",)
BUDGETS = (1, 3)
"""Epochs over the 48,000 training images; the shipped restorer had 20."""


def run(setting: Setting) -> dict[str, Any]:
    """Classify at scope 0 and at any shift (up to half the size, both ways), bare and restored."""
    result = scopes.measure(setting, [0, 4, 8, 16])
    (shipped,) = setting.restorers.values()
    fitted = [*_fit_budgets(setting.progress), shipped] if setting.train else [shipped]
    result["budget"] = [
        {"epochs": about["epochs_run"], "seconds": about["seconds"], **{k: about[k] for k in ("validation", "test")}}
        for about in (restorer.metadata for restorer in fitted)
    ]
    return result


def _fit_budgets(progress: bool) -> list[Restorer]:
    """Fit ``cifar10-seam`` anew with each budget, by its own recipe; what is in the data folder already, is kept."""
    made = []
    for epochs in BUDGETS:
        folder = root() / "seam" / f"{epochs}-epochs"
        path = folder / "cifar10-seam.safetensors"
        folder.mkdir(parents=True, exist_ok=True)
        changes: dict[str, Any] = {"epochs": epochs, "patience": epochs, "progress": progress}
        made.append(unshift.load(path) if path.exists() else pretrain.make("cifar10-seam", folder, **changes))
    return made


def rows(result: dict[str, Any]) -> scopes.Rows:
    """Return the table as labelled rows of text; scope 16 is any shift."""
    table = scopes.lines(result)
    label, cells = table[0]
    return [(label, [f"{cell} (any)" if cell == "16" else cell for cell in cells]), *table[1:]]


def text(result: dict[str, Any]) -> str:
    """Return the table for a terminal."""
    curve = ", ".join(f"{100 * b['test']['exact']:.2f}% after {b['epochs']}" for b in result["budget"])
    return scopes.text(rows(result), result) + f"\nexact rate on test against epochs of training: {curve}"
