"""Photos without a margin, any shift: only the seam shows the shift.

Claim: No padding is needed: a photo shifted circularly shows a seam where its opposite edges meet.
Paper: pads photos by 4 pixels.
Cost: 1 min with ResNet-20, 2 min with ResNet-18.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reproduction import translation
from reproduction.records import Options, Result
from reproduction.tables import Block

CASES = translation.needs("cifar10-plain", "cifar10-resnet18-plain")


def measure(case: str, options: Options) -> Result:
    """Return the accuracies at four scopes."""
    return translation.measure(translation.load(case, options), [0, 4, 8, 16])


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table."""
    *scopes, widest = map(str, results[case]["scopes"])
    return [replace(translation.table(results[case]), columns=[*scopes, f"{widest} (any)"])]
