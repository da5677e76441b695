"""What confidences are worth, drawn: share that is right against confidence, and risk against coverage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unshift.experiments import plots, report
from unshift.experiments.record import Block, Picture, Row, Table

__all__ = ["pictures", "write_reliability"]

COVERAGES = (0.5, 0.8, 0.9, 0.95, 1.0)


def write_reliability(folder: Path, title: str, worth: Mapping[str, Any]) -> None:
    """Write a page of one :class:`unshift.reliability.Reliability` to ``folder/index.html``."""
    rows = []
    for coverage in COVERAGES:
        share, wrong, least = next(point for point in worth["risk"] if point[0] >= coverage - 1e-9)
        rows.append(Row(f"{share:.0%}", [100 * wrong, least], form=["{:.2f}", "{:.4f}"]))
    note = (
        f"n = {worth['images']:,}. Wrong: not restored exactly. Expected calibration error {worth['ece']:.4f} "
        "(15 bins of equal width)."
    )
    table = Table("coverage", ["wrong among these (%)", "lowest confidence"], rows, [note])
    folder.mkdir(parents=True, exist_ok=True)
    report.write_blocks(folder, "What the confidence is worth", title, [table, *pictures("", {"": worth})])


def pictures(prefix: str, worth: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """Return a calibration plot and a risk-coverage curve of reliabilities by name, one line each."""
    named = dict(worth)
    return [
        Picture(f"{prefix}calibration", "Share that is right against confidence", lambda: _calibration(named)),
        Picture(f"{prefix}risk-coverage", "Share that is wrong against coverage", lambda: _risk(named)),
    ]


def _calibration(worth: Mapping[str, Mapping[str, Any]]) -> bytes:
    figure, axes = plots.axes(4.6, 4.0)
    axes.plot([0, 1], [0, 1], color=plots.PAPER, linewidth=1)
    for color, (name, one) in zip(plots.LINES, worth.items(), strict=False):
        sure, share, count = zip(*one["bins"], strict=True)
        axes.plot(sure, share, color=color, label=name)
        axes.scatter(sure, share, [8 + 120 * n / one["images"] for n in count], color=color)
    axes.set_xlabel("confidence")
    axes.set_ylabel("share restored exactly")
    return _finished(figure, axes, len(worth), "upper left")


def _risk(worth: Mapping[str, Mapping[str, Any]]) -> bytes:
    figure, axes = plots.axes(4.6, 4.0)
    for color, (name, one) in zip(plots.LINES, worth.items(), strict=False):
        coverage, wrong, _ = zip(*one["risk"], strict=True)
        axes.plot([100 * x for x in coverage], [100 * x for x in wrong], color=color, label=name)
    axes.set_xlabel("coverage: the surest images (%)")
    axes.set_ylabel("not restored exactly (%)")
    axes.set_ylim(bottom=0)
    return _finished(figure, axes, len(worth), "upper left")


def _finished(figure: Any, axes: Any, lines: int, where: str) -> bytes:
    if lines > 1:
        axes.legend(frameon=False, loc=where)
    return plots.png(figure)
