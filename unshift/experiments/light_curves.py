"""Folded light curves: RR Lyrae stars begin at their maximum, however few observations there are.

Measured by star: each of five parts of the stars is restored by what was learnt from the other four. Beside it, a fit
of the other stars as templates, and the brightest observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import unshift
from unshift.data import DataError, root
from unshift.experiments import plots
from unshift.experiments.folding import BANDS, BINS, Array, Star, fold, read_stars, sampled
from unshift.experiments.record import Block, Case, Experiment, Options, Picture, Result, Results, Row, Table

FILE = "rr-lyrae-stripe82.csv.gz"
COUNTS = (None, 25, 12)
"""Observations a band; None: all there are."""
PARTS, COPIES, DRAWS, CLOSE = 5, 30, 5, 0.05
TUNED = slice(73, 201)
"""Of the stars in their shuffled order, those by which the folding and the recipe were chosen: learnt from, and never
measured on."""
FEWEST, MOST = 9, 30
"""Observations a band of most copies that are learnt from; a quarter of them have all."""


@dataclass(frozen=True)
class _Loaded:
    stars: list[Star]
    copies: int
    parts: int
    progress: bool


def _load(options: Options) -> _Loaded:
    path = root() / FILE
    if not path.is_file():
        raise DataError(
            f"{path} is missing: RR Lyrae stars of SDSS Stripe 82 (Sesar et al. 2010), as docs/sequences.md says"
        )
    stars = read_stars(path)
    return _Loaded(stars[:40], 4, 2, False) if options.quick else _Loaded(stars, COPIES, PARTS, options.progress)


def _learn(stars: Sequence[Star], copies: int) -> unshift.Restorer:
    """Fit a restorer on copies of stars, each with some of its observations, its maximum somewhere in the first bin."""
    chance = np.random.default_rng(0)
    curves = []
    for star in list(stars) * copies:
        count = None if chance.random() < 0.25 else int(chance.integers(FEWEST, MOST))
        curves.append(fold(sampled(star, count, chance), (chance.random() - 0.5) / BINS))
    recipe: dict[str, Any] = {"epochs": 5, "batch_size": 64, "learning_rate": 0.003, "average": 0.998}
    return unshift.fit(torch.stack(curves), "dense", progress=False, drop_unusable=True, **recipe)


def _measure(loaded: _Loaded) -> Result:
    order = np.random.default_rng(0).permutation(len(loaded.stars))
    off: dict[str, dict[str, list[float]]] = {}
    pictures: Result = {}
    fresh = np.setdiff1d(order, order[TUNED])
    for part in np.array_split(order, loaded.parts):
        held = [loaded.stars[at] for at in part if at in fresh]
        if not held:
            continue
        rest = [loaded.stars[at] for at in order if at not in set(part.tolist())]
        restorer, templates = _learn(rest, loaded.copies), np.stack([_template(star) for star in rest])
        for count in COUNTS:
            chance = np.random.default_rng(1)
            for _ in range(1 if count is None else DRAWS):
                shown = [sampled(star, count, chance) for star in held]
                ahead = chance.random(len(shown))
                found = {
                    "unshift (dense, fitted)": _restored(restorer, shown, ahead),
                    "fit of templates": np.array([_fitted(s, a, templates) for s, a in zip(shown, ahead, strict=True)]),
                    "brightest observation": np.array([_brightest(s, a) for s, a in zip(shown, ahead, strict=True)]),
                }
                for name, phase in found.items():
                    error = np.abs((phase - ahead + 0.5) % 1 - 0.5)
                    off.setdefault(name, {}).setdefault(str(count), []).extend(error.tolist())
                pictures = pictures or _pictured(shown[0], float(ahead[0]), restorer)
    rates = {
        name: {count: float(np.mean(np.array(errors) <= CLOSE)) for count, errors in by.items()}
        for name, by in off.items()
    }
    return {
        "stars": len(fresh),
        "tuned": len(order) - len(fresh),
        "parts": loaded.parts,
        "draws": DRAWS,
        "rates": rates,
        "curve": pictures,
    }


def _restored(restorer: unshift.Restorer, stars: Sequence[Star], ahead: Array) -> Array:
    curves = torch.stack([fold(star, float(at)) for star, at in zip(stars, ahead, strict=True)])
    found: Array = restorer.estimate(curves).shift[:, 0].numpy() / BINS
    return found


def _brightest(star: Star, ahead: float) -> float:
    """Return the phase of the brightest observation in r."""
    time, magnitude = star.observed["r"].T
    return float((time[magnitude.argmin()] - star.epoch) / star.period + ahead) % 1


def _template(star: Star) -> Array:
    """Return a star's own curve, upright, about its mean, ``(band, bins)``."""
    curve = -fold(star)[: len(BANDS)].numpy()
    found: Array = curve - curve.mean(1, keepdims=True)
    return found


