"""Accuracy over translation scopes, with and without: the measurement behind Tables 1 and 2, Figure 4 and ours.

Both ways are measured on the same images under the same shifts. Where the bare classifier is a large net, that
is the first ``bare`` test images (stated with every number); what the restorer gives is then measured on all of
them as well, since it costs next to nothing: a restored image that was seen before is not classified again.
"""

from __future__ import annotations

import statistics
from typing import Any

from tqdm.auto import tqdm

from unshift import Restorer, apply
from unshift.evaluation import accuracy, accuracy_over_scopes, random_shifts, restoration_rates
from unshift.experiments.setting import Remembering, Setting

__all__ = ["effect_text", "lines", "measure", "text"]

Rows = list[tuple[str, list[str]]]


def measure(setting: Setting, scopes: list[int], batch_size: int = 200) -> dict[str, Any]:
    """Classify at each scope and seed, bare and behind each restorer. Accuracies in percent, spread over seeds."""
    few = min(setting.bare, len(setting.images))
    images, labels = setting.images[:few], setting.labels[:few]
    classifier = Remembering(setting.classifier)
    result: dict[str, Any] = {**setting.describe(), "scopes": scopes, "restored": {}}
    for name, restorer in setting.restorers.items():
        rows = accuracy_over_scopes(
            classifier,
            images,
            labels,
            restorer,
            scopes=scopes,
            seeds=setting.seeds,
            batch_size=batch_size,
            progress=setting.progress,
        )
        result["without"] = [_percent(row.without) for row in rows]
        result["without_spread"] = [_spread(row.without) for row in rows]
        result["consistent_without"] = [100 * row.consistent_without for row in rows]
        entry: dict[str, Any] = {
            "accuracy": [_percent(row.restored) for row in rows],
            "spread": [_spread(row.restored) for row in rows],
            "effect": [100 * row.effect for row in rows],
            "consistent": [100 * row.consistent_restored for row in rows],
            "same_at_every_scope": len({value for row in rows for value in row.restored}) == 1,
            "rates": restoration_rates(restorer, setting.images, batch_size=batch_size).as_dict(),
        }
        if few < len(setting.images):
            entry["all"] = _all(setting, classifier, restorer, scopes, batch_size)
        result["restored"][name] = entry
    return result


def _all(
    setting: Setting, classifier: Remembering, restorer: Restorer, scopes: list[int], batch_size: int
) -> dict[str, Any]:
    """Return the accuracy over the whole test set: bare where the images are, restored at every scope and seed."""
    images, labels = setting.images, setting.labels
    without = accuracy(classifier, images, labels, batch_size=batch_size)
    runs = [(scope, seed) for scope in scopes for seed in setting.seeds]
    restored: dict[int, list[float]] = {scope: [] for scope in scopes}
    for scope, seed in tqdm(runs, desc="all images", unit="run", disable=None if setting.progress else True):
        shifted = apply(images, random_shifts(len(images), images.ndim - 2, scope, seed))
        whole = lambda batch: classifier(restorer(batch))  # noqa: E731
        restored[scope].append(accuracy(whole, shifted, labels, batch_size=batch_size))
    every = [value for values in restored.values() for value in values]
    return {
        "images": len(images),
        "without": 100 * without,
        "accuracy": [_percent(restored[scope]) for scope in scopes],
        "effect": 100 * (every[0] - without),
        "same_at_every_scope": len(set(every)) == 1,
    }


def _percent(values: tuple[float, ...] | list[float]) -> float:
    return 100 * sum(values) / len(values)


def _spread(values: tuple[float, ...]) -> float | None:
    """Return the standard deviation over seeds, in points."""
    return 100 * statistics.stdev(values) if len(values) > 1 else None


# --- as a table -----------------------------------------------------------------------------------


def lines(result: dict[str, Any], unit: str = "pixels") -> Rows:
    """Return the measurement as labelled rows of text."""
    spread = result["without_spread"]
    table: Rows = [(f"shift up to ({unit})", [str(s) for s in result["scopes"]])]
    table.append((f"{result['classifier']}, bare", [f"{v:.2f}" for v in result["without"]]))
    if spread[0] is not None:
        table.append(("  spread over seeds", [f"±{v:.2f}" for v in spread]))
    for name, entry in result["restored"].items():
        table.append((f"with unshift ({name})", [f"{v:.2f}" for v in entry["accuracy"]]))
        table.append(("  effect", [f"{v:+.2f}" for v in entry["effect"]]))
        if "all" in entry:
            every = entry["all"]
            table.append((f"with unshift, all {every['images']:,}", [f"{v:.2f}" for v in every["accuracy"]]))
    if len(result["seeds"]) > 1:
        table.append(("consistent, bare", [f"{v:.2f}" for v in result["consistent_without"]]))
        for name, entry in result["restored"].items():
            table.append((f"consistent, unshift ({name})", [f"{v:.2f}" for v in entry["consistent"]]))
    return table


def effect_text(result: dict[str, Any]) -> list[str]:
    """Return a sentence per restorer: how often it is right, and what it costs on images that are not shifted."""
    said = []
    for name, entry in result["restored"].items():
        rates, every = entry["rates"], entry.get("all")
        n, effect = (every["images"], every["effect"]) if every else (result["images"], entry["effect"][0])
        flat = entry["same_at_every_scope"] and (every is None or every["same_at_every_scope"])
        said.append(
            f"{name}: {100 * rates['exact']:.2f}% of {rates['images']:,} found to the pixel, "
            f"{100 * rates['within_1']:.2f}% within 1; unshifted, the effect is {effect:+.2f} points (n = {n:,}"
            + (f", bare {every['without']:.2f}%" if every else "")
            + f"); {'one accuracy at every scope and seed' if flat else 'NOT one accuracy at every scope'}"
        )
    return said


def text(rows: Rows, result: dict[str, Any]) -> str:
    """Return a table and its small print for a terminal."""
    wide = max(len(label) for label, _ in rows)
    out = [f"{label:<{wide}}  " + " ".join(f"{cell:>7}" for cell in cells) for label, cells in rows]
    out.insert(1, "-" * len(out[0]))
    seeds = ", ".join(map(str, result["seeds"]))
    out.append(
        f"accuracy in %, {result['data']}, n = {result['bare_images']:,}, random circular shifts within the scope, "
        f"seed{'s' if len(result['seeds']) > 1 else ''} {seeds}"
    )
    return "\n".join([*out, *effect_text(result)])
