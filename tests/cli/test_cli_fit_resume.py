"""``unshift fit`` keeps what it has: no file overwritten, no run lost."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import QUICK, bad, good, run

import unshift
from unshift import training


def test_fit_does_not_overwrite(made):
    out, again = "x.safetensors", ("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK)
    good(*again)
    first = Path(out).read_bytes()
    assert bad(*again) == "x.safetensors exists; --force overwrites it, --resume goes on with it"
    assert Path(out).read_bytes() == first
    good(*again, "--force", "--seed", 1)
    assert Path(out).read_bytes() != first


def test_resuming_a_finished_run_leaves_it_alone(made):
    again = ("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK)
    good(*again)
    first = Path("x.safetensors").read_bytes()
    result = good(*again, "--resume")
    assert "finished already" in result.stderr
    assert Path("x.safetensors").read_bytes() == first
    message = bad(*again, "--resume", "--seed", 1, "--pad", 1)
    assert (
        message
        == "x.safetensors is the result of another run (other settings: preparation, seed); --force overwrites it"
    )


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ((), ("--moves", "zeros"), "moves"),
        (("--moves", "zeros", "--scope", 2), ("--moves", "edge", "--scope", 2), "moves"),
        (("--moves", "zeros", "--scope", 2), ("--moves", "zeros", "--scope", 3), "scope"),
        ((), ("--unaligned",), "aligned"),
        (("--window", 8, "--preset", "scene"), ("--window", 8, "--preset", "scene", "--scene", 20), "scene"),
    ],
    ids=["circular", "kind", "scope", "aligned", "scene"],
)
def test_resuming_a_finished_run_with_other_moves_is_refused(made, one, other, differ):
    np.save("some.npy", np.load(made / "blobs.npy")[:20])
    again = ("fit", "some.npy", "--out", "x.safetensors", *QUICK)
    good(*again, *one)
    assert f"the result of another run (other settings: {differ});" in bad(*again, *other, "--resume")
    assert "finished already" in good(*again, *one, "--resume").stderr


def interrupted_fit(made, monkeypatch, out: str = "x.safetensors") -> None:
    """Leave a checkpoint behind, as a kill after the first epoch would."""
    real = training.Checkpoint.save

    def stop(self, state):
        real(self, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training.Checkpoint, "save", stop)
        result = run("fit", made / "blobs.npy", "--out", out, *QUICK)
    assert result.exit_code == 130
    first, last = [line for line in result.stderr.strip().splitlines() if line and not line.startswith("fit")]
    assert first == f"the state is in {out}.checkpoint: the same command with --resume goes on"
    assert last == "unshift: error: interrupted"


def test_an_interrupt_before_the_first_checkpoint_names_no_file(made, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("unshift.training_run.augmented", stop)
    result = run("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK)
    assert result.exit_code == 130
    assert "checkpoint" not in result.stderr
    assert "stopped before there was a state to keep" in result.stderr
    assert os.listdir() == []


def test_an_interrupted_run_is_resumed_and_never_lost_by_mistake(made, monkeypatch):
    interrupted_fit(made, monkeypatch)
    again = ("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK)
    assert "is left from a run that did not finish; --resume goes on, --force starts over" in bad(*again)
    assert "a checkpoint of another run (other settings: seed)" in bad(*again, "--resume", "--seed", 1)
    good(*again, "--resume")
    good(*again[:3], "y.safetensors", *QUICK)
    resumed, whole = unshift.load("x.safetensors"), unshift.load("y.safetensors")
    for name, tensor in whole.scorer.state_dict().items():
        assert torch.equal(tensor, resumed.scorer.state_dict()[name])
    assert whole.metadata["history"] == resumed.metadata["history"]
    interrupted_fit(made, monkeypatch, "z.safetensors")
    good(*again[:3], "z.safetensors", *QUICK, "--force")
    assert not Path("z.safetensors.checkpoint").exists()


def test_a_damaged_checkpoint_is_named(made):
    Path("x.safetensors.checkpoint").write_bytes(b"nonsense")
    message = bad("fit", made / "blobs.npy", "--out", "x.safetensors", "--resume")
    assert message.startswith("x.safetensors.checkpoint: not a readable checkpoint")


def test_fit_looks_at_its_output_before_it_trains(made, monkeypatch):
    monkeypatch.setattr(training, "fit", lambda *args, **options: pytest.fail("it trained"))
    Path("file").write_text("")
    assert bad("fit", made / "blobs.npy", "--out", ".") == "--out . is a folder; give the name of a file in it"
    assert bad("fit", made / "blobs.npy", "--out", "file/x.safetensors").startswith("cannot write to file (")
    assert bad("fit", made / "blobs.npy", "--out", "x", "--checkpoint", "file/c").startswith("cannot write to file (")
    assert bad("fit", made / "blobs.npy", "--out", "/proc/nothing/x").startswith("cannot write to /proc/nothing (")
