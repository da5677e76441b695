"""The experiments, in the order of a report: each is a module here, and one line in the list below."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from unshift.experiments.record import Experiment

__all__ = ["MAIN", "MODULES", "experiments", "find"]

MODULES = [
    "translation_scopes",
    "every_shift",
    "restored_images",
    "four_classifiers",
    "augmentation",
    "volumes",
    "rotation",
    "poses",
    "scenes",
    "seam",
    "imagenet",
    "rivals",
    "genomes",
    "light_curves",
    "confidence",
    "moves",
    "unaligned",
]
"""Modules of this folder; each has one ``EXPERIMENT``."""
MAIN = ("table1", "fig1", "fig3")
"""What runs unless told otherwise, on the embedded MNIST alone and with one seed: the rest takes longer."""


@cache
def _load(module: str) -> Experiment:
    record: Experiment = import_module(f"unshift.experiments.{module}").EXPERIMENT
    return record


def experiments() -> list[Experiment]:
    """Return all records."""
    return [_load(module) for module in MODULES]


def find(name: str) -> Experiment:
    """Return an experiment by its name ("rotation"), or by the paper's item ("fig6" for the same).

    Raises:
        ValueError: If there is no such experiment. The message lists those there are.
    """
    for experiment in experiments():
        if name in (experiment.name, experiment.alias):
            return experiment
    known = ", ".join(experiment.name for experiment in experiments())
    raise ValueError(f"no experiment named {name!r}; there are {known}")
