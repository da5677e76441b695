"""The paper's tables and figures, one module each; ``unshift reproduce`` runs them anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["COST_NOTE", "DATA", "ITEMS", "reproduce"]

ITEMS = {
    "table1": "accuracy over scopes 0..8: LeNet-5/MNIST (5 min), ResNet-18/CIFAR-10 (13 min), Fashion-MNIST (4 min)",
    "fig1": "accuracy lost at every shift in [-3, 3]^2: LeNet-5/MNIST (1 min), VGG-16/CIFAR-10 (6 min), Fashion-MNIST",
    "fig3": "images original, shifted by up to a quarter, restored: MNIST, CIFAR-10, Fashion-MNIST (1 min)",
    "table2": "VGG-16, ResNet-18, DenseNet-121, MobileNet v2 at scope 4: CIFAR-10 (23 min)",
    "fig4": "trained with and without translation augmentation: MNIST, CIFAR-10, Fashion-MNIST (25 min)",
    "fig5": "3-D digits shifted by up to 8 voxels, with and without (15 min)",
    "fig6": "digits at every angle, with and without, and two rivals (10 min)",
    "seam": "not in the paper: CIFAR-10 at 32x32, no margin, any shift; --train adds the curve over budgets (5 min)",
}
"""What there is, with its cost on two CPU cores."""
COST_NOTE = (
    "Times are for two CPU cores. On CIFAR-10 the classifiers come on top, once: 15 to 40 minutes of training each "
    "(python -m unshift.experiments.classifiers NAME), unless they are in the data folder already."
)
MAIN = ("table1", "fig1", "fig3")
"""What runs unless told otherwise, on the embedded MNIST alone and with one seed: the rest takes longer."""
DATA = ("mnist", "cifar10", "fashion-mnist")
SEEDS = (0, 1, 2, 3, 4)


def reproduce(
    items: list[str] | None = None,
    out: str | Path = "report",
    *,
    data: Sequence[str] = (),
    train: bool = False,
    quick: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Run ``items`` and write ``out/index.html``, its figures and ``out/results.json``; return the new results.

    What earlier runs left in ``out`` stays, unless it is measured anew; ``results.json`` grows with every case.
    Without ``items``, the main job: Table 1, Figures 1 and 3, on MNIST. ``data`` keeps the cases on those sets.
    ``train`` first fits restorers and classifier on the embedded digits; ``quick`` takes a few images.
    """
    from unshift.experiments import report
    from unshift.experiments.setting import provenance

    chosen = list(items or MAIN)
    if unknown := [item for item in chosen if item not in ITEMS]:
        raise ValueError(f"no experiment {unknown[0]!r}; there are {', '.join(ITEMS)}")
    if unknown := [name for name in data if name not in DATA]:
        raise ValueError(f"no experiments on {unknown[0]!r}; there are those on {', '.join(DATA)}")
    wanted = tuple(data) or (DATA if items else ("mnist",))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    stored = report.read(folder)
    seeds = SEEDS[: (2 if quick else len(SEEDS)) if items else 1]
    flags = {"train": train, "quick": quick, "progress": progress, "seeds": seeds}
    results: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for item in chosen:
        module, load, cases = _parts(item, wanted)
        if train and not data and "mnist" in cases:
            cases = ["mnist"]  # what the package has digits to train on
        if not cases:
            raise ValueError(f"{item} does not run on {', '.join(wanted)}")
        results[item] = {}
        for case in cases:
            if case not in settings:
                settings[case] = load(case, **flags)
            begun = time.monotonic()
            result = module.run(settings[case])
            seconds = round(time.monotonic() - begun, 1)
            results[item][case] = {**result, "seconds": seconds, "provenance": provenance()}
            stored.setdefault(item, {})[case] = results[item][case]
            report.write_results(stored, folder)  # a kill loses no case that was done
            if hasattr(module, "text"):
                print(f"\n{module.text(result)}\n", flush=True)
    report.write_page(stored, folder)
    return results


def _parts(item: str, data: Sequence[str]) -> tuple[Any, Callable[..., Any], list[str]]:
    """Return an item's module, what loads a case, and the cases of it that are on ``data``."""
    from unshift.experiments import fig1, fig3, fig4, fig5, fig6, seam, table1, table2
    from unshift.experiments.setting import CASES, setting

    if item in ("fig5", "fig6"):  # their one case has a setting of its own
        module: Any = {"fig5": fig5, "fig6": fig6}[item]
        return module, module.setting, [module.CASE] if "mnist" in data else []
    modules = {"table1": table1, "fig1": fig1, "fig3": fig3, "table2": table2, "fig4": fig4, "seam": seam}
    return modules[item], setting, [case for case in modules[item].CASES if CASES[case].data in data]
