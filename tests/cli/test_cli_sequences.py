"""Sequences on the command line: restored, learnt from and verified."""

from __future__ import annotations

import csv
import errno
import gzip
import random
from pathlib import Path

import pytest
import torch
from commands import bad, good, good_json, run
from memory import peak

import unshift
from unshift.coordinates import Turns
from unshift.data.sequences import Record, encode, oriented, read_fasta, to_fasta

MOTIF = "GCTAGCGTAGCTTAACTAAAGCATAACACTGAAG"


def sequence(length: int, seed: int, letters: str = "ACGT") -> str:
    return "".join(random.Random(seed).choices(letters, k=length))


def write(path: Path, records: list[Record]) -> Path:
    path.write_bytes(to_fasta(records, path))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A restorer with random weights."""
    torch.manual_seed(0)
    sample = [encode(sequence(300, 0)), encode(sequence(310, 1))]
    scorer = unshift.quantise(unshift.ShiftEstimator.preset("sequence", 4, (300,)), sample)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    unshift.Restorer(scorer, coordinates=Turns("strand")).save(path)
    return path


@pytest.fixture
def genomes(tmp_path) -> Path:
    letters = "ACGTacgtRYn"
    return write(tmp_path / "in.fa", [Record(f"g{n} a header", sequence(n, n, letters)) for n in (120, 200, 150)])


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_sequences_are_rotated_to_their_start_in_order(genomes, model, tmp_path):
    out = tmp_path / "sub" / "oriented.fa"
    result = good("restore", genomes, "--restorer", model, "--out", out)
    before, after = read_fasta(genomes), read_fasta(out)
    assert [r.header for r in after] == [r.header for r in before]
    assert "3 of 3" in result.stdout
    rows = rows_of(out.with_suffix(".csv"))
    assert [(row["name"], int(row["length"])) for row in rows] == [("g120", 120), ("g200", 200), ("g150", 150)]
    for row, old, new in zip(rows, before, after, strict=True):
        turn = "+-".index(row["strand"])
        assert new.text == oriented(old.text, int(row["start"]) - 1 + turn, turn)
        first = old.text[int(row["start"]) - 1]
        assert new.text[0] == (oriented(first, 0, 1) if turn else first)
        assert row["oriented"] == "true"


@pytest.mark.parametrize("name", ["out.fa", "out.fasta.gz"])
def test_every_rotation_of_both_strands_gives_the_same_file(genomes, model, tmp_path, name):
    good("restore", genomes, "--restorer", model, "--out", tmp_path / name)
    wanted = (tmp_path / name).read_bytes()
    for seed in range(4):
        chance = random.Random(seed)
        records = read_fasta(genomes)
        moved = [
            Record(r.header, oriented(r.text, chance.randrange(len(r.text)), chance.randrange(2))) for r in records
        ]
        turned = write(tmp_path / "turned.fa.gz", moved)
        good("restore", turned, "--restorer", model, "--out", tmp_path / name, "--force")
        assert (tmp_path / name).read_bytes() == wanted


def test_sequences_of_low_confidence_stay_unchanged(genomes, model, tmp_path):
    out = tmp_path / "out.fa"
    result = run("restore", genomes, "--restorer", model, "--out", out, "--min-confidence", 0.999)
    assert result.exit_code == 1
    assert "0 of 3" in result.stdout
    assert "g120, g200, g150" in result.stdout
    assert read_fasta(out) == read_fasta(genomes)
    assert {row["oriented"] for row in rows_of(tmp_path / "out.csv")} == {"false"}


def test_the_table_as_json(genomes, model, tmp_path):
    rows = good_json("restore", genomes, "--restorer", model, "--out", tmp_path / "out.fa")
    assert [*rows[0]] == ["name", "length", "start", "strand", "confidence", "tied", "oriented"]


def contents(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "empty"),
        (b">p\nMKVLAAGIVPLLEQ\n", "protein"),
        (b">x\n" + sequence(200, 0).encode() + b"\n>y\n" + b"ACGTAC\n", "y has 6 bases"),
        (b">x\n" + sequence(99, 0).encode() + b"\n>x b\n" + sequence(99, 1).encode(), "(x)"),
        (gzip.compress(b">x\n" + sequence(9999, 0).encode())[:-99], "in.fa.gz"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(content, named, model, tmp_path):
    source = tmp_path / ("in.fa.gz" if content.startswith(b"\x1f") else "in.fa")
    source.write_bytes(content)
    assert named in bad("restore", source, "--restorer", model, "--out", tmp_path / "out.fa")
    assert contents(tmp_path) == {source.name}


def test_places_that_cannot_be_written_are_refused(genomes, model, tmp_path):
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file" / "out.fa", tmp_path, tmp_path / "out.txt", genomes):
        assert str(place.parent) in bad("restore", genomes, "--restorer", model, "--out", place, "--force")
    (tmp_path / "out.csv").write_text("mine")
    assert "out.csv" in bad("restore", genomes, "--restorer", model, "--out", tmp_path / "out.fa")
    assert contents(tmp_path) == {"file", "in.fa", "out.csv"}


def test_a_write_that_fails_leaves_no_partial_file(genomes, model, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    assert "disk is full" in bad("restore", genomes, "--restorer", model, "--out", tmp_path / "out.fa")
    assert contents(tmp_path) == {"in.fa"}


def test_images_and_sequences_do_not_mix(genomes, model, tmp_path):
    place = ("--out", tmp_path / "out.fa")
    assert "a.png" in bad("restore", genomes, "a.png", "--restorer", model, *place)
    assert "1 channel(s) and 2 axes" in bad("restore", genomes, "--restorer", "mnist", *place)
    bad("restore", genomes, "--restorer", model, *place, "--resize")


def test_a_start_is_learnt_from_examples_of_it(tmp_path):
    records = [Record(f"r{n}", MOTIF + sequence(150 + 5 * n, n)) for n in range(24)]
    refs, out = write(tmp_path / "refs.fa", records[:16]), tmp_path / "mine.safetensors"
    options = ("--preset", "sequence", "--turns", "strand", "--epochs", 20, "--learning-rate", 0.01, "--out", out)
    good("fit", refs, *options, "--validation", 2)
    moved = [Record(r.header, oriented(r.text, 31 + 7 * k, k % 2)) for k, r in enumerate(records[16:])]
    good("restore", write(tmp_path / "new.fa", moved), "--restorer", out, "--out", tmp_path / "oriented.fa")
    assert read_fasta(tmp_path / "oriented.fa") == records[16:]
    verified = good_json("verify", refs, "--restorer", out, "--limit", 2, "--all")
    assert (verified["moves"], verified["mismatches"]) == (2 * sum(len(r.text) for r in records[:2]), 0)


def test_verify_of_sequences_is_bounded(genomes, model):
    verified = good_json("verify", genomes, "--restorer", model, "--max-moves", 5)
    assert (verified["exact"], verified["moves"]) == (True, 15)


def test_the_shipped_restorer_finds_trna_phe_in_held_out_genera(tmp_path):
    """Four genomes of GenBank, deposited from tRNA-Phe, of genera that were held out."""
    records = read_fasta(Path(__file__).parents[1] / "data" / "mitogenomes.fa.gz")
    moved = [Record(r.header, oriented(r.text, 4_000 * k + 7, k % 2)) for k, r in enumerate(records)]
    source = write(tmp_path / "moved.fa", moved)
    good("restore", source, "--restorer", "mitogenome", "--out", tmp_path / "out.fa", "--min-confidence", 0.9)
    assert read_fasta(tmp_path / "out.fa") == records
    assert len(records) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("count", "length"), [(1_000, 16_600), (1, 5_000_000)], ids=["mitogenomes", "chromosome"])
def test_memory_is_bounded_for_many_and_for_long_sequences(count, length, tmp_path):
    source = write(tmp_path / "in.fa", [Record(f"g{n}", sequence(length + n, n)) for n in range(count)])
    out = tmp_path / "out.fa"
    megabytes, output = peak("-m", "unshift", "restore", source, "--restorer", "mitogenome", "--out", out)
    assert megabytes < 1_000
    assert f"of {count:,} sequences" in output
