"""The paper's tables and figures as records of what is claimed and measured; ``unshift reproduce`` runs them."""

from __future__ import annotations

from unshift.experiments.catalogue import experiments, find
from unshift.experiments.running import reproduce

__all__ = ["COST_NOTE", "experiments", "find", "reproduce"]

COST_NOTE = (
    "Times are for two CPU cores. On CIFAR-10 the classifiers come on top, once: 15 to 40 minutes of training each "
    "(python -m unshift.experiments.classifiers NAME), unless they are in the data folder already."
)
