"""unshift: undo the pose of an input before any frozen model sees it, exactly.

restorer = unshift.load("mnist")
model = torch.nn.Sequential(restorer, classifier)
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unshift.exact import quantise
    from unshift.exporting import export
    from unshift.files import load
    from unshift.network import ShiftEstimator
    from unshift.pose_network import PoseEstimator
    from unshift.restorer import Chain, Estimate, Restorer
    from unshift.shifts import apply, undo
    from unshift.testing import verify
    from unshift.training.fitting import fit

__version__ = "1.0.0"

__all__ = [
    "Chain",
    "Estimate",
    "PoseEstimator",
    "Restorer",
    "ShiftEstimator",
    "apply",
    "export",
    "fit",
    "load",
    "quantise",
    "undo",
    "verify",
]

_HOMES = {
    "Chain": "restorer",
    "Estimate": "restorer",
    "PoseEstimator": "pose_network",
    "Restorer": "restorer",
    "ShiftEstimator": "network",
    "apply": "shifts",
    "export": "exporting",
    "fit": "training",
    "load": "files",
    "quantise": "exact",
    "undo": "shifts",
    "verify": "testing",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `unshift --help` does not wait for PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"unshift.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]


_MOVED = {
    "estimator": "unshift.network",
    "recipes": "unshift.training.recipes",
    "training_images": "unshift.training.images",
    "weights": "unshift.files",
}
"""Documented modules of 0.2 and their new names."""


class _Moved(ModuleType):
    """A module under its former name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        home = _MOVED[self.__name__.removeprefix("unshift.")]
        warnings.warn(f"{self.__name__} is now {home}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(home), name)


for _name in _MOVED:
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _Moved(f"{__name__}.{_name}")
