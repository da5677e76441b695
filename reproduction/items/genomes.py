"""Circular genomes.

Claim: The restored genome begins at the agreed base, from any base of either strand.
Paper: images only.
Cost: 1 h: 20 min the first three cases, the rest for trainings.

Mitogenomes of vertebrates of genera that were held out, from a random base of a random strand. Baselines: a search for
the gene at the start (aragorn, where it is installed), and the lexicographically least rotation, which is unique but
not the agreed one. Rotations and speed are those of the command ``unshift orient``.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import unshift
from reproduction import mitogenomes, plots
from reproduction.mitogenomes import Mitogenome
from reproduction.records import Options, Result
from reproduction.tables import Block, Picture, Row, Table
from reproduction.train.mitogenome import fit_on, without_start
from unshift.coordinates import Turns
from unshift.data.assemblies import read_assembly
from unshift.data.sequences import Record, encode, encode_letters, oriented, to_fasta

CASES = {
    "vertebrates": ("mitogenomes", "not-mitogenomes"),
    "changes": ("mitogenomes",),
    "rotations": ("mitogenomes",),
    "speed": ("mitogenomes",),
    "orders": ("mitogenomes",),
    "examples": ("mitogenomes",),
}
RESTORER = "mitogenome"
ROTATIONS, ROTATED = 100, 100
"""Rotations of each strand that are compared, and genomes."""
ARAGORN = 10
"""Genomes of each class for aragorn, which takes half a second each."""
MANY, CHROMOSOME = 1000, 5_000_000
"""Genomes in one file, and bases of a random chromosome, for the speed."""
FOREIGN, CHANGED = 1000, 100
"""Sequences that are no mitogenomes, and genomes that are changed in each way."""
LEARNT_FROM = (10, 30, 60, 200, 600)
"""Numbers of genomes to learn a start from."""
PASSES, JUDGED = 1200, 200
"""Genomes to learn from in all, each several times, and genomes to judge the result by."""
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


class Ours:
    """A restorer as a function from a text to its start; it keeps the last confidence."""

    def __init__(self, restorer: Any) -> None:
        self.restorer = restorer
        self.least = restorer.metadata.get("orient", {}).get("min_confidence", 0.9)
        self.confidence = 0.0

    def __call__(self, text: str) -> tuple[int, int]:
        """Return shift and turn."""
        estimate = self.restorer.estimate([encode(text)], [encode_letters(text)])
        self.confidence = float(estimate.confidence)
        return int(estimate.shift), int(estimate.turn)


def measure(case: str, options: Options) -> Result:
    """Measure one case. A quick run takes random genomes."""
    genomes = _random_genomes() if options.quick else mitogenomes.genomes()
    if case == "orders":
        return _orders(genomes, options.quick)
    if case == "examples":
        return _examples(genomes, options.quick)
    held = [one for one in genomes if one.split == "test"]
    if case == "rotations":
        texts = random.Random(0).sample([one.text for one in held], min(ROTATED, len(held)))
        return _agreement(texts, len(FORMS) if options.quick else ROTATIONS)
    if case == "speed":
        return _speed([one.text for one in held], options.quick)
    ours = Ours(unshift.load(RESTORER))
    if case == "changes":
        texts = random.Random(0).sample([one.text for one in held], min(CHANGED, len(held)))
        # One seed for each genome: with one seed for all, the same positions would change in all of them.
        changed = {name: [change(text, random.Random(n)) for n, text in enumerate(texts)] for name, change in CHANGES}
        return {"changed": {name: _rates(each, ours) for name, each in changed.items()}}
    tools: dict[str, Find] = {"least rotation": least_rotation}
    if shutil.which(COMMAND[0]) and not options.quick:
        tools["aragorn"] = aragorn
    texts = [one.text for one in held]
    few = [one for group in _by_class(held).values() for one in group[:ARAGORN]]
    return {
        "restorer": RESTORER,
        "min_confidence": ours.least,
        "genera": len({one.genus for one in held}),
        "deposited": _rates([oriented(one.text, -one.mended % len(one.text), 0) for one in held if one.mended], ours),
        "classes": _by_class_rates(held, ours),
        "tools": {name: _by_class_rates(few, tool) for name, tool in {"unshift": ours, **tools}.items()},
        "foreign": {kind: _turned(foreign, ours) for kind, foreign in _foreign(texts, options.quick).items()},
        "circle": _circle(ours.restorer, texts[0]),
    }


def _random_genomes() -> list[Mitogenome]:
    chance = random.Random(0)
    texts = ["GATAAAGTAGCTTAA" + "".join(chance.choices("ACGT", k=3000)) for _ in range(12)]
    kinds = ("test", "train", "train")
    return [
        Mitogenome(
            f"random {n}", text, "Random", f"Order{n % 4}", f"Genus{n % 3}", kinds[n % 3], n % 4 == 0, int(n == 0)
        )  # type: ignore[arg-type]
        for n, text in enumerate(texts)
    ]


def _by_class(genomes: Sequence[Mitogenome]) -> dict[str, list[Mitogenome]]:
    groups: dict[str, list[Mitogenome]] = {}
    for one in genomes:
        groups.setdefault(one.group, []).append(one)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def _by_class_rates(genomes: Sequence[Mitogenome], find: Find) -> Result:
    """Return the rates of each class, and of all genomes."""
    outcomes = {kind: _outcomes([one.text for one in group], find) for kind, group in _by_class(genomes).items()}
    return {kind: _summary(each) for kind, each in outcomes.items()} | {
        "all": _summary([outcome for each in outcomes.values() for outcome in each])
    }


def _moved(text: str, chance: random.Random) -> str:
    """Return a text from a random base of a random strand."""
    return oriented(text, chance.randrange(len(text)), chance.randrange(2))


def _off(text: str, moved: str, found: tuple[int, int] | None) -> float:
    """Return the error of the start in bases; infinity for the wrong strand, or if the start was not found."""
    if found is None:
        return float("inf")
    at = (text + text).find(oriented(moved, *found))
    return min(at, len(text) - at) if at >= 0 else float("inf")


def _outcomes(texts: Sequence[str], find: Find) -> list[tuple[float, bool, float]]:
    """Return the error from one random move of each text, whether ``unshift orient`` turns it, and the seconds."""
    outcomes = []
    for number, text in enumerate(texts):
        moved = _moved(text, random.Random(number))
        begun = time.perf_counter()
        found = find(moved)
        seconds = time.perf_counter() - begun
        turned = find.confidence >= find.least if isinstance(find, Ours) else found is not None
        outcomes.append((_off(text, moved, found), turned, seconds))
    return outcomes


def _summary(outcomes: Sequence[tuple[float, bool, float]]) -> Result:
    off, turned, seconds = zip(*outcomes, strict=True)
    return {
        "genomes": len(off),
        "exact": sum(n == 0 for n in off) / len(off),
        "within_5": sum(n <= 5 for n in off) / len(off),
        "turned": sum(turned) / len(off),
        "wrong": sum(t and n > 0 for n, t in zip(off, turned, strict=True)),
        "far": sum(t and n > 5 for n, t in zip(off, turned, strict=True)),
        "seconds": sorted(seconds)[len(seconds) // 2],
    }


def _rates(texts: Sequence[str], find: Find) -> Result:
    return _summary(_outcomes(texts, find))


# --- the command ----------------------------------------------------------------------------------------------------


def _gfa(records: Sequence[Record]) -> bytes:
    """Return circular segments."""
    return "".join(f"S\t{one.name}\t{one.text}\nL\t{one.name}\t+\t{one.name}\t+\t0M\n" for one in records).encode()


FORMS: dict[str, Callable[[Sequence[Record]], bytes]] = {
    "file": lambda records: to_fasta(records, Path()),
    "pipe": lambda records: to_fasta(records, Path()),
    "gzip": lambda records: gzip.compress(to_fasta(records, Path()), 1),
    "GFA": _gfa,
}


def _command(form: str, records: Sequence[Record], *options: str) -> tuple[dict[str, str], float, int]:
    """Run ``unshift orient``. Return the texts of its output by name, its seconds, and its peak of memory in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before", Path(folder) / "after"
        before.write_bytes(FORMS[form](records))
        source, target = ("-", []) if form == "pipe" else (str(before), ["-o", str(after)])
        command = [sys.executable, "-m", "unshift", "orient", source, "-r", RESTORER, "--quiet", *target, *options]
        begun = time.perf_counter()
        with before.open("rb") as stdin, (Path(folder) / "stdout").open("wb") as stdout:
            process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
            assert process.stderr is not None
            errors = process.stderr.read().decode()
            _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        if status:
            raise RuntimeError(errors)
        output = read_assembly([Path(stdout.name) if form == "pipe" else after])
        return {one.name: one.record.text for one in output.segments}, seconds, 1024 * usage.ru_maxrss


