"""Checkpoints of a training run: one safetensors file, replaced whole, read without running code."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from unshift.weights import write_atomically

__all__ = ["Checkpoint", "State"]

_KEY = "unshift-checkpoint"


@dataclass
class State:
    """What a run needs to go on: named tensors, and counters that JSON can hold."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    counters: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, network: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any, counters: dict[str, Any]) -> State:
        """Return the state of a network in training, with the run's own counters.

        Args:
            network: Its weights.
            optimizer: Its moments and settings.
            schedule: Its learning-rate schedule.
            counters: Epoch, step and whatever else the run counts.
        """
        tensors = {f"weights.{k}": v for k, v in network.state_dict().items()}
        moments = optimizer.state_dict()
        for index, values in moments["state"].items():
            tensors |= {f"optimizer.{index}.{k}": v for k, v in values.items()}
        rate = {k: v for k, v in schedule.state_dict().items() if not callable(v)}
        return cls(tensors, {**counters, "groups": moments["param_groups"], "schedule": rate})

    def under(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names start with ``prefix``, without it."""
        return {name.removeprefix(prefix): v for name, v in self.tensors.items() if name.startswith(prefix)}

    def into(self, network: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
        """Put a network in training back where :meth:`of` saw it.

        Raises:
            ValueError: If some of the optimiser's moments are missing: the run would go on to another result.
        """
        network.load_state_dict(self.under("weights."))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in self.under("optimizer.").items():
            index, key = name.split(".", 1)
            moments.setdefault(int(index), {})[key] = value
        if len(moments) != len(list(network.parameters())):  # a run is first saved after a step
            raise ValueError("a part of its state is missing")
        optimizer.load_state_dict({"state": moments, "param_groups": self.counters["groups"]})
        schedule.load_state_dict(self.counters["schedule"])


class Run(Protocol):
    """What a training run has to offer to be saved."""

    def state(self) -> State:
        """Return all that the run needs to go on."""

    def resume(self, state: State) -> None:
        """Go back to where ``state`` was taken."""


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
        """Write the whole state of ``run``."""
        state = run.state()
        # JSON keeps a float's every bit, and Infinity (no epoch yet) as Python's json spells it.
        header = json.dumps({"settings": self.settings, "counters": state.counters})
        flat = {k: v.detach().cpu().contiguous() for k, v in state.tensors.items()}
        write_atomically(self.path, to_bytes(flat, {_KEY: header}))
        self._last = time.monotonic()

    def restore(self, run: Run) -> None:
        """Put ``run`` back where the file left it; a missing file means a fresh start.

        Raises:
            ValueError: If the file is damaged, incomplete, or of a run with other settings.
        """
        if not self.path.exists():
            return
        try:
            with safe_open(str(self.path), framework="pt") as file:
                text = (file.metadata() or {}).get(_KEY, "{}")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            header = json.loads(text)
            settings = header["settings"]
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{self.path}: not a readable checkpoint ({error}); delete it to start over") from error
        if settings != self.settings:
            other = sorted(k for k in {*settings, *self.settings} if settings.get(k) != self.settings.get(k))
            raise ValueError(
                f"{self.path}: a checkpoint of another run (other settings: {', '.join(other)}); "
                "give the same settings, or delete it to start over"
            )
        try:
            run.resume(State(tensors, header["counters"]))
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            first = str(error).splitlines()[0]
            raise ValueError(f"{self.path}: not a readable checkpoint ({first}); delete it to start over") from error

    def remove(self) -> None:
        """Delete the file: the run is finished."""
        self.path.unlink(missing_ok=True)
