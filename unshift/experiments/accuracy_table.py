"""Accuracy over translation scopes, bare and restored: the measurement behind Tables 1 and 2, Figure 4 and ours.

Both ways are measured on the same images under the same shifts. Where the bare classifier is a large net and there
are many shifts, that is the first ``bare`` test images (stated with every number); what the restorer gives is then
measured on all of them as well, since it costs next to nothing: a restored image that was seen before is not
classified again.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from unshift import Chain, Restorer, apply
from unshift.evaluation import accuracy, accuracy_over_scopes, random_shifts, restoration_rates
from unshift.experiments import plots
from unshift.experiments.answers import Remembering
from unshift.experiments.cases import LoadedCase
from unshift.experiments.record import Picture, Result, Row, Table
from unshift.progress import tracked

__all__ = ["curve", "measure", "table", "training"]


def measure(case: LoadedCase, scopes: list[int], batch_size: int = 200, *, bare: int | None = None) -> Result:
    """Classify at each scope and seed, bare and behind each restorer.

    Args:
        case: Test set, classifier and restorers.
        scopes: How far images shift, in pixels.
        batch_size: Images at a time.
        bare: How many images go shifted through the bare classifier. Default: as many as the case says.

    Returns:
        Accuracies in percent, and their spread over seeds.
    """
    case = replace(case, bare=bare or case.bare)
    few = min(case.bare, len(case.images))
    images, labels = case.images[:few], case.labels[:few]
    classifier = Remembering.of(case.classifier)
    result: dict[str, Any] = {**case.describe(), "scopes": scopes, "restored": {}}
    for name, restorer in case.restorers.items():
        how: dict[str, Any] = {"scopes": scopes, "seeds": case.seeds, "batch_size": batch_size}
        rows = accuracy_over_scopes(classifier, images, labels, restorer, **how, progress=case.progress)
        result["without"] = [_percent(row.without) for row in rows]
        result["without_spread"] = [_spread(row.without) for row in rows]
        result["consistent_without"] = [100 * row.consistent_without for row in rows]
        entry: dict[str, Any] = {
            "accuracy": [_percent(row.restored) for row in rows],
            "spread": [_spread(row.restored) for row in rows],
            "effect": [100 * row.effect for row in rows],
            "consistent": [100 * row.consistent_restored for row in rows],
            "same_at_every_scope": len({value for row in rows for value in row.restored}) == 1,
            "rates": restoration_rates(restorer, case.images, batch_size=batch_size).as_dict(),
        }
        if few < len(case.images):
            entry["all"] = _all(case, classifier, restorer, scopes, batch_size)
        result["restored"][name] = entry
    classifier.save()
    return result


def _all(
    case: LoadedCase, classifier: Remembering, restorer: Restorer | Chain, scopes: list[int], batch_size: int
) -> dict[str, Any]:
    """Return the accuracy over the whole test set: bare where the images are, restored at every scope, first seed."""
    images, labels = case.images, case.labels
    without = accuracy(classifier, images, labels, batch_size=batch_size)
    restored = []
    for scope in tracked(scopes, "all images", "scopes", case.progress):
        shifted = apply(images, random_shifts(len(images), images.ndim - 2, scope, case.seeds[0]))
        whole = lambda batch: classifier(restorer(batch))  # noqa: E731
        restored.append(accuracy(whole, shifted, labels, batch_size=batch_size))
    return {
        "images": len(images),
        "seed": case.seeds[0],
        "without": 100 * without,
        "accuracy": [100 * value for value in restored],
        "effect": 100 * (restored[0] - without),
        "same_at_every_scope": len(set(restored)) == 1,
    }


def _percent(values: tuple[float, ...] | list[float]) -> float:
    return 100 * sum(values) / len(values)


def _spread(values: tuple[float, ...]) -> float | None:
    """Return the standard deviation over seeds, in points."""
    return 100 * statistics.stdev(values) if len(values) > 1 else None


def table(result: Result, paper: dict[str, Any] | None = None, unit: str = "pixels") -> Table:
    """Return a measurement as a table, the paper's rows below ours.

    Args:
        result: What :func:`measure` returned.
        paper: The paper's ``classifier``, its accuracies ``without`` at each scope, and the one ``restored``.
        unit: Of a shift.

    Returns:
        One column a scope; the notes say on what images, and what the restorer does to unshifted ones.
    """
    several = len(result["seeds"]) > 1
    rows = [Row(f"{result['classifier']}, bare", result["without"], "bare")]
    if several:
        rows.append(Row("spread over seeds", result["without_spread"], "detail", "±{:.2f}"))
    for name, entry in result["restored"].items():
        rows.append(Row(f"with unshift ({name})", entry["accuracy"], "restored"))
        rows.append(Row("effect", entry["effect"], "detail", "{:+.2f}"))
        if every := entry.get("all"):
            rows.append(Row(f"with unshift, all {every['images']:,}", every["accuracy"], "restored"))
    if several:
        rows.append(Row("consistent, bare", result["consistent_without"], "aside"))
        for name, entry in result["restored"].items():
            rows.append(Row(f"consistent, unshift ({name})", entry["consistent"], "aside"))
    if paper:
        rows.append(Row(f"paper: {paper['classifier']}, bare", paper["without"], "paper"))
        rows.append(Row("paper: with its restorer", [paper["restored"]] * len(paper["without"]), "paper"))
    note = (
        f"Accuracy in %, {result['data']}, n = {result['bare_images']:,}, random circular shifts both ways, "
        f"seed{'s' if several else ''} {', '.join(map(str, result['seeds']))}."
    )
    if several:
        note += " ±: standard deviation over seeds. Consistent: images with one verdict under all seeds' shifts."
    notes = [note, *(_effect(result, name) for name in result["restored"])]
    if told := training(result):
        notes.append(told)
    return Table(f"shift up to ({unit})", [str(scope) for scope in result["scopes"]], rows, notes)


def _effect(result: Result, name: str) -> str:
    """Say how often a restorer is right, and what it costs on images that are not shifted."""
    entry = result["restored"][name]
    rates, every = entry["rates"], entry.get("all")
    n, effect = (every["images"], every["effect"]) if every else (result["images"], entry["effect"][0])
    flat = entry["same_at_every_scope"] and (every is None or every["same_at_every_scope"])
    bare = f", bare {every['without']:.2f}%" if every else ""
    return (
        f"{name}: {100 * rates['exact']:.2f}% of {rates['images']:,} found to the pixel, "
        f"{100 * rates['within_1']:.2f}% within 1; unshifted, the effect is {effect:+.2f} points (n = {n:,}{bare}); "
        f"{'one accuracy at every scope and seed' if flat else 'NOT one accuracy at every scope'}."
    )


def training(result: Result) -> str:
    """Say how the classifier of a result was trained; nothing if that is not known."""
    about = result["training"]
    if "source" in about:
        return (
            f"Classifier: {about['parameters']:,} parameters, trained by others: {about['source']} "
            f"({about['licence']}; SHA-256 {about['sha256'][:16]}…)."
        )
    if "validation_accuracy" not in about:
        return ""
    small = f"{about['small_epochs']:g} epochs at half size and " if about.get("small_epochs") else ""
    seen = f" seen through random windows of {about['window']}x{about['window']}" if about.get("window") else ""
    held = f"{100 * about['validation_accuracy']:.2f}% of {about['validation_images']:,} held-out images right"
    size = f"{about['parameters']:,} parameters, " if "parameters" in about else ""
    return f"Classifier: {size}{small}{about['epochs']:g} epochs on {about['train_images']:,} images{seen}, {held}."


def _augmented(about: dict[str, Any]) -> int:
    """Return how far the images moved that a classifier was trained on: a window on a margin moves what it shows."""
    margin = dict(about.get("preparation", ())).get("pad", 0)
    return margin if about.get("window") else about.get("scope") or 0


def curve(name: str, results: list[Result], paper: dict[str, Any] | None = None) -> Picture:
    """Return accuracy against scope as a picture.

    Args:
        name: Of the picture's file.
        results: One classifier, or several to compare, the first of them dashed.
        paper: As for :func:`table`.

    Returns:
        The picture: bare classifiers fall, restored ones are flat lines.
    """

    def draw() -> bytes:
        figure, axes = plots.axes(7.2, 3.9)
        scopes = results[0]["scopes"]
        if paper:
            axes.plot(scopes, paper["without"], color=plots.PAPER, ls=":", label=f"paper: {paper['classifier']}, bare")
        for result, dash in zip(results, ("--", "-") if len(results) > 1 else ("-",), strict=True):
            spread = [value or 0.0 for value in result["without_spread"]]
            bare = f"{result['classifier']}, bare"
            axes.errorbar(scopes, result["without"], yerr=spread, fmt=f"o{dash}", color=plots.BARE, label=bare, ms=5)
            markers = (f"s{dash}",) if len(results) > 1 else ("o-", "s--", "^:")
            for (restorer, entry), marker in zip(result["restored"].items(), markers, strict=False):
                label = f"{result['classifier']}, with unshift ({restorer})"
                axes.plot(scopes, entry["accuracy"], marker, color=plots.RESTORED, label=label, ms=4)
            axes.axvspan(0, _augmented(result["training"]), color=plots.PAPER, alpha=0.15, lw=0)
        lowest = min(value for result in [*results, paper or results[0]] for value in result["without"])
        axes.set_ylim(0 if lowest < 50 else 10 * (lowest // 10) - 5, 103)
        axes.set_xlabel("random circular shift of up to … pixels")
        axes.set_ylabel("accuracy (%)")
        axes.legend(frameon=False, loc="lower left", fontsize=8.5)
        draws = len(results[0]["seeds"])
        title = f"{results[0]['data']}, n = {results[0]['bare_images']:,}"
        axes.set_title(title + (f", {draws} draws of the shifts" if draws > 1 else ""), fontsize=10, loc="left")
        return plots.png(figure)

    return Picture(name, f"Accuracy against the size of the shift, {results[0]['data']}", draw)
