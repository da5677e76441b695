"""Figure 4: translation augmentation within its scope and beyond.

Claim: Augmentation (by 10% of the image: 3 or 4 pixels) helps up to its own scope. Beyond, the accuracy falls; a
    restorer keeps it for both kinds of classifier.
Paper: curves only.
Cost: 1 min to 3 min for each case.
"""

from __future__ import annotations

import itertools
from typing import Any

from reproduction import translation
from reproduction.records import Options, Result
from reproduction.tables import Block

PAIRS = {name: f"{name}-augmented" for name in ("mnist", "fashion-mnist")}
"""A classifier trained without shifts, and the same one trained with shifts."""
SINGLE = "cifar10-vgg16"
"""A classifier trained with shifts only."""
CASES = translation.needs(*itertools.chain(*PAIRS.items()), SINGLE)


def measure(case: str, options: Options) -> Result:
    """Return the accuracies at six scopes."""
    return translation.measure(translation.load(case, options), [0, 3, 4, 6, 9, 12])


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table; with the first of a pair, the curves of both."""
    blocks: list[Block] = [translation.table(results[case])]
    if case in (*PAIRS, SINGLE):
        pair = [results[name] for name in (case, PAIRS.get(case)) if name in results]
        blocks.insert(0, translation.curve(f"fig4-{case}", pair))
    return blocks
