"""Sequences on the command line: restored, learnt from and verified."""

from __future__ import annotations

import csv
import errno
from pathlib import Path

import pytest
from commands import bad, good, good_json, run
from fits import peak
from samples import sequence

from unshift.data.sequences import Record, oriented, read_fasta, to_fasta

MOTIF = "GCTAGCGTAGCTTAACTAAAGCATAACACTGAAG"


def write(path: Path, records: list[Record]) -> Path:
    path.write_bytes(to_fasta(records, path))
    return path


@pytest.fixture
def genomes(tmp_path) -> Path:
    letters = "ACGTacgtRYn"
    return write(tmp_path / "in.fa", [Record(f"g{n} a header", sequence(n, n, letters)) for n in (120, 200, 150)])


def test_restore_writes_what_orient_writes(genomes, model, tmp_path):
    result = good("restore", genomes, "--restorer", model, "--out", tmp_path / "out.fa.gz")
    assert "unshift orient" in result.stderr
    good("orient", genomes, "--restorer", model, "--out", tmp_path / "wanted.fa.gz", "--min-confidence", 0)
    assert (tmp_path / "out.fa.gz").read_bytes() == (tmp_path / "wanted.fa.gz").read_bytes()
    with (tmp_path / "out.csv").open(encoding="utf-8") as file:
        assert [row["result"] for row in csv.DictReader(file)] == ["turned"] * 3
    rows = good_json("restore", genomes, "--restorer", model, "--out", tmp_path / "json.fa")
    assert [row["name"] for row in rows] == ["g120", "g200", "g150"]
    place = ("--out", tmp_path / "low.fa", "--min-confidence", 0.999)
    assert run("restore", genomes, "--restorer", model, *place).exit_code == 1
    assert read_fasta(tmp_path / "low.fa") == read_fasta(genomes)


def test_a_write_that_fails_leaves_no_partial_file(genomes, model, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    assert "disk is full" in bad("orient", genomes, "--restorer", model, "--force", "--out", tmp_path / "out.fa")
    assert {path.name for path in tmp_path.iterdir()} == {"in.fa"}


def test_images_and_sequences_do_not_mix(genomes, model, tmp_path):
    place = ("--out", tmp_path / "out.fa")
    (tmp_path / "a.png").write_bytes(b"no sequence")
    bad_lines = run("restore", genomes, tmp_path / "a.png", "--restorer", model, *place)
    assert bad_lines.exit_code == 2
    assert "a.png" in bad_lines.stderr
    bad("restore", genomes, "--restorer", model, *place, "--resize")


def test_a_start_is_learnt_from_examples_of_it(tmp_path):
    records = [Record(f"r{n}", MOTIF + sequence(150 + 5 * n, n)) for n in range(24)]
    refs, out = write(tmp_path / "refs.fa", records[:16]), tmp_path / "mine.safetensors"
    options = ("--preset", "sequence", "--turns", "strand", "--epochs", 20, "--learning-rate", 0.01, "--out", out)
    good("fit", refs, *options, "--validation", 2)
    moved = [Record(r.header, oriented(r.text, 31 + 7 * k, k % 2)) for k, r in enumerate(records[16:])]
    new = write(tmp_path / "new.fa", moved)
    good("orient", new, "--restorer", out, "--out", tmp_path / "oriented.fa", "--min-confidence", 0)
    assert read_fasta(tmp_path / "oriented.fa") == records[16:]
    verified = good_json("verify", refs, "--restorer", out, "--limit", 2, "--all")
    assert (verified["moves"], verified["mismatches"]) == (2 * sum(len(r.text) for r in records[:2]), 0)


def test_verify_of_sequences_is_bounded(genomes, model):
    verified = good_json("verify", genomes, "--restorer", model, "--max-moves", 5)
    assert (verified["exact"], verified["moves"]) == (True, 15)


def test_the_shipped_restorer_finds_trna_phe_in_genera_it_does_not_know(tmp_path):
    """Four genomes of GenBank, deposited from tRNA-Phe, of genera that were not trained on."""
    records = read_fasta(Path(__file__).parents[1] / "data" / "mitogenomes.fa.gz")
    moved = [Record(r.header, oriented(r.text, 4_000 * k + 7, k % 2)) for k, r in enumerate(records)]
    source = write(tmp_path / "moved.fa", moved)
    good("orient", source, "--out", tmp_path / "out.fa")
    assert read_fasta(tmp_path / "out.fa") == records
    assert len(records) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("count", "length"), [(1_000, 16_600), (1, 5_000_000)], ids=["mitogenomes", "chromosome"])
def test_memory_is_bounded_for_many_and_for_long_sequences(count, length, tmp_path):
    source = write(tmp_path / "in.fa", [Record(f"g{n}", sequence(length + n, n)) for n in range(count)])
    out = tmp_path / "out.fa"
    megabytes, _ = peak("-m", "unshift", "orient", source, "--out", out, "--table", tmp_path / "t.tsv")
    assert megabytes < 1_000
    assert (tmp_path / "t.tsv").read_text().count("\n") == count + 1
