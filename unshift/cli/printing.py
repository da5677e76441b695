"""Print results: JSON, aligned columns, and rates in words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FEW = 100
"""Below this number of images, a rate is printed with its confidence interval."""


def print_json(value: Any) -> None:
    """Print ``value`` as JSON."""
    print(json.dumps(value, indent=2))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print aligned columns; those in ``right`` flush right."""
    lines = [list(head), *rows] if head else list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def percent(share: float) -> str:
    """Format 0.9876 as ``98.76%``."""
    return f"{100 * share:.2f}%"


def file_size(count: int) -> str:
    """Format a number of bytes as kB or MB."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def join_names(things: Iterable[Any], most: int = 5) -> str:
    """Join the first names with commas, and count the rest."""
    names = [str(thing) for thing in things]
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def rates_line(rates: Mapping[str, Any], step: str, things: str = "images") -> str:
    """Return an :class:`unshift.evaluation.Rates` in words; ``step`` names a distance of 1, such as "pixel"."""
    count = rates["images"]
    exact, near = (f"{round(rates[key] * count):,} = {percent(rates[key])}" for key in ("exact", "within_1"))
    interval = ""
    if count < FEW:
        low, high = confidence_interval(rates["exact"], count)
        interval = f"; 95% confidence interval of the exact rate {100 * low:.0f} to {100 * high:.0f}%"
    return f"{count:,} {things}: {exact} restored exactly, {near} within 1 {step}, {rates['tied']:,} tied{interval}"


def reliability_line(reliability: Any) -> str:
    """Return in words how well the confidence predicts that a pose is exactly right."""
    errors, most_confident = (percent(reliability.risk_at(share)) for share in (1, 0.9))
    return (
        f"confidence: expected calibration error {reliability.ece:.4f}; error rate {errors}, "
        f"{most_confident} among the 90% of highest confidence"
    )


def confidence_interval(share: float, count: int) -> tuple[float, float]:
    """Return the Wilson 95% confidence interval of a rate: ``share`` of ``count`` images."""
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, middle - reach), min(1.0, middle + reach)
