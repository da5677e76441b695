"""Table 2: four architectures behind one restorer, CIFAR-10 padded to 40x40, shifts of up to 4 pixels.

Claim: the restorer does not care which classifier follows; on images that are not shifted it costs nearly nothing.
"""

from __future__ import annotations

from typing import Any

from unshift.experiments import scopes
from unshift.experiments.setting import Setting

__all__ = ["CASES", "PAPER", "rows", "run", "text"]

CASES = ("cifar10-vgg16", "cifar10-resnet18", "cifar10-densenet121", "cifar10-mobilenet-v2")
PAPER = {
    "VGG-16": {"without": [89.27, 83.40], "restored": 89.23},
    "ResNet-18": {"without": [88.21, 82.16], "restored": 88.18},
    "DenseNet-121": {"without": [92.14, 90.46], "restored": 92.12},
    "MobileNet v2": {"without": [88.10, 83.36], "restored": 88.09},
}
"""Table 2 of the paper, at scopes 0 and 4."""


def run(setting: Setting) -> dict[str, Any]:
    """Classify at scopes 0 and 4, bare and restored. Accuracies in percent."""
    return {**scopes.measure(setting, [0, 4]), "paper": PAPER[setting.classifier_name]}


def rows(result: dict[str, Any]) -> scopes.Rows:
    """Return one architecture's part of the table as labelled rows of text, ours above the paper's."""
    table, paper = scopes.lines(result), result["paper"]
    table.append(("paper: bare", [f"{v:.2f}" for v in paper["without"]]))
    table.append(("paper: with its restorer", [f"{paper['restored']:.2f}"] * 2))
    return table


def text(result: dict[str, Any]) -> str:
    """Return the table for a terminal."""
    return scopes.text(rows(result), result)
