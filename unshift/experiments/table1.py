"""Table 1: accuracy over translation scopes 0..8, with and without the restorer.

Claim: with the restorer the accuracy is the same number at every scope, because the restored image
is the same image. The paper's rows are kept here to be shown beside ours.
"""

from __future__ import annotations

from typing import Any

from unshift.experiments import scopes
from unshift.experiments.setting import Setting

__all__ = ["CASES", "PAPER", "rows", "run", "text"]

CASES = ("mnist", "cifar10-resnet18", "fashion-mnist")
PAPER = {
    "LeNet-5": {"without": [98.89, 98.21, 95.41, 87.07, 76.61, 62.9, 51.33, 41.1, 35.7], "restored": 98.59},
    "ResNet-18": {"without": [88.21, 86.58, 85.9, 83.65, 82.16, 80.46, 79.37, 77.71, 76.01], "restored": 88.18},
}
"""Table 1 of the paper: LeNet-5 on MNIST, ResNet-18 on CIFAR-10."""


def run(setting: Setting) -> dict[str, Any]:
    """Classify the test set at each scope, bare and behind each restorer. Accuracies in percent."""
    result = scopes.measure(setting, list(range(9)))
    name = next((name for name in PAPER if setting.classifier_name.startswith(name)), None)
    return {**result, "paper": {"classifier": name, **PAPER[name]} if name and "Fashion" not in setting.data else None}


def rows(result: dict[str, Any]) -> scopes.Rows:
    """Return the table as labelled rows of text, ours above the paper's."""
    table = scopes.lines(result)
    if paper := result["paper"]:
        table.append((f"paper: {paper['classifier']}, bare", [f"{v:.2f}" for v in paper["without"]]))
        table.append(("paper: with its restorer", [f"{paper['restored']:.2f}"] * len(paper["without"])))
    return table


def text(result: dict[str, Any]) -> str:
    """Return the table for a terminal."""
    return scopes.text(rows(result), result)
