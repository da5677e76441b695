"""The paper's tables and figures, one module each; ``unshift reproduce`` runs them anywhere."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

__all__ = ["ITEMS", "reproduce"]

ITEMS = {
    "table1": "accuracy over translation scopes 0..8, LeNet-5 on MNIST, with and without (about 1 minute)",
    "fig1": "accuracy lost at every shift in [-3, 3] x [-3, 3], LeNet-5 on MNIST (about 1 minute)",
    "fig3": "digits original, shifted and restored (seconds)",
}


def reproduce(
    items: list[str] | None = None,
    out: str | Path = "report",
    *,
    train: bool = False,
    quick: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Run ``items`` (all of them unless given) and write ``out/index.html`` and ``out/results.json``.

    ``train`` first fits restorers and classifier on the embedded digits; ``quick`` takes 500 of them.
    Returns the results.
    """
    from unshift.experiments import fig1, fig3, report, table1
    from unshift.experiments.setting import mnist_setting, provenance

    chosen = list(items or ITEMS)
    unknown = [item for item in chosen if item not in ITEMS]
    if unknown:
        raise ValueError(f"no experiment {unknown[0]!r}; there are {', '.join(ITEMS)}")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    setting = mnist_setting(train=train, quick=quick, progress=progress)
    results: dict[str, Any] = {}
    for name, module in (("table1", table1), ("fig1", fig1), ("fig3", fig3)):
        if name in chosen:
            begun = time.monotonic()
            results[name] = module.run(setting)
            results[name]["seconds"] = round(time.monotonic() - begun, 1)
        if name == "table1" and name in chosen:
            print(f"\n{table1.text(results[name])}\n", flush=True)
    results["provenance"] = {**provenance(), "seconds": round(time.monotonic() - started, 1)}
    (folder / "index.html").write_text(report.page(results), encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(_without_pictures(results), indent=1) + "\n", encoding="utf-8")
    return results


def _without_pictures(results: dict[str, Any]) -> dict[str, Any]:
    """Leave the pixels out: they are in the page, and can be made again from the seed."""
    return {key: {k: v for k, v in value.items() if k != "pictures"} for key, value in results.items()}
