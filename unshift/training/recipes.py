"""Recipes: the training settings of each preset, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from unshift.network import PRESETS, ShiftEstimator
from unshift.pose_network import POSE_PRESETS, PoseEstimator

__all__ = ["RECIPES", "Recipe", "complete", "preset_name"]


class Recipe(TypedDict, total=False):
    """Training settings. A missing entry, or None, stands for the preset's."""

    epochs: int | None
    """Passes over the images."""
    batch_size: int | None
    """Images per step."""
    learning_rate: float | None
    """Highest rate of the one-cycle schedule."""
    average: float | None
    """Use an exponential moving average of the weights, with this decay per step, such as 0.999."""
    optimizer: Literal["adam", "muon"] | None
    """The optimiser."""
    patience: int | None
    """Stop after this many epochs without a better validation loss. Only the second half of the epochs counts, because
    the loss varies while the learning rate is high. The weights of the best epoch are used."""
    standardise: bool | None
    """Train on pixels of mean 0 and standard deviation 1, and fold both into the first filter at the end. Adam learns
    photos faster this way. The first filter must have a bias."""


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
    "start": {"epochs": 10, "learning_rate": 0.002, "batch_size": 32, "optimizer": "muon"},
    "look": {"epochs": 6, "learning_rate": 0.005, "batch_size": 64, "average": 0.998, "optimizer": "muon"},
    "evidence": {"epochs": 6, "learning_rate": 0.005, "batch_size": 64, "average": 0.998, "optimizer": "muon"},
    "custom": {"epochs": 12, "learning_rate": 0.005},
}
"""The settings of each preset, tuned on held-out parts of the training sets of MNIST, CIFAR-10 and mitogenomes."""


def preset_name(preset: str | ShiftEstimator | PoseEstimator) -> str:
    """Return the name of a preset, or "custom" for a network. Raise a ``ValueError`` if there is no such preset."""
    name = preset if isinstance(preset, str) else "custom"
    if name not in RECIPES:
        raise ValueError(f"no preset {name!r}; there are {', '.join([*PRESETS, *POSE_PRESETS])}, or give a network")
    return name


def complete(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a preset's complete recipe with changes, after checks. None changes nothing."""
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
