"""Table 1: accuracy over translation scopes.

Claim: With a restorer the accuracy is the same at every scope, because the restored image is the same image.
Paper: LeNet-5 on MNIST falls from 98.89 to 35.70% and stays at 98.59% with its restorer; ResNet-18 on padded CIFAR-10
    falls from 88.21 to 76.01% and stays at 88.18%.
Cost: 3 min for each LeNet-5; 1 h for ResNet-18.
"""

from __future__ import annotations

from typing import Any

from reproduction import translation
from reproduction.records import Options, Result
from reproduction.tables import Block

CASES = translation.needs("mnist", "cifar10-resnet18", "fashion-mnist")
PAPER = {
    "mnist": {
        "classifier": "LeNet-5",
        "without": [98.89, 98.21, 95.41, 87.07, 76.61, 62.9, 51.33, 41.1, 35.7],
        "restored": 98.59,
    },
    "cifar10-resnet18": {
        "classifier": "ResNet-18",
        "without": [88.21, 86.58, 85.9, 83.65, 82.16, 80.46, 79.37, 77.71, 76.01],
        "restored": 88.18,
    },
}


def measure(case: str, options: Options) -> Result:
    """Return the accuracies at scopes 0 to 8."""
    return translation.measure(translation.load(case, options), list(range(9)), bare=10_000)


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table and its curve."""
    result, paper = results[case], PAPER.get(case)
    return [translation.table(result, paper), translation.curve(f"table1-{case}", [result], paper)]
