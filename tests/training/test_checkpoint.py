"""Checkpoints of fit: a run that is killed at any moment goes on to the same weights."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from fits import ENVIRONMENT, Killed, Mortal, assert_same, moved_for_real, quick
from safetensors import safe_open
from safetensors.torch import save_file
from samples import blobs
from torch import Tensor

import unshift
from unshift import fit, training
from unshift.checkpoint import Checkpoint
from unshift.coordinates import Turns

HOW = {
    "paper": {},
    "seam": {"preset": "seam"},
    "average": {"preset": "dense", "average": 0.5},
    "augmented": {"augment": ["mirror", moved_for_real], "average": 0.9},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("in_save", [False, True])
def test_a_run_stopped_at_any_save_goes_on_to_the_same_weights(images, how, in_save, tmp_path, monkeypatch):
    options = {"epochs": 2, **HOW[how]}
    wanted = quick(images, **options)  # 4 steps an epoch: 8 saves
    path = tmp_path / "state"
    for life in range(1, 9):
        with monkeypatch.context() as patch:
            patch.setattr(training, "Checkpoint", Mortal)
            patch.setattr(Mortal, "life", life)
            patch.setattr(Mortal, "in_save", in_save)
            with pytest.raises(Killed):
                quick(images, **options, checkpoint=path)
        assert path.exists() == (life > 1 or not in_save)
        assert_same(quick(images, **options, checkpoint=path, resume=True), wanted)
        assert not path.exists()


def test_a_run_stopped_again_and_again_gets_there(images, tmp_path, monkeypatch):
    wanted = quick(images, epochs=2)
    monkeypatch.setattr(training, "Checkpoint", Mortal)
    monkeypatch.setattr(Mortal, "life", 1)
    stops = 0
    while True:
        try:
            found = quick(images, epochs=2, checkpoint=tmp_path / "state", resume=True)
            break
        except Killed:
            stops += 1
    assert stops == 8
    assert_same(found, wanted)


def test_a_checkpoint_changes_nothing(images, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "Checkpoint", functools.partial(Checkpoint, every_seconds=0.0))
    assert_same(quick(images, checkpoint=tmp_path / "deep" / "state"), quick(images))
    assert list((tmp_path / "deep").iterdir()) == []


def stopped(images: Tensor, path: Path, monkeypatch, **options) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(training, "Checkpoint", Mortal)
        patch.setattr(Mortal, "life", 2)
        with pytest.raises(Killed):
            quick(images, checkpoint=path, **options)


def test_a_write_that_fails_leaves_the_checkpoint_before_it(images, tmp_path, monkeypatch):
    path = tmp_path / "state"
    stopped(images, path, monkeypatch)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            quick(images, checkpoint=path, resume=True)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert_same(quick(images, checkpoint=path, resume=True), quick(images))


def test_without_resume_a_checkpoint_is_overwritten(images, tmp_path, monkeypatch):
    stopped(images, tmp_path / "state", monkeypatch, seed=7)
    assert_same(quick(images, checkpoint=tmp_path / "state"), quick(images))


def test_to_resume_without_a_checkpoint_is_to_start(images, tmp_path):
    assert_same(quick(images, checkpoint=tmp_path / "state", resume=True), quick(images))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"epochs": 4}, "epochs"),
        ({"batch_size": 8}, "batch_size"),
        ({"learning_rate": 0.5}, "learning_rate"),
        ({"patience": 2}, "patience"),
        ({"data_name": "other"}, "data"),
        ({"validation": 9}, "train_images"),
        ({"preset": "dense"}, "learning_rate, network, preset"),
        ({"average": 0.9}, "average"),
        ({"augment": ["mirror"]}, "augment"),
        ({"coordinates": Turns("half")}, "coordinates"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(images, changes, named, tmp_path, monkeypatch):
    stopped(images, tmp_path / "state", monkeypatch)
    with pytest.raises(
        ValueError, match=rf"state: a checkpoint of another run \(other settings: [\w, ]*{named}[\w, ]*\)"
    ):
        quick(images, **changes, checkpoint=tmp_path / "state", resume=True)


def test_a_checkpoint_of_other_images_is_refused(images, tmp_path, monkeypatch):
    stopped(images, tmp_path / "state", monkeypatch)
    with pytest.raises(ValueError, match="a checkpoint of another run"):
        quick(images.flip(3), checkpoint=tmp_path / "state", resume=True)


@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "foreign", "folder"])
def test_a_damaged_checkpoint_is_refused_by_name(images, damage, tmp_path, monkeypatch):
    path = tmp_path / "state"
    stopped(images, path, monkeypatch)
    data = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "foreign":
        quick(images).save(path)
    else:
        path.write_bytes({"cut": data[:-9], "noise": b"noise" * 99, "empty": b""}[damage])
    with pytest.raises(ValueError, match=r"state: not a readable checkpoint .*; delete it to start over"):
        quick(images, checkpoint=path, resume=True)


@pytest.mark.parametrize("part", ["weights.", "best.", "optimizer.", "averaged."])
def test_a_checkpoint_without_a_part_of_its_state_is_refused(images, part, tmp_path, monkeypatch):
    """Above all the optimiser's moments: without them the run would go on, to other weights."""
    path = tmp_path / "state"
    stopped(images, path, monkeypatch, average=0.9)
    with safe_open(str(path), framework="pt") as file:
        kept = {name: file.get_tensor(name) for name in file.keys() if not name.startswith(part)}  # noqa: SIM118
        save_file(kept, tmp_path / "less", file.metadata())
    (tmp_path / "less").replace(path)
    with pytest.raises(ValueError, match=r"state: not a readable checkpoint .*; delete it to start over"):
        quick(images, checkpoint=path, resume=True, average=0.9)


