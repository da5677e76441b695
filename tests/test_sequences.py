"""Circular sequences: FASTA files, letters as channels, and arrays of different lengths in one call."""

from __future__ import annotations

import gzip

import pytest
import torch
from samples import sequence

import unshift
from unshift.coordinates import Shifts, Turns
from unshift.data.sequences import Record, encode, encode_letters, oriented, read_fasta, to_fasta
from unshift.evaluation import restoration_rates

pytestmark = pytest.mark.filterwarnings("ignore:this is near guessing")

LETTERS = "ACGTRYSWKMBDHVNacgtryswkmbdhvn"


@pytest.fixture(scope="module")
def restorer() -> unshift.Restorer:
    """Return a restorer with random weights: exactness does not depend on training."""
    torch.manual_seed(0)
    sample = [encode(sequence(n, n)) for n in (300, 310, 340)]
    scorer = unshift.quantise(unshift.ShiftEstimator.preset("sequence", 4, (300,)), sample)
    return unshift.Restorer(scorer, coordinates=Turns("strand")).eval()


# --- letters -----------------------------------------------------------------------------------------------


def test_letters_are_encoded_as_shares_of_the_bases():
    assert torch.equal(encode("ACGT"), torch.eye(4, dtype=torch.float16))
    assert encode("R").flatten().tolist() == [0.5, 0, 0.5, 0]
    assert encode("nU").T.tolist() == [[0.25] * 4, [0, 0, 0, 1]]
    assert torch.allclose(encode(LETTERS).sum(0), torch.ones(len(LETTERS), dtype=torch.float16), atol=1e-3)


def test_reversing_the_channels_is_the_complement():
    text = sequence(99, 0, LETTERS)
    other = oriented(text, 0, 1)
    assert other != text
    assert torch.equal(encode(other), encode(text).flip([0, 1]))
    assert torch.equal(encode_letters(other), encode_letters(text).flip([0, 1]))


def test_the_complement_keeps_case_ambiguity_and_rna():
    assert oriented("aCGTRyn", 0, 1) == "nrYACGt"
    assert oriented("ACGU", 0, 1) == "ACGU"
    assert oriented("AAcU", 0, 1) == "AgUU"


@pytest.mark.parametrize("turn", [0, 1])
def test_text_is_turned_like_arrays(turn):
    text, coordinates = sequence(50, 1, LETTERS), Turns("strand")
    pose = unshift.Estimate(torch.tensor([[17]]), torch.tensor([turn]), None, torch.ones(1), torch.zeros(1))
    turned = coordinates.undo(encode_letters(text)[None], pose)[0, 0]
    assert bytes(turned.tolist()).decode() == oriented(text, 17, turn)


# --- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.fa", "a.fasta.gz", "a.fna.bz2"])
def test_fasta_is_read_back_as_it_was_written(tmp_path, name):
    records = [Record("one of two", sequence(200, 0, LETTERS)), Record("two", "ACGT")]
    (tmp_path / name).write_bytes(to_fasta(records, tmp_path / name))
    assert read_fasta(tmp_path / name) == records
    assert records[0].name == "one"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b">x\n>y\nAC\n", r"1 \(x\) is empty"),
        (b">p\nMKVLAAGIVPLLEQ\n", r"1 \(p\).*'E', 'I'.*protein"),
        (b">p\nAC-GT\n", "gaps"),
        (b">p\nACUT\n", "T and U"),
        (b"ACGT\n", "FASTA"),
        (b">\xff\nACGT\n", "FASTA"),
        (gzip.compress(b">x\n" + sequence(9999, 0).encode())[:-99], "x.fa.gz"),
    ],
)
def test_files_that_hold_no_nucleotides_are_refused(tmp_path, content, message):
    path = tmp_path / ("x.fa.gz" if content.startswith(b"\x1f") else "x.fa")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_fasta(path)


# --- arrays of different lengths ---------------------------------------------------------------------------


