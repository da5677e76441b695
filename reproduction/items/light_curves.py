"""Folded light curves.

Claim: A light curve is restored to begin at its maximum, with all its observations or a dozen.
Paper: images only.
Cost: 30 s.

RR Lyrae stars, folded with their period into rings of bins, in five parts: the stars of each part are restored by what
was learnt from the others. Baselines: the best fit of the other stars as templates, and the brightest observation.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import unshift
from reproduction.records import Options, Result
from reproduction.tables import Block, Row, Table
from unshift.data import root

Array = npt.NDArray[Any]
BANDS = ("g", "r", "i")
BINS = 64
WIDTH = 0.03
"""Width in cycles of the Gaussian that spreads an observation over bins."""
PRIOR = 0.3
"""Weight of the star's mean in each bin, in observations."""
AMPLITUDE = {"g": 1.2, "r": 0.85, "i": 0.68}
"""Amplitude of a typical RR Lyrae star in magnitudes, which scales the bands to each other."""

CASES = {"rr-lyrae": ("rr-lyrae",)}
FILE = "rr-lyrae-stripe82.csv.gz"
COUNTS = (None, 25, 12)
"""Observations per band; None for all."""
PARTS, COPIES, DRAWS, CLOSE = 5, 30, 5, 0.05
TUNED = slice(73, 201)
"""Stars, in shuffled order, on which the folding and the recipe were chosen: trained on, and never measured on."""
FEWEST, MOST = 9, 30
"""Observations per band of most training copies; a quarter of the copies have all."""


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


def measure(case: str, options: Options) -> Result:
    """Return the share of stars whose maximum is found, for each method and number of observations.

    A quick run takes random stars.
    """
    stars = _random_stars() if options.quick else read_stars(root() / FILE)
    copies, parts = (4, 2) if options.quick else (COPIES, PARTS)
    order = np.random.default_rng(0).permutation(len(stars))
    fresh = np.setdiff1d(order, order[TUNED])
    off: dict[str, dict[str, list[float]]] = {}
    for part in np.array_split(order, parts):
        held = [stars[at] for at in part if at in fresh]
        if not held:
            continue
        rest = [stars[at] for at in order if at not in set(part.tolist())]
        restorer, templates = _learn(rest, copies, options), np.stack([_template(star) for star in rest])
        methods: dict[str, Callable[[Star, float], float]] = {
            "unshift (dense, fitted)": lambda star, at, restorer=restorer: _restored(restorer, star, at),  # type: ignore[misc]
            "fit of templates": lambda star, at, templates=templates: _fitted(star, at, templates),  # type: ignore[misc]
            "brightest observation": _brightest,
        }
        for count in COUNTS:
            chance = np.random.default_rng(1)
            for _ in range(1 if count is None else DRAWS):
                shown = [sampled(star, count, chance) for star in held]
                ahead = chance.random(len(shown))
                for name, phase_of in methods.items():
                    phase = np.array([phase_of(star, at) for star, at in zip(shown, ahead.tolist(), strict=True)])
                    error = np.abs((phase - ahead + 0.5) % 1 - 0.5)
                    off.setdefault(name, {}).setdefault(str(count), []).extend(error.tolist())
    rates = {
        name: {count: float(np.mean(np.array(errors) <= CLOSE)) for count, errors in by.items()}
        for name, by in off.items()
    }
    sizes = {"stars": len(fresh), "tuned": len(order) - len(fresh), "parts": parts, "draws": DRAWS}
    return {**sizes, "rates": rates}


def _random_stars(count: int = 20) -> list[Star]:
    chance = np.random.default_rng(0)
    stars = []
    for n in range(count):
        time = chance.uniform(0, 3000, (len(BANDS), 40))
        magnitude = 16 + (time / 0.5 % 1)
        observed = {band: np.stack([time[at], magnitude[at]], 1) for at, band in enumerate(BANDS)}
        stars.append(Star(f"random {n}", 0.5, 0.0, observed))
    return stars


def _learn(stars: Sequence[Star], copies: int, options: Options) -> unshift.Restorer:
    """Fit a restorer on copies of stars with some of their observations, the maximum anywhere in the first bin."""
    chance = np.random.default_rng(0)
    curves = []
    for star in list(stars) * copies:
        count = None if chance.random() < 0.25 else int(chance.integers(FEWEST, MOST))
        curves.append(fold(sampled(star, count, chance), (chance.random() - 0.5) / BINS))
    recipe: dict[str, Any] = {"epochs": 1 if options.quick else 5, "batch_size": 64, "learning_rate": 0.003}
    return unshift.fit(torch.stack(curves), "dense", progress=False, drop_unusable=True, average=0.998, **recipe)


def _restored(restorer: unshift.Restorer, star: Star, ahead: float) -> float:
    return int(restorer.estimate(fold(star, ahead)).shift) / BINS


def _brightest(star: Star, ahead: float) -> float:
    """Return the phase of the brightest observation in r."""
    time, magnitude = star.observed["r"].T
    return float((time[magnitude.argmin()] - star.epoch) / star.period + ahead) % 1


def _template(star: Star) -> Array:
    """Return a star's light curve from its maximum, relative to its mean, ``(band, bins)``."""
    curve = -fold(star)[: len(BANDS)].numpy()
    template: Array = curve - curve.mean(1, keepdims=True)
    return template


def _fitted(star: Star, ahead: float, templates: Array) -> float:
    """Return the phase of the best fit of any template, with a free amplitude, and a free mean for each band."""
    weight, total = np.zeros((2, len(BANDS), BINS))
    for at, band in enumerate(BANDS):
        time, magnitude = star.observed[band].T
        place = np.floor(((time - star.epoch) / star.period + ahead) % 1 * BINS + 0.5).astype(int) % BINS
        weight[at] = np.bincount(place, minlength=BINS)
        total[at] = np.bincount(place, magnitude - magnitude.mean(), BINS)

    def correlate(values: Array, shapes: Array) -> Array:
        product: Array = np.fft.irfft(np.fft.rfft(values)[None] * np.conj(np.fft.rfft(shapes)), BINS)
        return product

    alike = correlate(total, templates).sum(1)
    mean = correlate(weight, templates) ** 2 / weight.sum(1)[None, :, None]
    square = (correlate(weight, templates**2) - mean).sum(1)
    amplitude = np.clip(alike / np.maximum(square, 1e-9), 0.7, 1.4)
    gain = 2 * amplitude * alike - amplitude**2 * square
    return float(np.unravel_index(gain.argmax(), gain.shape)[1]) / BINS


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table."""
    result = results[case]
    rows = []
    for name, rates in result["rates"].items():
        style: Any = "restored" if name.startswith("unshift") else "bare"
        rows.append(Row(name, [rates[str(count)] for count in COUNTS], style=style, form="{:.1%}"))
    note = (
        f"Share of stars whose maximum is found to within {CLOSE} cycles of the published epoch, n = {result['stars']} "
        f"RR Lyrae stars, each from a random epoch, seed 1; with few observations {result['draws']} draws each. "
        f"{result['parts']} parts by star, each restored by what was learnt from the others, which are also the "
        f"templates. The {result['tuned']} stars on which folding and recipe were chosen are not counted. The "
        "published epochs come from a fit of templates to all observations."
    )
    columns = ["all observations", *(f"{count} a band" for count in COUNTS[1:])]
    return [Table("", columns, rows, [note])]
