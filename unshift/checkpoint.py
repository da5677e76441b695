"""Checkpoints of a training run: one safetensors file, replaced whole, read without running code."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from unshift.weights import write_atomically

__all__ = ["Checkpoint"]

_KEY = "unshift-checkpoint"


class Run(Protocol):
    """What a training run has to show to be saved; see ``unshift.training``."""

    schedule: torch.optim.lr_scheduler.OneCycleLR
    best: dict[str, torch.Tensor]
    epoch: int
    step: int
    stale: int
    loss_sum: float
    best_loss: float
    history: list[dict[str, float]]

    @property
    def estimator(self) -> torch.nn.Module:
        """The network in training."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Its optimiser."""


COUNTERS = ("epoch", "step", "stale", "loss_sum", "best_loss", "history")


class Checkpoint:
    """Saves and restores a run at ``path``; ``settings`` must agree between the two."""

    def __init__(self, path: str | Path, settings: dict[str, Any], every_seconds: float = 10.0) -> None:
        self.path = Path(path)
        self.settings = json.loads(json.dumps(settings))
        self.every_seconds = every_seconds
        self._last = time.monotonic()

    def save_sometimes(self, run: Run) -> None:
        """Save if the last time is long enough ago."""
        if time.monotonic() - self._last >= self.every_seconds:
            self.save(run)

    def save(self, run: Run) -> None:
        """Write the whole state of ``run``: weights, best weights, optimiser, schedule, counters."""
        tensors = {f"weights.{k}": v for k, v in run.estimator.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in run.best.items()}
        optimizer = run.optimizer.state_dict()
        for index, state in optimizer["state"].items():
            tensors |= {f"optimizer.{index}.{k}": v for k, v in state.items()}
        schedule = {k: v for k, v in run.schedule.state_dict().items() if not callable(v)}
        header = {
            "settings": self.settings,
            "groups": optimizer["param_groups"],
            "schedule": schedule,
            "counters": {name: getattr(run, name) for name in COUNTERS},
        }
        # JSON keeps a float's every bit, and Infinity (no epoch yet) as Python's json spells it.
        flat = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
        write_atomically(self.path, to_bytes(flat, {_KEY: json.dumps(header)}))
        self._last = time.monotonic()

    def restore(self, run: Run) -> None:
        """Put ``run`` back where the file left it; a missing file means a fresh start."""
        if not self.path.exists():
            return
        try:
            with safe_open(str(self.path), framework="pt") as file:
                text = (file.metadata() or {}).get(_KEY, "{}")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            header = json.loads(text)
            settings = header["settings"]
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{self.path}: not a readable checkpoint ({error}); delete it to start anew") from error
        if settings != self.settings:
            other = sorted(k for k in {*settings, *self.settings} if settings.get(k) != self.settings.get(k))
            raise ValueError(
                f"{self.path}: a checkpoint of another run ({', '.join(other)} differ); "
                "give the same settings, or delete it to start anew"
            )
        try:
            self._fill(run, header, tensors)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            first = str(error).splitlines()[0]
            raise ValueError(f"{self.path}: not a readable checkpoint ({first}); delete it to start anew") from error

    @staticmethod
    def _fill(run: Run, header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        run.estimator.load_state_dict(_under(tensors, "weights."))
        best = _under(tensors, "best.")
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in _under(tensors, "optimizer.").items():
            index, key = name.split(".", 1)
            state.setdefault(int(index), {})[key] = value
        # A run is saved after a step at the least; without all of its moments it would go on to another result.
        if len(state) != len(list(run.estimator.parameters())) or set(best) != set(run.best):
            raise ValueError("a part of its state is missing")
        run.best = best
        run.optimizer.load_state_dict({"state": state, "param_groups": header["groups"]})
        run.schedule.load_state_dict(header["schedule"])
        for name in COUNTERS:
            setattr(run, name, header["counters"][name])

    def remove(self) -> None:
        """Delete the file: the run is finished."""
        self.path.unlink(missing_ok=True)


def _under(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
