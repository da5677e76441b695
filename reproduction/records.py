"""Records: the one function that writes measurements as JSON, and the one that reads them.

``results/NAME.json`` holds, for each case of an item, its ``result`` (plain data, each number with its n) and its
``run``: the command, options, versions, machine, commit and seconds that gave it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unshift
from unshift.files import write_atomically

__all__ = ["RESULTS", "Options", "Result", "commit", "is_ancestor", "percent", "read", "refuse_dirty", "write"]

Result = dict[str, Any]
"""One measurement, as JSON holds it. Pixels go under the key ``pictures``, which is not stored."""

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Options:
    """The options of a run.

    With ``quick``, an item measures a few images, or noise where the data are absent: a check that everything runs.
    """

    quick: bool = False
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    progress: bool = True
    methods: tuple[str, ...] = ()
    """Further rows of ``rivals``: functions, as ``module:function``."""


def percent(condition: torch.Tensor) -> float:
    """Return the share of true entries in percent."""
    return 100 * float(condition.double().mean())


def _git(*words: str, root: Path = ROOT) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def commit(root: Path = ROOT) -> tuple[str | None, bool]:
    """Return the commit of a checkout, and whether code was changed since. Outside of one: None and False.

    Results and pages are written by runs, so changes of these do not count.
    """
    try:
        if Path(_git("rev-parse", "--show-toplevel", root=root)).resolve() != root.resolve():
            return None, False
        code = ("unshift", "reproduction", "benchmarks", ":!*/results*")
        changed = _git("status", "--porcelain", "--", *code, root=root)
        return _git("rev-parse", "--short", "HEAD", root=root), bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None, False


def is_ancestor(name: str | None) -> bool:
    """Return whether a commit is part of the history of this checkout, or has a name where the history is not here."""
    if name is None or commit()[0] is None or _git("rev-parse", "--is-shallow-repository") == "true":
        return name is not None
    try:
        _git("merge-base", "--is-ancestor", name, "HEAD")
    except subprocess.CalledProcessError:
        return False
    return True


def refuse_dirty(allowed: bool) -> dict[str, Any]:
    """Return the commit for a record.

    Raises:
        ValueError: If code was changed since, unless this is ``allowed``: the record then says so.
    """
    name, dirty = commit()
    if dirty and not allowed:
        raise ValueError(
            "the checkout has uncommitted changes, so no commit gives these numbers: commit, or add --dirty"
        )
    return {"commit": name, "dirty": dirty}


def write(
    item: str,
    case: str,
    result: Result,
    *,
    command: str,
    options: Options,
    seconds: float,
    folder: Path = RESULTS,
    dirty: bool = False,
) -> None:
    """Write one measurement to ``folder/ITEM.json``; other cases in the file stay.

    Args:
        item: The item's name.
        case: The case's name.
        result: The measurement.
        command: The command line of the run.
        options: The options of the run, with its seeds.
        seconds: Duration of the measurement.
        folder: Where records are.
        dirty: Whether to write although code was changed since the last commit.

    Raises:
        ValueError: If code was changed, and ``dirty`` is false.
    """
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    run = {
        "command": command,
        "options": asdict(options),
        **refuse_dirty(dirty),
        "versions": {"unshift": unshift.__version__, "torch": torch.__version__, **versions},
        "machine": {"system": platform.platform(), "cpu": platform.machine(), "cores": os.cpu_count()},
        "threads": torch.get_num_threads(),
        "seconds": round(seconds, 1),
    }
    cases = {**read(item, folder), case: {"result": _without_pictures(result), "run": run}}
    text = json.dumps({"item": item, "cases": cases}, indent=1, allow_nan=False) + "\n"
    write_atomically(folder / f"{item}.json", text.encode())


def read(item: str, folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the records of an item, ``{"result": ..., "run": ...}`` by case; empty if it was never measured."""
    path = folder / f"{item}.json"
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["cases"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a record of an item; choose another --out") from error


def _without_pictures(result: Result) -> Result:
    return {
        key: _without_pictures(value) if isinstance(value, dict) else value
        for key, value in result.items()
        if key != "pictures"
    }
