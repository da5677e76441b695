"""Table 1: accuracy over translation scopes 0..8, with and without the restorer.

Claim: with the restorer the accuracy is the same number at every scope, because the restored image
is the same image. The paper's row for MNIST is kept here to be shown beside ours.
"""

from __future__ import annotations

from typing import Any

from unshift.evaluation import accuracy_over_scopes
from unshift.experiments.setting import Setting

__all__ = ["PAPER_MNIST", "run", "text"]

PAPER_MNIST = {
    "without": [98.89, 98.21, 95.41, 87.07, 76.61, 62.9, 51.33, 41.1, 35.7],
    "restored": [98.59] * 9,
}


def run(setting: Setting, scopes: range = range(9)) -> dict[str, Any]:
    """Classify the test set at each scope, bare and behind each restorer. Accuracies in percent."""
    result: dict[str, Any] = {**setting.describe(), "scopes": list(scopes), "restored": {}, "paper": PAPER_MNIST}
    for name, restorer in setting.restorers.items():
        rows = accuracy_over_scopes(
            setting.classifier,
            setting.images,
            setting.labels,
            restorer,
            scopes=scopes,
            seeds=setting.seeds,
            progress=setting.progress,
        )
        result["without"] = [_percent(row.without) for row in rows]
        result["consistent_without"] = [100 * row.consistent_without for row in rows]
        result["restored"][name] = {
            "accuracy": [_percent(row.restored) for row in rows],
            "effect": [100 * row.effect for row in rows],
            "consistent": [100 * row.consistent_restored for row in rows],
            "same_at_every_scope": len({value for row in rows for value in row.restored}) == 1,
        }
    return result


def _percent(values: tuple[float, ...]) -> float:
    return 100 * sum(values) / len(values)


def rows(result: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the table as labelled rows of text, ours above the paper's."""
    table = [("shift up to (pixels)", [str(s) for s in result["scopes"]])]
    table.append((f"{result['classifier']}, bare", [f"{v:.2f}" for v in result["without"]]))
    for name, entry in result["restored"].items():
        table.append((f"with unshift ({name})", [f"{v:.2f}" for v in entry["accuracy"]]))
        table.append(("  effect", [f"{v:+.2f}" for v in entry["effect"]]))
    paper = result["paper"]
    picked = result["scopes"]
    table.append(("paper: LeNet-5, bare", [f"{paper['without'][s]:.2f}" for s in picked]))
    table.append(("paper: with its restorer", [f"{paper['restored'][s]:.2f}" for s in picked]))
    return table


def text(result: dict[str, Any]) -> str:
    """Return the table for a terminal."""
    table = rows(result)
    wide = max(len(label) for label, _ in table)
    lines = [f"{label:<{wide}}  " + " ".join(f"{cell:>7}" for cell in cells) for label, cells in table]
    lines.insert(1, "-" * len(lines[0]))
    lines.insert(len(lines) - 2, "-" * len(lines[0]))
    seeds = ", ".join(map(str, result["seeds"]))
    lines.append(
        f"accuracy in %, {result['data']}, n = {result['images']:,}, "
        f"random circular shifts within the scope, seed {seeds}"
    )
    return "\n".join(lines)
