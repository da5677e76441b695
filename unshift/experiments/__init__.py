"""The paper's tables and figures, one module each; ``unshift reproduce`` runs them anywhere."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["ITEMS", "reproduce"]

ITEMS = {
    "table1": "accuracy over translation scopes 0..8, LeNet-5 on MNIST, with and without (about 1 minute)",
    "fig1": "accuracy lost at every shift in [-3, 3] x [-3, 3], LeNet-5 on MNIST (about 1 minute)",
    "fig3": "digits original, shifted and restored (seconds)",
    "rotation": "digits at every angle, with and without, and two rivals (about 10 minutes)",
    "3d": "3-D digits shifted by up to 8 voxels, with and without (about 5 minutes)",
}
MAIN = ("table1", "fig1", "fig3")
"""What runs unless told otherwise: the rest takes longer."""


def reproduce(
    items: list[str] | None = None,
    out: str | Path = "report",
    *,
    train: bool = False,
    quick: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Run ``items`` (Table 1, Figures 1 and 3 unless given) and write ``out/index.html`` and ``out/results.json``.

    ``train`` first fits restorers and classifier on the embedded digits; ``quick`` takes 500 of them.
    Returns the results.
    """
    from unshift.experiments import fig1, fig3, report, rotation, table1, volumes
    from unshift.experiments.setting import mnist_setting, provenance

    chosen = list(items or MAIN)
    unknown = [item for item in chosen if item not in ITEMS]
    if unknown:
        raise ValueError(f"no experiment {unknown[0]!r}; there are {', '.join(ITEMS)}")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    flags = {"train": train, "quick": quick, "progress": progress}
    # Each group of experiments shares what it runs on, made once; those that have a table print it.
    groups: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (mnist_setting, {"table1": table1, "fig1": fig1, "fig3": fig3}),
        (rotation.turn_setting, {"rotation": rotation}),
        (volumes.volume_setting, {"3d": volumes}),
    ]
    results: dict[str, Any] = {}
    for prepare, modules in groups:
        wanted = {name: module for name, module in modules.items() if name in chosen}
        setting = prepare(**flags) if wanted else None
        for name, module in wanted.items():
            begun = time.monotonic()
            results[name] = module.run(setting)
            results[name]["seconds"] = round(time.monotonic() - begun, 1)
            if hasattr(module, "text"):
                print(f"\n{module.text(results[name])}\n", flush=True)
    results["provenance"] = {**provenance(), "seconds": round(time.monotonic() - started, 1)}
    (folder / "index.html").write_text(report.page(results), encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(_without_pictures(results), indent=1) + "\n", encoding="utf-8")
    return results


def _without_pictures(results: dict[str, Any]) -> dict[str, Any]:
    """Leave the pixels out: they are in the page, and can be made again from the seed."""
    return {key: {k: v for k, v in value.items() if k != "pictures"} for key, value in results.items()}
