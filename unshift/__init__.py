"""unshift: make any frozen image classifier ignore where the object is, exactly.

restorer = unshift.load("mnist")
model = torch.nn.Sequential(restorer, classifier)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unshift.estimator import ShiftEstimator
    from unshift.exact import quantise
    from unshift.exporting import export
    from unshift.restorer import Chain, Estimate, Restorer
    from unshift.shifts import apply, undo
    from unshift.testing import verify
    from unshift.training import fit
    from unshift.weights import load

__version__ = "0.2.0"

__all__ = [
    "Chain",
    "Estimate",
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
    "Restorer": "restorer",
    "ShiftEstimator": "estimator",
    "apply": "shifts",
    "export": "exporting",
    "fit": "training",
    "load": "weights",
    "quantise": "exact",
    "undo": "shifts",
    "verify": "testing",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for: `unshift --help` must not wait for PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"unshift.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
