"""Where a result came from: the versions, threads and commit behind it."""

from __future__ import annotations

import platform
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import torch

import unshift

__all__ = ["commit", "provenance"]


def provenance() -> dict[str, Any]:
    """Return the versions, threads and commit behind a result."""
    return {
        "unshift": unshift.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "commit": commit(Path(unshift.__file__).resolve().parents[1]),
    }


def commit(folder: Path) -> str | None:
    """Return the commit of a checkout of this project.

    Args:
        folder: What the package lies in: a checkout, or an installation.

    Returns:
        Its commit, with "-dirty" if files were changed. ``None`` where ``folder`` is not the top of this project's own
        repository: an installation inside somebody else's repository must not record their commit.
    """
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        if project["name"] != "unshift" or not (folder / ".git").exists():
            return None
        command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError):
        return None  # no checkout, or no git here
    return done.stdout.strip()
