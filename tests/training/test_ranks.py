"""Several processes, one result: `torchrun -m unshift`, really run."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from fits import assert_same
from PIL import Image
from samples import blobs

import unshift
from unshift import ranks

ROOT = Path(unshift.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
FIT = ("fit", "blobs.npy", "--preset", "dense", "--epochs", "3", "--batch-size", "15", "--patience", "9")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pixels = (400 * blobs(100, 1, (12, 12))).round().to(torch.uint8)
    np.save("blobs.npy", pixels.numpy())
    Path("photos").mkdir()
    for i, image in enumerate(pixels[:21]):
        Image.fromarray(image[0].numpy()).save(f"photos/{i:02}.png")
    return tmp_path


def one(*args: object, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unshift", *map(str, args)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, **options)


def torchrun(count: int, *args: object, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(launch(count, *args), env=ENVIRONMENT, capture_output=True, text=True, timeout=240, **options)


def launch(count: int, *args: object) -> list[str]:
    port = socket.create_server(("localhost", 0))
    number = port.getsockname()[1]
    port.close()
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), "--master-port", str(number)),
        *("-m", "unshift", *map(str, args)),
    ]


def by_hand(*commands: tuple[object, ...], **environment: str) -> list[subprocess.Popen[str]]:
    """Start one process for each command line, as ranks of one run, without torchrun to end them."""
    port = socket.create_server(("localhost", 0))
    number = str(port.getsockname()[1])
    port.close()
    shared = {**ENVIRONMENT, "MASTER_ADDR": "localhost", "MASTER_PORT": number, "WORLD_SIZE": str(len(commands))}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "unshift", *map(str, command)],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, command in enumerate(commands)
    ]


def test_alone_there_is_one_rank():
    assert (ranks.rank(), ranks.count(), ranks.is_first()) == (0, 1, True)
    rows = torch.arange(5)
    assert torch.equal(ranks.share(rows), rows)
    assert torch.equal(ranks.gathered(rows), rows)
    assert ranks.summed([1.5]) == [1.5]
    assert ranks.gathered_json([{"a": 1}]) == [{"a": 1}]
    assert ranks.device("cuda") == "cuda"
    with ranks.joined([]):
        assert ranks.count() == 1


@pytest.mark.timeout(300)
def test_two_processes_train_like_one(folder):
    """The same global batches: the same losses to float tolerance, told once, written once."""
    found = torchrun(2, *FIT, "--out", "two.safetensors")
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("trained on 90 images") == 1
    assert found.stderr.count("epoch 1:") == 1
    assert sorted(path.name for path in folder.glob("two*")) == ["two.safetensors"]
    alone = unshift.fit(
        torch.from_numpy(np.load("blobs.npy")), "dense", epochs=3, batch_size=15, patience=9, progress=False
    ).metadata
    together = unshift.load("two.safetensors").metadata
    assert together["train_images"] == alone["train_images"] == 90
    for mine, theirs in zip(together["history"], alone["history"], strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], abs=1e-4)
        assert mine["validation_loss"] == pytest.approx(theirs["validation_loss"], abs=1e-3)
        assert mine["exact"] == theirs["exact"]
    assert together["validation"]["exact"] == alone["validation"]["exact"]


@pytest.mark.slow
def test_ranks_whose_batches_go_through_in_pieces_train_like_one(folder):
    """Photos of 320x320: one at a time, and unequally many for each rank."""
    np.save("large.npy", (255 * torch.rand(12, 3, 320, 320)).to(torch.uint8).numpy())
    fit = ("fit", "large.npy", "--preset", "seam", "--epochs", "1", "--batch-size", "5", "--validation", "2")
    found = torchrun(2, *fit, "--out", "two.safetensors"), one(*fit, "--out", "one.safetensors")
    assert not any(run.returncode for run in found), found
    (together,), (alone,) = (unshift.load(f"{name}.safetensors").metadata["history"] for name in ("two", "one"))
    assert together["loss"] == pytest.approx(alone["loss"], abs=1e-4)
    assert together["validation_loss"] == pytest.approx(alone["validation_loss"], abs=1e-3)


@pytest.mark.slow
def test_a_last_batch_smaller_than_the_ranks_and_files_read_by_workers(folder):
    """91 images in batches of 10: the last batch is one image, and two ranks get nothing of it."""
    options = ("--epochs", 2, "--batch-size", 10, "--validation", 2, "--channels", 1, "--no-test")
    alone = one("fit", "photos", *options, "--out", "one.safetensors")
    assert alone.returncode == 0, alone.stderr
    found = torchrun(3, "fit", "photos", *options, "--workers", 1, "--out", "three.safetensors")
    assert found.returncode == 0, found.stderr
    histories = [unshift.load(f"{name}.safetensors").metadata["history"] for name in ("one", "three")]
    for mine, theirs in zip(*histories, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], abs=1e-4)


@pytest.mark.slow
def test_other_commands_share_their_input_and_give_one_table(folder):
    assert one(*FIT, "--out", "it.safetensors").returncode == 0
    np.savez("labelled.npz", images=np.load("blobs.npy"), labels=np.arange(100) % 3)
    Path("net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.flatten(1) @ torch.linspace(-1, 1, 144 * 3).cos().view(144, 3)\n"
    )
    data = ("--data", "labelled.npz", "--restorer", "it.safetensors")
    for command in (
        ("evaluate", *data, "--classifier", "net:Net", "--scopes", "0,3", "--seeds", 2, "--json"),
        ("verify", *data, "--all", "--sample", 4, "--limit", 9, "--json"),
    ):
        alone, together = one(*command), torchrun(2, *command)
        assert together.returncode == alone.returncode == 0, together.stderr
        wanted, found = ({**json.loads(run.stdout), "seconds": 0} for run in (alone, together))
        if command[0] == "evaluate":  # a sum of floats, in another order
            assert found["rates"].pop("confidence") == pytest.approx(wanted["rates"].pop("confidence"))
        assert found == wanted
    Path("photos/05.png").write_text("broken")
    restore = ("restore", "photos", "--restorer", "it.safetensors", "--skip-unreadable")
    alone, together = one(*restore, "--out", "a"), torchrun(2, *restore, "--out", "b")
    assert together.returncode == alone.returncode == 0, together.stderr
    assert together.stdout.replace("b/", "a/") == alone.stdout
    assert [path.name for path in sorted(Path("b").iterdir())] == [path.name for path in sorted(Path("a").iterdir())]
    assert all((Path("b") / path.name).read_bytes() == path.read_bytes() for path in Path("a").iterdir())


@pytest.mark.slow
def test_what_cannot_be_shared_is_refused(folder):
    few = torchrun(2, "fit", "blobs.npy", "--validation", 99, "--out", "x.safetensors")
    assert "2 processes are more than the 1 images" in few.stderr
    other = torchrun(2, "models")
    assert "only fit, evaluate, restore, verify can run as several processes; run `unshift models`" in other.stderr
    assert other.returncode == few.returncode == 1
    assert not Path("x.safetensors").exists()


@pytest.mark.slow
def test_ranks_that_disagree_about_the_arguments_are_refused(folder):
    processes = by_hand((*FIT, "--out", "x.safetensors"), (*FIT, "--out", "x.safetensors", "--seed", 1))
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "must have the same arguments" in errors
        assert "--seed 1" in errors
    assert not Path("x.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_lost_ends_the_run(folder, how):
    """Killed, its connections close; stopped, it does not answer within the time limit."""
    command = (*FIT[:5], "2000", *FIT[6:], "--out", "x.safetensors")
    processes = by_hand(command, command, UNSHIFT_RANK_TIMEOUT="8")
    wait_for_state(processes[0], Path("x.safetensors.checkpoint"))
    processes[1].send_signal(how)
    started = time.monotonic()
    _, errors = processes[0].communicate(timeout=120)
    processes[1].kill()
    processes[1].communicate()
    assert time.monotonic() - started < 60
    assert processes[0].returncode == 2, errors
    assert "another process of the run ended, or did not answer" in errors.splitlines()[-1]


def wait_for_state(process: subprocess.Popen[str], state: Path, before: int = 0) -> None:
    while process.poll() is None and (not state.exists() or state.stat().st_mtime_ns == before):
        time.sleep(0.02)


def children(parent: int) -> list[int]:
    """The ranks that a torchrun started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True).stdout
    return [int(number) for number in listed.split()]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_twenty_kills_of_a_rank_and_the_same_weights(folder):
    """Each time torchrun ends the others, and the next run goes on from the last checkpoint."""
    dice = random.Random(0)
    command = (*FIT[:5], "60", *FIT[6:-1], "60", "--resume")
    whole = torchrun(2, *command, "--out", "whole.safetensors")
    assert whole.returncode == 0, whole.stderr
    state, kills = Path("x.safetensors.checkpoint"), 0
    while kills < 20:
        before = state.stat().st_mtime_ns if state.exists() else 0
        run = subprocess.Popen(
            launch(2, *command, "--out", "x.safetensors"),
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for_state(run, state, before)
        time.sleep(dice.uniform(0, 0.1))
        if victims := children(run.pid):
            os.kill(dice.choice(victims), signal.SIGKILL)
        _, errors = run.communicate(timeout=120)
        if run.returncode:
            kills += 1
            assert "SIGKILL" in errors or "Signal 9" in errors
        else:
            assert_same(unshift.load("x.safetensors"), unshift.load("whole.safetensors"))
            Path("x.safetensors").unlink()
    last = torchrun(2, *command, "--out", "x.safetensors")
    assert last.returncode == 0, last.stderr
    assert_same(unshift.load("x.safetensors"), unshift.load("whole.safetensors"))
    assert not state.exists()


@pytest.mark.slow
def test_another_number_of_ranks_goes_on_and_restarts_go_on_by_themselves(folder):
    command = (*FIT[:5], "60", *FIT[6:-1], "60", "--out", "x.safetensors")
    state = Path("x.safetensors.checkpoint")
    run = subprocess.Popen(launch(2, *command), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    wait_for_state(run, state)
    os.kill(children(run.pid)[0], signal.SIGKILL)
    run.communicate(timeout=120)
    assert run.returncode != 0
    assert one(*command, "--resume").returncode == 0
    alone = one(*command[:-1], "alone.safetensors")
    assert alone.returncode == 0
    histories = [unshift.load(f"{name}.safetensors").metadata["history"] for name in ("x", "alone")]
    for mine, theirs in zip(*histories, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], abs=0.02)
    Path("x.safetensors").unlink()
    restarting = launch(2, *command)
    restarting[3:3] = ["--max-restarts", "2"]
    run = subprocess.Popen(restarting, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    wait_for_state(run, state)
    os.kill(children(run.pid)[0], signal.SIGKILL)
    _, errors = run.communicate(timeout=240)
    assert run.returncode == 0, errors
    assert len(unshift.load("x.safetensors").metadata["history"]) == 60
