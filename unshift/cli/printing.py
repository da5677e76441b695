"""How results are printed: JSON, aligned columns, and the words for rates and sizes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FEW = 100
"""Below this many images, a rate is told with how far off it may be."""


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
    """Write 0.9876 as ``98.76%``."""
    return f"{100 * share:.2f}%"


def file_size(count: int) -> str:
    """Write a number of bytes as kB or MB."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def image_size(size: Iterable[int]) -> str:
    """Write (32, 48) as ``32x48``."""
    return "x".join(map(str, size)) or "any size"


def named(things: Iterable[Any], most: int = 5) -> str:
    """Name some files or other things, the first few of many."""
    names = [str(thing) for thing in things]
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def rates_line(rates: Mapping[str, Any], step: str) -> str:
    """Tell how often a restorer was right; ``step`` is what a distance of 1 is to its coordinates."""
    count = rates["images"]
    exact, near = (f"{round(rates[key] * count):,} = {percent(rates[key])}" for key in ("exact", "within_1"))
    few = ""
    if count < FEW:
        low, high = likely(rates["exact"], count)
        few = f"; too few to tell: all in all, {100 * low:.0f}% to {100 * high:.0f}% may be exact"
    return f"{count:,} images: {exact} restored exactly, {near} within 1 {step}, {rates['tied']:,} tied{few}"


def reliability_line(worth: Any) -> str:
    """Tell how far confidences are from what they should be, and what is wrong among the images of the highest."""
    wrong, surest = (percent(worth.risk_at(share)) for share in (1, 0.9))
    return (
        f"confidence: on average {worth.ece:.4f} away from the share that is restored exactly; "
        f"wrong are {wrong} of all images, and {surest} of the 90% with the highest confidence"
    )


def likely(share: float, count: int) -> tuple[float, float]:
    """Return where a rate seen as ``share`` of ``count`` lies with 95% confidence (Wilson's interval)."""
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, middle - reach), min(1.0, middle + reach)
