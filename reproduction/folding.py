"""Light curves of variable stars, folded with their period: rings of bins, with channels for the number observed."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["BANDS", "BINS", "Array", "Star", "fold", "read_stars", "sampled"]

Array = npt.NDArray[Any]

BANDS = ("g", "r", "i")
BINS = 64
WIDTH = 0.03
"""Width in cycles of the Gaussian that spreads an observation over bins."""
PRIOR = 0.3
"""Weight of the star's mean in each bin, in observations."""
AMPLITUDE = {"g": 1.2, "r": 0.85, "i": 0.68}
"""Amplitude of a typical RR Lyrae star in magnitudes, which scales the bands to each other."""


@dataclass(frozen=True)
class Star:
    """A variable star: its period, an epoch of maximum, and its observations (time, magnitude) by band."""

    name: str
    period: float
    epoch: float
    observed: Mapping[str, Array]


def read_stars(path: Path) -> list[Star]:
    """Read stars from a gzipped CSV file with columns star, period, epoch_r, band, time and mag."""
    stars: dict[str, tuple[float, float, dict[str, list[tuple[float, float]]]]] = {}
    with gzip.open(path, "rt", encoding="ascii") as file:
        for row in csv.DictReader(file):
            star = stars.setdefault(row["star"], (float(row["period"]), float(row["epoch_r"]), {b: [] for b in BANDS}))
            star[2][row["band"]].append((float(row["time"]), float(row["mag"])))
    return [
        Star(name, period, epoch, {band: np.array(rows) for band, rows in bands.items()})
        for name, (period, epoch, bands) in stars.items()
    ]


def sampled(star: Star, count: int | None, chance: np.random.Generator) -> Star:
    """Return the star with ``count`` of its observations in each band, chosen at random; None for all."""
    if count is None:
        return star
    few = {
        band: rows if len(rows) <= count else rows[chance.choice(len(rows), count, replace=False)]
        for band, rows in star.observed.items()
    }
    return Star(star.name, star.period, star.epoch, few)


def fold(star: Star, ahead: float = 0.0) -> Tensor:
    """Fold a light curve into bins that start ``ahead`` cycles before its maximum: float32 ``(8, bins)``.

    One channel for each band holds the brightness relative to the mean, and one that of all bands together. Four more
    hold how much was observed there: 0 in an empty bin, towards 1 in a full one.
    """
    bins = np.arange(BINS) / BINS
    bright, seen = np.zeros((len(BANDS), BINS)), np.zeros((len(BANDS), BINS))
    for at, band in enumerate(BANDS):
        time, magnitude = star.observed[band].T
        phase = (time - star.epoch) / star.period + ahead
        bell = np.exp(-0.5 * (((bins[:, None] - phase + 0.5) % 1 - 0.5) / WIDTH) ** 2)
        bright[at], seen[at] = bell @ (magnitude.mean() - magnitude), bell.sum(1)
    scaled = bright / np.array([[AMPLITUDE[band]] for band in BANDS])
    sums = np.concatenate([bright / AMPLITUDE["r"], scaled.sum(0, keepdims=True)])
    weights = np.concatenate([seen, seen.sum(0, keepdims=True)])
    return torch.from_numpy(np.concatenate([sums, weights]) / np.tile(weights + PRIOR, (2, 1))).float()