def _fitted(star: Star, ahead: float, templates: Array) -> float:
    """Return the phase at which a template fits best, with an amplitude and a mean of each band of its own."""
    weight, total = np.zeros((2, len(BANDS), BINS))
    for at, band in enumerate(BANDS):
        time, magnitude = star.observed[band].T
        place = np.floor(((time - star.epoch) / star.period + ahead) % 1 * BINS + 0.5).astype(int) % BINS
        weight[at] = np.bincount(place, minlength=BINS)
        total[at] = np.bincount(place, magnitude - magnitude.mean(), BINS)

    def along(values: Array, shapes: Array) -> Array:
        product: Array = np.fft.irfft(np.fft.rfft(values)[None] * np.conj(np.fft.rfft(shapes)), BINS)
        return product

    alike = along(total, templates).sum(1)
    mean = along(weight, templates) ** 2 / weight.sum(1)[None, :, None]
    square = (along(weight, templates**2) - mean).sum(1)
    amplitude = np.clip(alike / np.maximum(square, 1e-9), 0.7, 1.4)
    gain = 2 * amplitude * alike - amplitude**2 * square
    return float(np.unravel_index(gain.argmax(), gain.shape)[1]) / BINS


def _pictured(star: Star, ahead: float, restorer: unshift.Restorer) -> Result:
    """Return the observations of one star in r, as folded and as restored."""
    time, magnitude = star.observed["r"].T
    phase = ((time - star.epoch) / star.period + ahead) % 1
    shift = float(_restored(restorer, [star], np.array([ahead]))[0])
    return {"phase": phase.round(4).tolist(), "magnitude": magnitude.tolist(), "shift": shift}


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    rows = []
    for name, rates in result["rates"].items():
        style: Any = "restored" if name.startswith("unshift") else "bare"
        rows.append(Row(name, [rates[str(count)] for count in COUNTS], style=style, form="{:.1%}"))
    note = (
        f"Share of stars whose maximum is found within {CLOSE} cycles of the published epoch, n = {result['stars']} RR "
        f"Lyrae stars, each from a random epoch, seed 1, with few observations {result['draws']} draws of each; "
        f"{result['parts']} parts by star, each restored by what was learnt from the others. The "
        f"{result['tuned']} stars by which folding and recipe were chosen are not counted. The templates are those "
        "other stars. The published epochs were themselves found by a fit of templates to all observations."
    )
    columns = ["all observations", *(f"{count} a band" for count in COUNTS[1:])]
    alt = "A light curve folded from a random epoch, and turned to its maximum"
    curve = result["curve"]
    return [Table("", columns, rows, [note]), Picture("light-curve", alt, (lambda: _draw(curve)) if curve else None)]


def _draw(curve: Result) -> bytes:
    figure = plots.figure(8, 2.8, layout="constrained")
    phase = np.array(curve["phase"])
    for plot, title, moved in zip(
        figure.subplots(1, 2, sharey=True),
        ("folded from any epoch", "restored: from its maximum"),
        (phase, (phase - curve["shift"]) % 1),
        strict=True,
    ):
        plot.scatter(moved, curve["magnitude"], s=9, color=plots.RESTORED if moved is not phase else plots.BARE)
        plot.set_title(title, fontsize=10)
        plot.set_xlabel("phase (cycles)")
        plot.grid(alpha=0.25)
    figure.axes[0].set_ylabel("r (magnitudes)")
    figure.axes[0].invert_yaxis()
    return plots.png(figure)


EXPERIMENT = Experiment(
    name="light-curves",
    title="folded light curves",
    claim="A light curve begins at its maximum, with all its observations or a dozen.",
    cost="4 min",
    cases=[Case("rr-lyrae", "rr-lyrae", _load)],
    measure=_measure,
    show=_show,
)
