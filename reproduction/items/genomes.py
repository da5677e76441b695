"""Circular genomes.

Claim: The restored genome begins at the agreed base, from any base of either strand.
Paper: images only.
Cost: 40 min, most of it for 100 rotations of both strands of each genome.

Mitogenomes of fish, rotated to a random base of a random strand. Baselines: a search for the gene at the start
(aragorn, where it is installed), and the lexicographically least rotation, which is unique but not the agreed one.
"""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import unshift
from reproduction import mitogenomes, plots
from reproduction.mitogenomes import Mitogenome
from reproduction.records import Options, Result
from reproduction.tables import Block, Picture, Row, Table
from unshift.data.sequences import Record, encode, encode_letters, oriented

CASES = {"fish": ("mitogenomes",)}
RESTORER = "mitogenome"
SUBSTITUTED = (0.0, 0.01, 0.02, 0.05)
"""Shares of bases that are replaced at random."""
ROTATIONS, ARAGORN_GENOMES, ARAGORN_ROTATIONS = 100, 20, 4
"""Rotations of each strand that are compared; aragorn takes half a second each, so it gets fewer."""
Find = Callable[[str], tuple[int, int] | None]
"""From a text to the shift and the turn to undo, or None if the start is not found."""


# --- Baselines ------------------------------------------------------------------------------------------------------

COMMAND = ("aragorn", "-mt", "-gcvert", "-c", "-w")
GENE = re.compile(r"mtRNA-Phe\s+(c?)\[(-?\d+),(-?\d+)\].*\(gaa\)")