def test_a_list_is_restored_like_its_parts(restorer):
    texts = [sequence(n, n) for n in (97, 200, 200, 341)]
    arrays = [encode(text) for text in texts]
    found = restorer.estimate(arrays)
    assert found.shift.shape == (4, 1)
    for k, array in enumerate(arrays):
        alone = restorer.estimate(array[None])
        assert all(torch.equal(a[k : k + 1], b) for a, b in zip(found, alone, strict=True) if a is not None)
    restored = restorer.restore(arrays)
    assert [r.shape for r in restored] == [a.shape for a in arrays]
    assert all(torch.equal(r, restorer(a[None])[0]) for r, a in zip(restored, arrays, strict=True))
    assert all(torch.equal(r, a) for r, a in zip(restorer.redo(restored, found), arrays, strict=True))


def test_every_rotation_of_both_strands_has_one_answer(restorer):
    arrays = [encode(sequence(n, n)) for n in (97, 120)]
    result = unshift.verify(restorer, arrays)
    assert (result.images, result.moves, result.mismatches, result.complete) == (2, 2 * (97 + 120), 0, True)
    part = unshift.verify(restorer, arrays, moves=20)
    assert (part.moves, part.mismatches, part.possible, part.complete) == (40, 0, 2 * (97 + 120), False)


def test_verify_catches_a_scorer_that_is_not_exact_on_a_list():
    class First(torch.nn.Module):
        def forward(self, images):
            return torch.arange(images.shape[-1]).expand(len(images), -1)

    found = unshift.verify(unshift.Restorer(First(), coordinates=Shifts()), [encode("ACGTT"), encode("GATTACA")])
    assert found.mismatches == 10


def test_ties_between_texts_are_broken_by_the_target(restorer):
    """Two tied starts restore to the same bases but to different letter cases."""
    half = sequence(150, 5)
    text = half.lower() + half
    wanted = None
    for shift in range(0, 300, 7):
        for turn in (0, 1):
            moved = oriented(text, shift, turn)
            found = restorer.estimate([encode(moved)], [encode_letters(moved)])
            assert bool(found.tied)
            restored = oriented(moved, int(found.shift), int(found.turn))
            assert wanted in (None, restored)
            wanted = restored


def test_an_empty_list_is_refused(restorer):
    with pytest.raises(ValueError, match="empty"):
        restorer.estimate([])
    with pytest.raises(ValueError, match="sample"):
        unshift.quantise(unshift.ShiftEstimator.preset("sequence", 4, (300,)), [])


def test_a_network_of_lines_needs_samples_of_one_size():
    net = unshift.ShiftEstimator.preset("seam", 4, (300,))
    with pytest.raises(ValueError, match="2 sizes"):
        unshift.quantise(net, [encode(sequence(300, 0)), encode(sequence(301, 0))])


# --- training --------------------------------------------------------------------------------------------


def upright(count: int) -> list[torch.Tensor]:
    return [encode("GGGGGCCCCCAAAAATTTTT" + sequence(60 + 3 * n, n)) for n in range(count)]


def test_fit_on_sequences_of_many_lengths():
    arrays = upright(16)
    settings = {"preset": "sequence", "learning_rate": 0.01, "progress": False, "coordinates": Turns("strand")}
    made = unshift.fit(arrays[:12], epochs=12, **settings)
    assert made.trained_on["size"] == []
    assert restoration_rates(made, arrays[12:]).exact == 1
    again = unshift.fit(arrays[:12], epochs=12, **settings)
    assert all(torch.equal(a, b) for a, b in zip(made.state_dict().values(), again.state_dict().values(), strict=True))


def test_arrays_that_differ_in_channels_are_refused():
    with pytest.raises(ValueError, match="differ"):
        unshift.fit([torch.rand(4, 50), torch.rand(3, 60), torch.rand(4, 70)], "sequence", progress=False)
