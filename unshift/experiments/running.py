"""Run experiments: load each case once, measure, print, and keep what was measured."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unshift.experiments import report
from unshift.experiments.borrowed_classifiers import check_names
from unshift.experiments.catalogue import MAIN, experiments, find
from unshift.experiments.provenance import provenance
from unshift.experiments.record import Case, Experiment, Options, Results
from unshift.experiments.renderers import terminal

__all__ = ["SEEDS", "reproduce"]

SEEDS = (0, 1, 2, 3, 4)


def reproduce(
    items: Sequence[str] | None = None,
    out: str | Path = "report",
    *,
    data: Sequence[str] = (),
    train: bool = False,
    quick: bool = False,
    progress: bool = True,
    weights: Mapping[str, Path] | None = None,
) -> dict[str, Results]:
    """Run experiments; print their tables; write a report.

    Args:
        items: Names of experiments or of the paper's items. Default: Table 1, Figures 1 and 3 on MNIST.
        out: Folder of ``index.html``, its figures and ``results.json``, which grows with every case. What
            earlier runs left there stays, unless it is measured again.
        data: Keeps the cases on these data sets.
        train: First fits restorers and classifier on the embedded digits.
        quick: Takes a few images: a look, not a result.
        progress: Whether to show progress bars.
        weights: Files of classifiers that others trained, by name, where they are not in the data folder.

    Returns:
        The new results, by experiment and case, with their pixels.

    Raises:
        ValueError: If there is no such experiment, or it does not run on such data.
    """
    chosen = [find(item) for item in items or MAIN]
    todo = [(each, _cases(each, tuple(data) or (() if items else ("mnist",)), train and not data)) for each in chosen]
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    stored = report.read(folder)
    seeds = SEEDS[: (2 if quick else len(SEEDS)) if items else 1]
    options = Options(train, quick, seeds, progress, check_names(weights or {}))
    loaded: dict[Case, Any] = {}
    results: dict[str, Results] = {}
    for experiment, cases in todo:
        old = stored.setdefault(experiment.name, {})
        new = results.setdefault(experiment.name, {})
        for case in cases:
            if case not in loaded:
                loaded[case] = case.load(options)
            begun = time.monotonic()
            result = {**experiment.measure(loaded[case]), "paper": experiment.paper.get(case.name)}
            seconds = round(time.monotonic() - begun, 1)
            old[case.name] = new[case.name] = {**result, "seconds": seconds, "provenance": provenance()}
            report.write_results(stored, folder)  # a kill loses no case that was done
            print(f"\n{terminal(experiment.show(case.name, old))}\n", flush=True)
        if experiment.summary and len(new) > 1:
            print(f"\n{terminal(experiment.summary(new))}\n", flush=True)
    report.write_page(stored, folder)
    return results


def _cases(experiment: Experiment, data: Sequence[str], trained: bool) -> list[Case]:
    """Return the cases on ``data`` (empty: all); ``trained``: those whose parts can be trained, if there are any."""
    known = list(dict.fromkeys(case.data for each in experiments() for case in each.cases))
    if unknown := [name for name in data if name not in known]:
        raise ValueError(f"no experiments on {unknown[0]!r}; there are experiments on {', '.join(known)}")
    cases = [case for case in experiment.cases if not data or case.data in data]
    if not cases:
        raise ValueError(f"{experiment.name} does not run on {', '.join(data)}")
    return ([case for case in cases if case.trainable] if trained else []) or cases
