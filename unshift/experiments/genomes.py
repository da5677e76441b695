"""Circular genomes: mitogenomes of fish from a random base of a random strand, turned to where they should begin.

Beside the two ways in use: a search for the gene that begins them (aragorn, where it is installed), and a rotation that
is the same for all, if not the agreed one (the least in the order of letters).
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import unshift
from unshift.data.sequences import encode, encode_letters, oriented
from unshift.experiments import mitogenomes, plots
from unshift.experiments.genome_tools import Aragorn, least_rotation
from unshift.experiments.mitogenomes import Mitogenome
from unshift.experiments.record import Block, Case, Experiment, Options, Picture, Result, Results, Row, Table

RESTORER = "mitogenome"
SUBSTITUTED = (0.0, 0.01, 0.02, 0.05)
Find = Callable[[str], tuple[int, int] | None]
"""From a text to the shift and the turn to undo, or None where it finds nothing."""


@dataclass(frozen=True)
class _Loaded:
    genomes: Sequence[Mitogenome]
    rotations: int
    """of each genome and strand whose output is compared"""
    others: int
    """genomes that the slow tool is shown rotated"""
    seeds: tuple[int, ...]
    restorer: Any


def _load(options: Options) -> _Loaded:
    genomes = mitogenomes.genomes()
    some = genomes[:: len(genomes) // 12] if options.quick else genomes
    rotations, others = (2, 2) if options.quick else (100, 20)
    return _Loaded(some, rotations, others, options.seeds, unshift.load(RESTORER))


def _finder(restorer: Any) -> Find:
    def find(text: str) -> tuple[int, int]:
        found = restorer.estimate([encode(text)], of=[encode_letters(text)])
        return int(found.shift), int(found.turn)

    return find


def _measure(loaded: _Loaded) -> Result:
    genomes, find = loaded.genomes, _finder(loaded.restorer)
    tools: dict[str, Find] = {f"unshift ({RESTORER})": find}
    aragorn = Aragorn() if Aragorn.found() else None
    if aragorn:
        tools["aragorn"] = aragorn
    tools["least rotation"] = least_rotation
    held = [one.text for one in genomes if one.test and mitogenomes.at_start(one.text)]
    rows = {}
    for name, tool in tools.items():
        few = name == "aragorn"  # half a second a genome: not all rotations of all
        compared = held[:: max(1, len(held) // loaded.others)] if few else held
        rows[name] = _found(held, tool) | _agreement(compared, tool, 4 if few else loaded.rotations)
    return {
        "restorer": RESTORER,
        "genomes": len(genomes),
        "held_out": len(held),
        "genera": len({one.genus for one in genomes if one.test and mitogenomes.at_start(one.text)}),
        "tools": rows,
        "aragorn": aragorn is not None,
        "substituted": _substituted(held, find, loaded.seeds),
        "others": _others(genomes, find, aragorn) if aragorn else {},
        "circle": _circle(loaded.restorer, held[0]) if held else [],
    }


def _moved(text: str, chance: random.Random) -> str:
    """Return a text from a random base of a random strand."""
    return oriented(text, chance.randrange(len(text)), chance.randrange(2))


def _off(text: str, moved: str, found: tuple[int, int] | None) -> float:
    """Return how many bases off the start was found; infinitely many on the wrong strand, or where it was not."""
    if found is None:
        return float("inf")
    doubled, restored = text + text, oriented(moved, *found)
    at = doubled.find(restored)
    return min(at, len(text) - at) if at >= 0 else float("inf")


def _found(texts: Sequence[str], find: Find) -> Result:
    """Measure how often the start is found from one random rotation of each, and how long that takes."""
    chance = random.Random(0)
    moved = [_moved(text, chance) for text in texts]
    for text in moved[:2]:
        find(text)
    begun = time.perf_counter()
    found = [find(text) for text in moved]
    seconds = (time.perf_counter() - begun) / len(texts)
    off = [_off(*case) for case in zip(texts, moved, found, strict=True)]
    return {
        "exact": sum(n == 0 for n in off) / len(off),
        "within_5": sum(n <= 5 for n in off) / len(off),
        "seconds": seconds,
    }


def _agreement(texts: Sequence[str], find: Find, rotations: int) -> Result:
    """Measure of how many genomes all rotations of both strands give one output, by its SHA-256."""
    chance = random.Random(1)
    same = 0
    for text in texts:
        digests = set()
        for turn in (0, 1):
            for _ in range(rotations):
                moved = oriented(text, chance.randrange(len(text)), turn)
                found = find(moved)
                output = moved if found is None else oriented(moved, *found)
                digests.add(hashlib.sha256(output.encode()).hexdigest())
        same += len(digests) == 1
    return {"same": same / len(texts), "compared": len(texts), "rotations": 2 * rotations}


def _substituted(texts: Sequence[str], find: Find, seeds: Sequence[int]) -> list[Result]:
    """Measure how often the start is found when some bases are replaced at random, for each seed."""
    curve = []
    for share in SUBSTITUTED:
        exact = []
        for seed in seeds if share else seeds[:1]:
            chance = random.Random(seed)
            replaced = [_replace(text, share, chance) for text in texts]
            moved = [_moved(text, chance) for text in replaced]
            off = [_off(text, turned, find(turned)) for text, turned in zip(replaced, moved, strict=True)]
            exact.append(sum(n == 0 for n in off) / len(off))
        curve.append({"share": share, "exact": exact})
    return curve


def _replace(text: str, share: float, chance: random.Random) -> str:
    """Put another base in the place of each with this probability."""
    return "".join(
        chance.choice("ACGT".replace(base.upper(), "")) if share and chance.random() < share else base for base in text
    )


def _others(genomes: Sequence[Mitogenome], find: Find, aragorn: Find) -> dict[str, Result]:
    """Measure agreement with aragorn on genomes that do not begin with the usual letters of tRNA-Phe, by kind."""
    kinds: dict[str, list[float]] = {}
    for one in genomes:
        if mitogenomes.at_start(one.text):
            continue
        gene = aragorn(one.text)
        if gene is None:
            kinds.setdefault("partial genomes without the gene", []).append(float("nan"))
            continue
        whose = "genera held out" if one.test else "genera trained on"
        place = "from another spelling of tRNA-Phe" if gene == (0, 0) else "from another base"
        text = oriented(one.text, *gene)
        kinds.setdefault(f"{place}, {whose}", []).append(_off(text, one.text, find(one.text)))
    return {
        kind: {
            "genomes": len(off),
            "exact": None if off[0] != off[0] else sum(n == 0 for n in off) / len(off),
            "within_5": None if off[0] != off[0] else sum(n <= 5 for n in off) / len(off),
        }
        for kind, off in sorted(kinds.items())
    }


def _circle(restorer: Any, text: str, shift: int = 5000) -> list[list[float]]:
    """Return the highest score of each of 720 parts of a genome that begins elsewhere, in nats, for both strands."""
    moved = encode(oriented(text, shift, 0))[None]
    scores = restorer.scores(restorer.coordinates.canvas(moved))[0].double() * restorer.scorer.score_unit
    return [[float(part.max()) for part in strand.tensor_split(720)] for strand in scores]


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    forms = ["{:.2%}", "{:.2%}", "{:.2%}", "{:.3f}"]
    keys = ("exact", "within_5", "same", "seconds")
    rows = [
        Row(name, [tool[key] for key in keys], style="restored" if name.startswith("unshift") else "bare", form=forms)
        for name, tool in result["tools"].items()
    ]
    ours = result["tools"][f"unshift ({result['restorer']})"]
    note = (
        f"n = {result['held_out']:,} genomes of {result['genera']} genera that were held out, each from a random base "
        f"of a random strand, seed 0. Rotations agree: share of genomes of which {ours['rotations']} rotations, half "
        "of them of each strand, give one output by its SHA-256"
    )
    if result["aragorn"]:
        slow = result["tools"]["aragorn"]
        note += (
            f" (of aragorn: {slow['rotations']} rotations of {slow['compared']} genomes). "
            f"unshift takes 1/{slow['seconds'] / ours['seconds']:.0f} of aragorn's time."
        )
    else:
        note += ". aragorn is not installed, and was left out."
    curve = result["substituted"]
    least = Row("found to the base, least of all seeds", [min(each["exact"]) for each in curve], form="{:.2%}")
    mean = Row("found to the base", [sum(e["exact"]) / len(e["exact"]) for e in curve], style="restored", form="{:.2%}")
    blocks: list[Block] = [
        Table("", ["to the base", "within 5 bases", "rotations agree", "s a genome"], rows, [note]),
        Table("bases replaced at random", [f"{each['share']:.0%}" for each in curve], [mean, least]),
    ]
    if result["others"]:
        kinds = [
            Row(kind, [each["genomes"], each["exact"], each["within_5"]], form=["{:,}", "{:.2%}", "{:.2%}"])
            for kind, each in result["others"].items()
        ]
        told = "Where aragorn finds tRNA-Phe is taken for the truth: none of these was trained on."
        columns = ["genomes", "the same base", "within 5 bases"]
        blocks.append(Table("all other genomes of the file, as deposited", columns, kinds, [told]))
    if result["circle"]:
        alt = "Scores round the circle of a genome: one peak, at its start"
        blocks.append(Picture("genome-circle", alt, lambda: _draw(result["circle"])))
    return blocks


def _draw(circle: list[list[float]]) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 4.6), layout="constrained")
    axes: Any = figure.add_subplot(projection="polar")
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    top, bottom = max(map(max, circle)), min(map(min, circle))
    angles = torch.linspace(0, 2 * torch.pi, len(circle[0]) + 1)[:-1].tolist()
    for strand, color, name in zip(circle, (plots.RESTORED, plots.BARE), ("this strand", "the other"), strict=True):
        axes.plot([*angles, angles[0]], [*strand, strand[0]], color=color, linewidth=0.8, label=name)
    best = max(range(len(angles)), key=lambda at: circle[0][at])
    axes.annotate("start", (angles[best], top), color=plots.RESTORED, ha="center", va="bottom")
    axes.set_ylim(bottom - 0.7 * (top - bottom), top)
    axes.set_yticks([])
    axes.set_xticks([0], ["base 1 of the file"])
    axes.legend(frameon=False, loc="center", fontsize=8)
    return plots.png(figure)


EXPERIMENT = Experiment(
    name="genomes",
    title="circular genomes",
    claim="A genome begins where it should: found to the base, from any base of either strand.",
    cost="20 min, most of it 100 rotations of both strands of each genome; aragorn is timed where it is installed",
    cases=[Case("fish", "mitogenomes", _load)],
    measure=_measure,
    show=_show,
)