def _agreement(texts: Sequence[str], rotations: int) -> Result:
    """Return the number of texts of which all rotations of both strands give one output, by its SHA-256."""
    chance = random.Random(1)
    digests: list[set[str]] = [set() for _ in texts]
    for form in FORMS:
        moved = [
            Record(f"{number}.{move}", oriented(text, chance.randrange(len(text)), move % 2))
            for number, text in enumerate(texts)
            for move in range(2 * rotations // len(FORMS))
        ]
        for name, text in _command(form, moved, "--min-confidence", "0")[0].items():
            digests[int(name.split(".")[0])].add(hashlib.sha256(text.encode()).hexdigest())
    return {"genomes": len(texts), "rotations": 2 * rotations, "same": sum(len(each) == 1 for each in digests)}


def _speed(texts: Sequence[str], quick: bool) -> Result:
    """Return the seconds and the memory of the command, started anew, for many genomes and for one chromosome."""
    count, length = (3, 30_000) if quick else (MANY, CHROMOSOME)
    chance = random.Random(0)
    many = [Record(str(n), _moved(texts[n % len(texts)], chance)) for n in range(count)]
    chromosome = [Record("chromosome", "".join(chance.choices("ACGT", k=length)))]
    files = {f"{count:,} mitogenomes": many, f"a chromosome of {length:,} bases": chromosome}
    measured = {name: _command("file", records)[1:] for name, records in files.items()}
    return {name: {"seconds": seconds, "bytes": peak} for name, (seconds, peak) in measured.items()}


# --- changed genomes, and sequences that are none -------------------------------------------------------------------


def _replace(text: str, chance: random.Random, share: float) -> str:
    """Replace each base by another one with this probability."""
    return "".join(
        chance.choice("ACGT".replace(base.upper(), "")) if chance.random() < share else base for base in text
    )


def _indels(text: str, chance: random.Random, share: float) -> str:
    """Delete each base, or insert one behind it, with half of this probability each; but keep the first base."""
    changed = []
    for base in text[1:]:
        draw = chance.random()
        changed.append("" if draw < share / 2 else base + chance.choice("ACGT") if draw > 1 - share / 2 else base)
    return text[0] + "".join(changed)


def _partial(text: str, chance: random.Random) -> str:
    """Return half of a genome, with the start somewhere in it, at its first base."""
    half = len(text) // 2
    after = chance.randrange(200, half - 200)
    return text[:after] + text[len(text) - (half - after) :]


def _without_start(text: str, chance: random.Random) -> str:
    """Return a genome without tRNA-Phe and what surrounds it."""
    return without_start(text)


CHANGES: list[tuple[str, Callable[[str, random.Random], str]]] = [
    *((f"{share:.0%} of the bases replaced", partial(_replace, share=share)) for share in (0.01, 0.02, 0.05)),
    *((f"{share:.1%} of the bases deleted or inserted", partial(_indels, share=share)) for share in (0.002, 0.01)),
    ("half of the genome, with the start", _partial),
    ("without tRNA-Phe: every start is wrong", _without_start),
]


def _foreign(texts: Sequence[str], quick: bool) -> dict[str, list[str]]:
    """Return sequences that are no mitogenomes, by kind."""
    chance, count = random.Random(0), 5 if quick else FOREIGN // 4
    pieces = {"random": "ACGT" * 5000} if quick else mitogenomes.foreign()
    cut = []
    for _ in range(2 * count):
        name = chance.choice([*pieces])
        length = min(len(pieces[name]), chance.randrange(5_000, 25_000))
        at = chance.randrange(len(pieces[name]) - length + 1)
        cut.append(pieces[name][at : at + length])
    return {
        "random bases": ["".join(chance.choices("ACGT", k=chance.randrange(5_000, 25_000))) for _ in range(count)],
        "shuffled mitogenomes": ["".join(chance.sample(t, len(t))) for t in chance.choices(texts, k=count)],
        "pieces of chromosomes, a chloroplast, a plasmid": cut,
    }


def _turned(texts: Sequence[str], ours: Ours) -> Result:
    turned = 0
    for text in texts:
        ours(text)
        turned += ours.confidence >= ours.least
    return {"sequences": len(texts), "turned": turned}


# --- trainings ------------------------------------------------------------------------------------------------------


def _orders(genomes: Sequence[Mitogenome], quick: bool) -> Result:
    """Train on the other orders, and return the rates on the orders held out, by class."""
    learnt = fit_on([one for one in genomes if not one.test_order], **({"epochs": 1} if quick else {}))
    held = [one for one in genomes if one.test_order]
    return {"orders": len({one.order for one in held}), "classes": _by_class_rates(held, Ours(learnt))}


def _examples(genomes: Sequence[Mitogenome], quick: bool) -> Result:
    """Return the rates of `unshift fit refs.fa --preset sequence --turns strand`, by the number of examples."""
    chance = random.Random(0)
    train = chance.sample(pool := [one.text for one in genomes if one.split == "train"], len(pool))
    held = chance.sample(pool := [one.text for one in genomes if one.split == "test"], min(JUDGED, len(pool)))
    curve = []
    for count in (10,) if quick else LEARNT_FROM:
        references = [encode(text) for text in train[:count]]
        epochs = 1 if quick else max(4, min(80, PASSES // len(references)))
        restorer = unshift.fit(
            references, "sequence", coordinates=Turns("strand"), epochs=epochs, validation=0.1, progress=False
        )
        rates = _rates(held, Ours(restorer))
        curve.append({"examples": len(references), "epochs": epochs, **rates})
    return {"curve": curve}


def _circle(restorer: Any, text: str, shift: int = 5000) -> list[list[float]]:
    """Return the highest score of each of 720 parts of a rotated genome, in nats, for both strands."""
    moved = encode(oriented(text, shift % len(text), 0))[None]
    scores = restorer.scorer.scores(restorer.coordinates.canvases(moved)).map()[0].double() * restorer.scorer.score_unit
    return [[float(part.max()) for part in strand.tensor_split(min(720, len(strand)))] for strand in scores]


# --- Tables and pictures --------------------------------------------------------------------------------------------

SHOWN = 20
"""Least number of genomes of a class in the table of orders."""
RATES = ["genomes", "exact", "within 5 bases"]
RATE_FORM = ["{:,}", "{:.1%}", "{:.1%}"]


def _row(name: str, rates: Result, more: Sequence[str] = (), style: Any = "plain") -> Row:
    forms = {"turned": "{:.1%}", "wrong": "{:,}"}
    values = [rates[key] for key in ("genomes", "exact", "within_5", *more)]
    return Row(name, values, style, [*RATE_FORM, *(forms[key] for key in more)])


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the tables of a case, and the picture of the scores."""
    result = results[case]
    if case == "rotations":
        same = f"{result['same']:,} of {result['genomes']:,}"
        note = "Genomes of which all rotations, half of them of each strand, give one output by its SHA-256. A quarter "
        note += "each is read from FASTA, a pipe, gzip and GFA."
        return [Table("", ["rotations each", "one output"], [Row("unshift", [f"{result['rotations']}", same])], [note])]
    if case == "speed":
        rows = [
            Row(name, [each["seconds"], each["bytes"] / 1e9], form=["{:.1f} s", "{:.2f} GB"])
            for name, each in result.items()
        ]
        return [Table("`unshift orient`", ["time", "memory"], rows, ["With its start; the peak of memory."])]
    if case == "examples":
        rows = [
            Row(
                f"{each['examples']:,}",
                [each["epochs"], each["exact"], each["within_5"]],
                form=["{:,}", "{:.1%}", "{:.1%}"],
            )
            for each in result["curve"]
        ]
        held = f"{result['curve'][0]['genomes']:,} genomes of genera held out; examples of all classes, drawn at random"
        return [Table("examples", ["epochs", "exact", "within 5 bases"], rows, [held])]
    if case == "orders":
        rows = [_row(kind, each) for kind, each in result["classes"].items() if each["genomes"] >= SHOWN]
        note = f"{result['orders']} orders, held out of the training of a second network."
        return [Table("", RATES, rows, [note])]
    names, more = [*RATES, "turned", "turned, not exact"], ("turned", "wrong")
    if case == "changes":
        rows = [_row(name, rates, more) for name, rates in result["changed"].items()]
        return [Table("changed genomes", names, rows)]
    tools, rows = result["tools"], []
    for kind, each in result["classes"].items():
        row = _row(kind, each, style="restored" if kind == "all" else "plain", more=more)
        rates = tools["aragorn"][kind] if "aragorn" in tools else None
        cell = f"{rates['exact']:.0%} / {rates['within_5']:.0%}" if rates else "-"
        rows.append(replace(row, values=[*row.cells, cell], form="{}"))
    note = (
        f"Genomes of {result['genera']} genera that were held out, each from a random base of a random strand. Turned: "
        f"of a confidence of at least {result['min_confidence']:.3g}, the default of `unshift orient`; "
        f"{result['classes']['all']['far']} of these are off by more than 5 bases. aragorn: of up to {ARAGORN} genomes "
        "of each class, exact / within 5 bases."
    )
    note += (
        f" The starts of {result['deposited']['genomes']} genomes were mended: as deposited, "
        f"{result['deposited']['exact']:.0%} of these are exact."
    )
    fast, slow = (tools[name]["all"]["seconds"] if name in tools else None for name in ("unshift", "aragorn"))
    if fast and slow:
        note += f" Median time of a genome: unshift {1000 * fast:.0f} ms, aragorn {1000 * slow:.0f} ms."
    blocks: list[Block] = [Table("", [*names, "aragorn"], rows, [note])]
    rows = [Row(kind, [each["sequences"], each["turned"]], form="{:,}") for kind, each in result["foreign"].items()]
    blocks.append(Table("no mitogenomes", ["sequences", "turned"], rows))
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
