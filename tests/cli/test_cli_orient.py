"""``unshift orient``: FASTA and GFA, from files and pipes, and in the workflows of docs/sequences.md."""

from __future__ import annotations

import bz2
import csv
import gzip
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, bad, child, good, run
from samples import sequence
from typer.testing import CliRunner

from unshift.cli import app
from unshift.data.sequences import oriented

LETTERS = "ACGTacgtRYn"


GENOMES = {f"g{n}": sequence(n, n, LETTERS) for n in (120, 200, 151)}


def fasta(texts: dict[str, str], width: int = 60) -> bytes:
    lines = (f">{name} a header\n" + re.sub(f"(.{{1,{width}}})", r"\1\n", text) for name, text in texts.items())
    return "".join(lines).encode()


def gfa(texts: dict[str, str], more: str = "") -> bytes:
    rows = (f"S\t{name}\t{text}\tLN:i:{len(text)}\nL\t{name}\t+\t{name}\t+\t0M\n" for name, text in texts.items())
    return ("H\tVN:Z:1.0\n" + "".join(rows) + more).encode()


def moved(texts: dict[str, str], seed: int) -> dict[str, str]:
    chance = random.Random(seed)
    return {n: oriented(text, chance.randrange(len(text)), chance.randrange(2)) for n, text in texts.items()}


def orient(content: bytes, model: Path, *args: object) -> bytes:
    """Orient what comes in by stdin; return stdout."""
    words = ["orient", "-", "--restorer", str(model), "--quiet", *map(str, args)]
    result = CliRunner().invoke(app, words, input=content, prog_name="unshift")
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes


def texts_of(content: bytes) -> dict[str, str]:
    blocks = content.decode().split(">")[1:]
    return {block.split()[0]: "".join(block.splitlines()[1:]) for block in blocks}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
@pytest.mark.parametrize("form", [fasta, gfa])
def test_every_rotation_of_both_strands_gives_the_same_bytes(form, pack, model):
    outputs = {orient(pack(form(moved(GENOMES, seed))), model) for seed in range(5)}
    assert len(outputs) == 1
    other = form({**GENOMES, "g120": sequence(120, 99)})
    assert orient(other, model) not in outputs


def test_files_give_what_pipes_give(model, tmp_path):
    (tmp_path / "no-suffix").write_bytes(gzip.compress(fasta(GENOMES)))
    for name, unpack in (("o.fa", bytes), ("o.fa.gz", gzip.decompress), ("o.fa.bz2", bz2.decompress)):
        good("orient", tmp_path / "no-suffix", "-r", model, "-o", tmp_path / "new" / name)
        assert unpack((tmp_path / "new" / name).read_bytes()) == orient(fasta(GENOMES), model)


@pytest.mark.parametrize("width", [60, 77, 10**6])
def test_the_layout_stays(width, model):
    output = orient(fasta(GENOMES, width), model)
    assert output == fasta(texts_of(output), width)


def test_the_table_says_what_was_done(model, tmp_path):
    output = texts_of(orient(fasta(GENOMES), model, "--table", tmp_path / "t.tsv"))
    with (tmp_path / "t.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["name"] for row in rows] == [*GENOMES]
    for row in rows:
        strand = "+-".index(row["strand"])
        assert output[row["name"]] == oriented(GENOMES[row["name"]], int(row["start"]) - 1 + strand, strand)
        assert (row["result"], int(row["length"])) == ("turned", len(GENOMES[row["name"]]))


# --- what is turned ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "circular"),
    [("circular=true", 1), ("[topology=circular]", 1), ("suggestCircular=yes", 1), ("circular=no", 0), ("linear", 0)],
)
def test_circular_only_reads_the_header(mark, circular, model):
    content = fasta(GENOMES).replace(b"a header", mark.encode())
    output = orient(content, model, "--circular-only")
    assert (output == content) is not bool(circular)


