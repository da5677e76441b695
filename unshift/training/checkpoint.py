"""Checkpoints of a training run: one safetensors file, replaced as a whole and read without running code."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from unshift.files import write_atomically

KEY = "unshift-checkpoint"  # the key of the header in the file's metadata


class Checkpoint:
    """Saves and restores a run at ``path``; ``settings`` must agree between the two."""

    def __init__(self, path: str | Path, settings: dict[str, Any], every_seconds: float = 10.0) -> None:
        self.path, self.settings, self.every_seconds = Path(path), settings, every_seconds
        self._last = time.monotonic()

    def save_sometimes(self, run: Any) -> None:
        """Save if the last save was at least ``every_seconds`` ago."""
        if time.monotonic() - self._last >= self.every_seconds:
            self.save(run)

    def save(self, run: Any) -> None:
        """Write the state of ``run``. A kill at any moment leaves the old file or the new one."""
        tensors: dict[str, Tensor] = {}
        header = json.dumps({"settings": self.settings, "run": _take_tensors(run.state_dict(), tensors)})
        write_atomically(self.path, to_bytes(tensors, {KEY: header}))
        self._last = time.monotonic()

    def read(self) -> Any:
        """Return the state in the file, or None without a file."""
        if not self.path.exists():
            return None
        try:
            with safe_open(str(self.path), framework="pt") as file:
                header = json.loads(file.metadata()[KEY])
                settings, state = header["settings"], _put_tensors(header["run"], file)
        except Exception as error:  # a damaged file raises many kinds
            raise self._unreadable(error) from error
        check_identity(self.path, settings, self.settings)
        return state

    def load(self, run: Any, state: Any) -> None:
        """Load a state that was read, if any, into ``run``. Raise a ``ValueError`` if it does not fit."""
        try:
            if state is not None:
                run.load_state_dict(state)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ValueError:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        return ValueError(f"{self.path}: not a readable checkpoint ({first}); delete it to start over")


def check_identity(path: Path, stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise a ``ValueError`` that names the settings in which a file differs from the run that would resume from it."""
    wanted = json.loads(json.dumps(wanted))
    if different := sorted(k for k in {*stored, *wanted} if stored.get(k) != wanted.get(k)):
        raise ValueError(
            f"{path}: a checkpoint of another run (other settings: {', '.join(different)}); "
            "give the same settings, or delete it to start over"
        )


def _take_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return nested ``value`` as plain JSON data. Replace each tensor by a name, and add it to ``tensors``."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(value, dict):  # pairs, because the keys of an optimizer are numbers
        return {"pairs": [[key, _take_tensors(each, tensors)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        return [_take_tensors(each, tensors) for each in value]
    return value


def _put_tensors(value: Any, file: Any) -> Any:
    """Undo :func:`_take_tensors`. Tuples come back as lists."""
    if isinstance(value, dict):
        if "tensor" in value:
            return file.get_tensor(value["tensor"])
        return {key: _put_tensors(each, file) for key, each in value["pairs"]}
    return [_put_tensors(each, file) for each in value] if isinstance(value, list) else value
