"""Coordinates: where a pose is a shift. One interface, and a line in ``KINDS`` for each kind of pose."""

from __future__ import annotations

import warnings
from typing import Any

from unshift.coordinates.angles import Angles
from unshift.coordinates.centre import Centre
from unshift.coordinates.chained import Chained, merge_poses
from unshift.coordinates.groups import GROUPS
from unshift.coordinates.interface import Coordinates, Labels, Pose, rows
from unshift.coordinates.polar import Polar
from unshift.coordinates.poses import Poses
from unshift.coordinates.ring import Ring
from unshift.coordinates.rotation import rotate
from unshift.coordinates.shifts import Padded, Scene, Shifts, draw_shifts
from unshift.coordinates.turns import Turns

__all__ = ["GROUPS", "KINDS", "Angles", "Centre", "Chained", "Coordinates", "Labels", "Padded", "Polar",
           "Pose", "Poses", "Ring", "Scene", "Shifts", "Turns", "draw_shifts", "from_description",
           "merge_poses", "rotate", "rows"]  # fmt: skip

KINDS: dict[str, type[Coordinates]] = {
    "shifts": Shifts,
    "padded": Padded,
    "scene": Scene,
    "ring": Ring,
    "turns": Turns,
    "poses": Poses,
    "angles": Angles,
    "centre": Centre,
    "polar": Polar,
}
"""The kinds of coordinates, by their name in a weights file."""


def from_description(description: dict[str, Any], pad: int | None = None) -> Coordinates:
    """Rebuild coordinates from the result of :meth:`Coordinates.describe`, with another margin if ``pad`` is given."""
    arguments = dict(description)
    kind = arguments.pop("kind")
    if kind == "canvas":  # files of 0.1 and 0.2
        coordinates = _canvas(**arguments)
        if pad is None:
            return coordinates
        arguments = coordinates.describe()
        kind = arguments.pop("kind")
    if kind not in KINDS:
        raise ValueError(f"no coordinates of kind {kind!r}; there are {', '.join(KINDS)}")
    if pad is not None:
        if kind not in ("shifts", "padded"):
            raise ValueError(f"pad is for circular shifts along all axes; {kind} coordinates have no margin")
        return Padded(pad, arguments.get("value", 0.0)) if pad else Shifts()
    return KINDS[kind](**arguments)


def _canvas(pad: int = 0, value: float = 0.0, window: Any = None) -> Coordinates:
    """Return the kind of coordinates that stands for the former ``Canvas(pad, value, window)``."""
    if window is not None:
        return Scene(window, value)
    return Padded(pad, value) if pad else Shifts()


def __getattr__(name: str) -> Any:
    if name != "Canvas":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("Canvas is now Shifts(), Padded(pad, value) or Scene(window)", DeprecationWarning, stacklevel=2)
    return _canvas