def test_names_lists_what_is_circular(model, tmp_path):
    (tmp_path / "names").write_text("g200\n")
    output = texts_of(orient(fasta(GENOMES), model, "--names", tmp_path / "names"))
    assert [name for name in GENOMES if output[name] != GENOMES[name]] == ["g200"]
    (tmp_path / "names").write_text("g7\n")
    (tmp_path / "in.fa").write_bytes(fasta(GENOMES))
    assert "g7" in bad("orient", tmp_path / "in.fa", "-r", model, "--names", tmp_path / "names")


def test_strand_only_does_not_rotate(model):
    output = texts_of(orient(fasta(GENOMES), model, "--strand-only"))
    assert all(output[name] in (text, oriented(text, 0, 1)) for name, text in GENOMES.items())
    reverse = {name: oriented(text, 0, 1) for name, text in GENOMES.items()}
    assert texts_of(orient(fasta(reverse), model, "--strand-only")) == output


def test_sequences_of_low_confidence_are_copied_and_named(model, tmp_path):
    (tmp_path / "in.fa").write_bytes(fasta(GENOMES))
    command = ("orient", tmp_path / "in.fa", "-r", model, "--min-confidence", 0.999)
    result = good(*command)
    assert result.stdout_bytes == fasta(GENOMES)
    assert all(name in result.stderr for name in GENOMES)
    assert run(*command, "--strict").exit_code == 1


def test_short_sequences_are_copied(model):
    texts = {**GENOMES, "short": "ACGTACG"}
    assert texts_of(orient(fasta(texts), model))["short"] == "ACGTACG"


# --- GFA --------------------------------------------------------------------------------------------------


def test_gfa_keeps_every_line_but_the_sequences_of_circles(model):
    repeat = sequence(150, 5) + sequence(20, 6)
    graph = gfa({"loop": sequence(180, 1)}, "P\talone\tloop+\t*\n").decode()
    graph += f"S\trepeat\t{sequence(20, 6) + repeat}\tSH:H:00\tdp:f:3\nL\trepeat\t-\trepeat\t-\t20M\n"
    graph += f"S\ta\t{sequence(130, 2)}\nL\ta\t+\ta\t+\t0M\nL\ta\t+\tb\t-\t0M\nS\tb\t{sequence(140, 3)}\n"
    graph += f"S\twrong\t{sequence(150, 4)}\nL\twrong\t+\twrong\t+\t9M\nS\tlinear\t{sequence(99, 7)}\n"
    graph += f"S\thairpin\t{sequence(99, 8)}\nL\thairpin\t+\thairpin\t-\t0M\nS\twalked\t{sequence(99, 9)}\n"
    graph += "L\twalked\t+\twalked\t+\t0M\nW\tx\t0\tc\t0\t99\t>walked"
    before, after = graph.split("\n"), orient(graph.encode(), model).decode().split("\n")
    changed = {old.split("\t")[1]: new for old, new in zip(before, after, strict=True) if old != new}
    assert set(changed) == {"loop", "repeat"}
    _, _, text, *tags = changed["repeat"].split("\t")
    assert text[:20] == text[-20:]
    assert text[20:] in {oriented(repeat, shift, turn) for shift in range(170) for turn in (0, 1)}
    assert tags == ["dp:f:3"]
    assert changed["loop"].endswith("\tLN:i:180")


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b">p\nMKVLAAGIVPLLEQ\n", "protein"),
        (b"S\tp\tMKVLAAGIVPLLEQ\n", "protein"),
        (b"hello\n", "in"),
        (gzip.compress(fasta(GENOMES))[:-30], "truncated"),
        (bz2.compress(fasta(GENOMES))[:-30], "truncated"),
        (b"H\tVN:Z:1.0\nS\ta\t*\tLN:i:9\n", "GFA"),
        (b"H\tVN:Z:1.0\n", "GFA"),
        (fasta(GENOMES) * 2, "g120"),
        (gfa({"g1": sequence(99, 1)}) * 2, "g1"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(content, word, model, tmp_path):
    (tmp_path / "in").write_bytes(content)
    assert word in bad(
        "orient", tmp_path / "in", "-r", model, "-o", tmp_path / "sub" / "out", "--table", tmp_path / "t"
    )
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "in"]


