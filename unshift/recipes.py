"""Recipes: how each preset is trained, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from unshift.estimator import PRESETS, ShiftEstimator

__all__ = ["RECIPES", "Recipe", "complete", "preset_name"]


class Recipe(TypedDict, total=False):
    """How weights are learnt. What is left out, or None, is the preset's."""

    epochs: int | None
    """Passes over the images."""
    batch_size: int | None
    """Images a step."""
    learning_rate: float | None
    """Peak of the one-cycle schedule."""
    average: float | None
    """Keep a running average of the weights that forgets by this factor a step (0.999), and use that."""
    optimizer: Literal["adam", "muon"] | None
    """What takes the steps."""
    patience: int | None
    """Stop when the loss on the images held out has not improved for this many epochs. The best epoch is kept."""
    standardise: bool | None
    """Train on pixels of mean 0 and deviation 1, and fold both into the first filter at the end: photos, unlike
    digits, are far from that, and Adam is slow to get round it. The first filter must have a bias."""


DEFAULTS: Recipe = {
    "batch_size": 256,
    "average": None,
    "optimizer": "adam",
    "patience": 5,
    "standardise": False,
}
RECIPES: dict[str, Recipe] = {
    "paper": {"epochs": 12, "learning_rate": 0.01},
    "dense": {"epochs": 10, "learning_rate": 0.003},
    "lines": {"epochs": 8, "learning_rate": 0.003, "batch_size": 64, "average": 0.998},
    "seam": {"epochs": 30, "learning_rate": 0.01, "batch_size": 64, "standardise": True, "optimizer": "muon"},
    "sequence": {"epochs": 12, "learning_rate": 0.003, "batch_size": 4},
    "scene": {"epochs": 8, "learning_rate": 0.01, "batch_size": 32, "optimizer": "muon", "average": 0.998},
    "custom": {"epochs": 12, "learning_rate": 0.005},
}
"""What each preset has of its own, tuned on held-out parts of the training sets of MNIST, CIFAR-10 and mitogenomes."""


def preset_name(preset: str | ShiftEstimator) -> str:
    """Return the name of a preset, or of the recipe for a network of the caller's own.

    Raises:
        ValueError: If there is no such preset. The message lists those there are.
    """
    name = preset if isinstance(preset, str) else "custom"
    if name not in RECIPES:
        raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)}, or give a ShiftEstimator")
    return name


def complete(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a preset's recipe with some changes, checked: what would fail after an hour of training fails here.

    Args:
        name: The preset, or ``"custom"``.
        changes: What to do in another way than the preset does. None changes nothing.

    Returns:
        All entries of a recipe.

    Raises:
        ValueError: If a number makes no sense.
        TypeError: If a recipe has no such entry.
    """
    if unknown := sorted(changes.keys() - Recipe.__annotations__.keys()):
        raise TypeError(f"fit() got an unexpected keyword argument {unknown[0]!r}")
    given = {key: value for key, value in changes.items() if value is not None}
    recipe: dict[str, Any] = {**DEFAULTS, **RECIPES[name], **given}
    numbers = [recipe[key] for key in ("epochs", "batch_size", "patience", "learning_rate")]
    if not all(number > 0 for number in numbers):
        raise ValueError(
            "epochs, batch size, patience and learning rate must be positive, "
            f"got {', '.join(map(str, numbers[:3]))} and {numbers[3]}"
        )
    if recipe["average"] is not None and not 0 < recipe["average"] < 1:
        raise ValueError(f"average must lie between 0 and 1, such as 0.999, got {recipe['average']}")
    if recipe["optimizer"] not in ("adam", "muon"):
        raise ValueError(f"optimizer must be adam or muon, got {recipe['optimizer']!r}")
    return recipe