# --- killed, really --------------------------------------------------------------------------------


# One process that has imported everything; each line it reads is a command line of `unshift`, run in a
# fork of it, so that a kill does not cost a start. It trains nothing itself: autograd dislikes forks.
NURSERY = """
import json, os, sys
import torch
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.zeros(2))
weight.grad = torch.zeros(2)
torch.optim.Adam([weight]).step()  # its first step imports a great deal
import unshift.cli, unshift.data.sources
from unshift.checkpoint import Checkpoint
Checkpoint.__init__.__defaults__ = (0.0,)  # a checkpoint after every step, so that kills land in saves
for line in sys.stdin:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        unshift.cli.app(json.loads(line), prog_name="unshift")
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def assert_all_files_load(folder: Path) -> None:
    """A kill may leave a hidden half file behind; what bears a name is whole."""
    for path in folder.iterdir():
        if path.name == "out.safetensors":
            unshift.load(path)
        elif path.name == "out.safetensors.checkpoint":
            with safe_open(str(path), framework="pt") as file:
                assert all(len(file.get_tensor(name).shape) < 9 for name in file.keys())  # noqa: SIM118
                json.loads(file.metadata()["unshift-checkpoint"])
        else:
            assert path.name.startswith(".out.safetensors."), path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.slow
def test_twenty_kills_at_random_moments_and_the_same_weights(tmp_path, threads):
    """3 kills of `python -m unshift.cli fit`, 17 of forks that run the same command."""
    dice = random.Random(0)
    source, folder = tmp_path / "blobs.npy", tmp_path / "run"
    pixels = (400 * blobs(200, 1, (12, 12))).round().to(torch.uint8)
    np.save(source, pixels.numpy())
    folder.mkdir()
    out, state = folder / "out.safetensors", folder / "out.safetensors.checkpoint"
    threads(1)
    wanted = fit(pixels, epochs=30, patience=30, batch_size=16, progress=False)
    command = ["fit", str(source), "--epochs", "30", "--patience", "30", "--batch-size", "16", "--threads", "1"]
    cli = [sys.executable, "-m", "unshift.cli"]
    resume = [*command, "--out", str(out), "--resume"]

    kills = 0
    while kills < 3:
        before = state.stat().st_mtime_ns if state.exists() else 0
        process = subprocess.Popen([*cli, *resume], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None and (not state.exists() or state.stat().st_mtime_ns == before):
            time.sleep(0.01)  # until it trains: a kill during the start is no test
        time.sleep(dice.uniform(0, 0.15))
        process.kill()
        _, errors = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), errors.decode()
        kills += process.returncode != 0
        assert_all_files_load(folder)
        if process.returncode == 0:
            assert_same(unshift.load(out), wanted)
            out.unlink()

    finished = 0
    nursery = subprocess.Popen(
        [sys.executable, "-c", NURSERY], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with nursery:
        while kills < 20 or not finished:
            print(json.dumps(resume), file=nursery.stdin, flush=True)
            child = int(nursery.stdout.readline())
            if kills < 20:
                time.sleep(dice.uniform(0.05, 0.8))
                with contextlib.suppress(ProcessLookupError):  # it may have finished
                    os.kill(child, signal.SIGKILL)
            code = int(nursery.stdout.readline())
            assert code in (0, -signal.SIGKILL)
            kills += code != 0
            assert_all_files_load(folder)
            if code == 0:
                finished += 1
                assert not state.exists()
                assert_same(unshift.load(out), wanted)
                out.unlink()
        nursery.stdin.close()
