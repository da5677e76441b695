"""Figure 4: translation augmentation within its scope and beyond.

Claim: Augmentation (by 10% of the image: 3 or 4 pixels) helps up to its own scope. Beyond, the accuracy falls; a
    restorer keeps it for both kinds of classifier.
Paper: curves only.
Cost: 1 min to 3 min for each case.
"""

from __future__ import annotations

from typing import Any

from reproduction import translation
from reproduction.records import Options, Result
from reproduction.tables import Block

CASES = translation.needs("mnist", "mnist-augmented", "cifar10-vgg16")


def measure(case: str, options: Options) -> Result:
    """Return the accuracies at six scopes."""
    return translation.measure(translation.load(case, options), [0, 3, 4, 6, 9, 12])


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table; with the first of a pair, the curves of both."""
    blocks: list[Block] = [translation.table(results[case])]
    if case != "mnist-augmented":
        pair = [results[name] for name in (case, f"{case}-augmented") if name in results]
        blocks.insert(0, translation.curve(f"fig4-{case}", pair))
    return blocks