def test_places_that_must_not_be_written(model, tmp_path):
    for name in ("in.fa", "out.fa"):
        (tmp_path / name).write_bytes(fasta(GENOMES))
    (tmp_path / "in.gfa").write_bytes(gfa(GENOMES))
    command = ("orient", tmp_path / "in.fa", "-r", model, "-o")
    assert "--force" in bad(*command, tmp_path / "out.fa")
    assert "in.fa" in bad(*command, tmp_path / "in.fa", "--force")
    assert "folder" in bad(*command, tmp_path)
    assert "in.gfa" in bad("orient", tmp_path / "in.fa", tmp_path / "in.gfa", "-r", model)
    assert "1 channel(s) and 2 axes" in bad("orient", tmp_path / "in.fa", "-r", "mnist")
    good(*command, tmp_path / "out.fa", "--force")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_and_a_closed_pipe_are_one_line(model, tmp_path):
    (tmp_path / "in.fa").write_bytes(fasta({f"g{n}": sequence(5_000, n) for n in range(4)}))
    command = ("orient", tmp_path / "in.fa", "-r", model, "--quiet")
    assert "/dev/full" in bad(*command, "-o", "/dev/full", "--table", tmp_path / "t.tsv")
    assert not (tmp_path / "t.tsv").exists()
    assert "g0" in bad("orient", tmp_path / "in.fa", tmp_path / "in.fa", "-r", model)
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "unshift", *map(str, command)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert process.returncode == 2
    (line,) = (line for line in process.stderr.splitlines() if "at work" not in line)
    assert "stdout" in line
    with child(*command) as process:
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert process.returncode == 2
    (line,) = (line for line in errors.splitlines() if "at work" not in line)
    assert "stdout" in line


# --- workflows --------------------------------------------------------------------------------------------


@pytest.fixture
def workplace(tmp_path, model):
    """A folder with two assemblies, and ``unshift`` on the path with the restorer of random weights."""
    (tmp_path / "assemblies").mkdir()
    (tmp_path / "assemblies" / "one.fa").write_bytes(fasta(GENOMES))
    (tmp_path / "one.gfa").write_bytes(gfa(GENOMES))
    script = tmp_path / "bin" / "unshift"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m unshift "$@" --restorer {model}\n')
    script.chmod(0o755)
    return tmp_path, {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}"}


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", (ROOT / "docs" / "sequences.md").read_text(encoding="utf-8"), re.S)
    assert found
    return found[1]


def test_the_snakemake_rule_of_the_docs(workplace, model):
    folder, environment = workplace
    rule = block("snakemake")
    if shutil.which("snakemake"):
        (folder / "Snakefile").write_text(rule)
        command = ["snakemake", "--cores", "1", "oriented/one.fa"]
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    else:
        line = re.search(r'shell:\s*"(.*)"', rule)[1]
        values = {
            "{input}": "assemblies/one.fa",
            "{output.fasta}": "oriented/one.fa",
            "{output.table}": "oriented/one.tsv",
        }
        for name, value in values.items():
            line = line.replace(name, value)
        subprocess.run(line, shell=True, cwd=folder, env=environment, check=True, capture_output=True)
    assert (folder / "oriented" / "one.fa").read_bytes() == orient(fasta(GENOMES), model)
    assert (folder / "oriented" / "one.tsv").exists()


def test_the_nextflow_process_of_the_docs(workplace, model):
    folder, environment = workplace
    script = re.search(r'"""\n(.*?)"""', block("nextflow"), re.S)[1]
    script = script.replace("${assembly}", "one.gfa").replace("${sample}", "one")
    subprocess.run(["bash", "-ue", "-c", script], cwd=folder, env=environment, check=True, capture_output=True)
    assert (folder / "one.oriented.gfa").read_bytes() == orient(gfa(GENOMES), model)