def aragorn(text: str) -> tuple[int, int] | None:
    """Return shift and turn to the first gene of tRNA-Phe by Debian's ``aragorn``, or None if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "genome.fa"
        path.write_text(f">genome\n{text}\n", encoding="ascii")
        output = subprocess.run([*COMMAND, str(path)], capture_output=True, text=True, check=True).stdout
    gene = GENE.search(output)
    if gene is None:
        return None
    return (int(gene[3]) % len(text), 1) if gene[1] else ((int(gene[2]) - 1) % len(text), 0)


def least_rotation(text: str) -> tuple[int, int]:
    """Return shift and turn to the lexicographically least rotation of both strands."""
    other = oriented(text, 0, 1)
    one, two = _least(text), _least(other)
    if oriented(text, one, 0) <= oriented(other, two, 0):
        return one, 0
    # A rotation of the other strand by ``two`` undoes a shift of this strand by -two, once it is turned.
    return -two % len(text), 1


def _least(text: str) -> int:
    """Return the start of the least rotation of a text, in linear time."""
    n, i, j, same = len(text), 0, 1, 0
    while i < n and j < n and same < n:
        a, b = text[(i + same) % n], text[(j + same) % n]
        if a == b:
            same += 1
            continue
        if a > b:
            i += same + 1
        else:
            j += same + 1
        j += i == j
        same = 0
    return min(i, j)


# --- Measurement ----------------------------------------------------------------------------------------------------


def measure(case: str, options: Options) -> Result:
    """Return how often each method finds the start, its time, agreement over rotations, and robustness.

    A quick run takes random genomes.
    """
    genomes = _random_genomes() if options.quick else mitogenomes.genomes()
    restorer: Any = unshift.load(RESTORER)

    def find(text: str) -> tuple[int, int]:
        estimate = restorer.estimate([encode(text)], [encode_letters(text)])
        return int(estimate.shift), int(estimate.turn)

    installed = shutil.which(COMMAND[0]) is not None and not options.quick
    tools: dict[str, Find] = {f"unshift ({RESTORER})": find, "least rotation": least_rotation}
    if installed:
        tools["aragorn"] = aragorn
    held = [one.text for one in genomes if one.test and mitogenomes.at_start(one.text)]
    rows = {}
    for name, tool in tools.items():
        texts, rotations = held, 2 if options.quick else ROTATIONS
        if tool is aragorn:
            texts, rotations = held[:: max(1, len(held) // ARAGORN_GENOMES)], ARAGORN_ROTATIONS
        rows[name] = _rates(held, tool) | _agreement(texts, tool, rotations)
    return {
        "restorer": RESTORER,
        "genomes": len(genomes),
        "held_out": len(held),
        "genera": len({one.genus for one in genomes if one.test and mitogenomes.at_start(one.text)}),
        "tools": rows,
        "aragorn": installed,
        "substituted": _substituted(held, find, options.seeds),
        "others": _others(genomes, find) if installed else {},
        "circle": _circle(restorer, held[0]),
    }


def _random_genomes() -> list[Mitogenome]:
    chance = random.Random(0)
    texts = ["GATAAAGTAGCTTAA" + "".join(chance.choices("ACGT", k=600)) for _ in range(4)]
    return [Mitogenome(Record(f"random {n}", text), f"Genus{n % 2}", n % 2 == 0) for n, text in enumerate(texts)]


def _moved(text: str, chance: random.Random) -> str:
    """Return a text from a random base of a random strand."""
    return oriented(text, chance.randrange(len(text)), chance.randrange(2))


def _off(text: str, moved: str, found: tuple[int, int] | None) -> float:
    """Return the error of the start in bases; infinity for the wrong strand, or if the start was not found."""
    if found is None:
        return float("inf")
    at = (text + text).find(oriented(moved, *found))
    return min(at, len(text) - at) if at >= 0 else float("inf")


def _rates(texts: Sequence[str], find: Find) -> Result:
    """Return how often the start is found from one random rotation of each text, and the time."""
    chance = random.Random(0)
    moved = [_moved(text, chance) for text in texts]
    for text in moved[:2]:
        find(text)
    begun = time.perf_counter()
    found = [find(text) for text in moved]
    seconds = (time.perf_counter() - begun) / len(texts)
    off = [_off(*triple) for triple in zip(texts, moved, found, strict=True)]
    return {
        "exact": sum(n == 0 for n in off) / len(off),
        "within_5": sum(n <= 5 for n in off) / len(off),
        "seconds": seconds,
    }


def _agreement(texts: Sequence[str], find: Find, rotations: int) -> Result:
    """Return the share of texts of which all rotations of both strands give one output, by its SHA-256."""
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
    """Return how often the start is found after random substitutions, for each share of bases and each seed."""
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
    """Replace each base by another one with this probability."""
    return "".join(
        chance.choice("ACGT".replace(base.upper(), "")) if share and chance.random() < share else base for base in text
    )


def _others(genomes: Sequence[Mitogenome], find: Find) -> dict[str, Result]:
    """Return agreement with aragorn on genomes that do not begin with the usual letters of tRNA-Phe, by kind."""
    kinds: dict[str, list[float | None]] = {}
    for one in genomes:
        if mitogenomes.at_start(one.text):
            continue
        gene = aragorn(one.text)
        if gene is None:
            kinds.setdefault("partial genomes without the gene", []).append(None)
            continue
        whose = "genera held out" if one.test else "genera trained on"
        place = "from another spelling of tRNA-Phe" if gene == (0, 0) else "from another base"
        text = oriented(one.text, *gene)
        kinds.setdefault(f"{place}, {whose}", []).append(_off(text, one.text, find(one.text)))
    rows = {}
    for kind, off in sorted(kinds.items()):
        exact, within_5 = (
            None if None in off else sum(n is not None and n <= most for n in off) / len(off) for most in (0, 5)
        )
        rows[kind] = {"genomes": len(off), "exact": exact, "within_5": within_5}
    return rows


def _circle(restorer: Any, text: str, shift: int = 5000) -> list[list[float]]:
    """Return the highest score of each of 720 parts of a rotated genome, in nats, for both strands."""
    moved = encode(oriented(text, shift % len(text), 0))[None]
    scores = restorer.scorer.scores(restorer.coordinates.canvases(moved)).map()[0].double() * restorer.scorer.score_unit
    return [[float(part.max()) for part in strand.tensor_split(min(720, len(strand)))] for strand in scores]


# --- Tables and pictures --------------------------------------------------------------------------------------------


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the methods, the robustness to substitutions, the other genomes, and the picture."""
    result = results[case]
    ours, slow = result["tools"][f"unshift ({result['restorer']})"], result["tools"].get("aragorn")
    rows = [
        Row(
            name,
            [tool[key] for key in ("exact", "within_5", "same", "seconds")],
            style="restored" if name.startswith("unshift") else "bare",
            form=["{:.2%}", "{:.2%}", "{:.2%}", "{:.3f}"],
        )
        for name, tool in result["tools"].items()
    ]
    note = (
        f"n = {result['held_out']:,} genomes of {result['genera']} genera that were held out, each from a random base "
        f"of a random strand, seed 0. Rotations agree: share of genomes of which {ours['rotations']} rotations, half "
        "of them of each strand, give one output by its SHA-256"
    )
    if slow:
        note += (
            f" (aragorn: {slow['rotations']} rotations of {slow['compared']} genomes). unshift takes "
            f"1/{slow['seconds'] / ours['seconds']:.0f} of the time of aragorn."
        )
    else:
        note += ". aragorn is not installed."
    curve = result["substituted"]
    mean, least = [sum(e["exact"]) / len(e["exact"]) for e in curve], [min(each["exact"]) for each in curve]
    replaced = [Row("exact", mean, "restored", "{:.2%}"), Row("exact, worst seed", least, "plain", "{:.2%}")]
    blocks: list[Block] = [
        Table("", ["exact", "within 5 bases", "rotations agree", "s a genome"], rows, [note]),
        Table("bases replaced at random", [f"{each['share']:.0%}" for each in curve], replaced),
    ]
    if result["others"]:
        kinds = [
            Row(kind, [each["genomes"], each["exact"], each["within_5"]], form=["{:,}", "{:.2%}", "{:.2%}"])
            for kind, each in result["others"].items()
        ]
        truth = "Compared with the start that aragorn finds. None of these genomes was trained on."
        blocks.append(Table("all other genomes, as deposited", ["genomes", "exact", "within 5 bases"], kinds, [truth]))
    if result["circle"]:
        alt = "Scores along the circle of a genome: one peak, at its start"
        blocks.append(Picture("genome-circle", alt, lambda: _draw(result["circle"])))
    return blocks


def _draw(circle: list[list[float]]) -> bytes:
    figure = plots.figure(4.6, 4.6, layout="constrained")
    axes = figure.add_subplot(projection="polar")
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
