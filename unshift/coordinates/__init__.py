"""Coordinates: where a pose is a shift. One small protocol, one module for each kind of move.

A new kind is one module that says what :class:`Coordinates` asks for, and one line in ``MODULES``: CONTRIBUTING.md
shows how.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from unshift.coordinates.canvas import Canvas, all_shifts, draw_shifts, ravel, unravel
from unshift.coordinates.centre import Centre
from unshift.coordinates.chained import Chained, merged
from unshift.coordinates.polar import Polar
from unshift.coordinates.protocol import Coordinates, Pose, Posed, rows
from unshift.coordinates.ring import Ring
from unshift.coordinates.rotation import rotate
from unshift.coordinates.turns import GROUPS, Turns

__all__ = [
    "GROUPS",
    "KINDS",
    "Canvas",
    "Centre",
    "Chained",
    "Coordinates",
    "Polar",
    "Pose",
    "Posed",
    "Ring",
    "Turns",
    "all_shifts",
    "draw_shifts",
    "from_description",
    "merged",
    "ravel",
    "rotate",
    "rows",
    "unravel",
]

MODULES = [
    "canvas",
    "ring",
    "turns",
    "centre",
    "polar",
]
"""Modules of this folder; each has one ``KIND``."""
KINDS: dict[str, Callable[..., Any]] = {
    module: import_module(f"unshift.coordinates.{module}").KIND for module in MODULES
}
"""The kinds of coordinates, by the name they have in a weights file: that of their module."""


def from_description(description: dict[str, Any], pad: int | None = None) -> Any:
    """Rebuild coordinates from what :meth:`Coordinates.describe` returned.

    Args:
        description: The kind, and its arguments.
        pad: Another margin than was described, where the kind has one.

    Raises:
        ValueError: If there is no such kind, or it has no margin.
    """
    arguments = dict(description)
    kind = arguments.pop("kind")
    if kind not in KINDS:
        raise ValueError(f"no coordinates of kind {kind!r}; there are {', '.join(KINDS)}")
    if pad is not None:
        if "pad" not in arguments:
            raise ValueError(f"pad is for circular shifts along all axes; {kind} coordinates have no margin")
        arguments["pad"] = pad
    return KINDS[kind](**arguments)
