"""Several processes, one result: `torchrun -m unshift`, really run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from fits import ENVIRONMENT
from PIL import Image
from samples import blobs

import unshift
from unshift import distributed as ranks

STATE = Path("x.safetensors.checkpoint")


def fit(epochs: int = 3, out: str = "x.safetensors") -> tuple[str, ...]:
    options = f"--preset dense --epochs {epochs} --patience {epochs} --batch-size 15 --out {out}"
    return ("fit", "blobs.npy", *options.split())


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pixels = (400 * blobs(100, 1, (12, 12))).round().to(torch.uint8)
    np.save("blobs.npy", pixels.numpy())
    Path("photos").mkdir()
    for i, image in enumerate(pixels[:21]):
        Image.fromarray(image[0].numpy()).save(f"photos/{i:02}.png")
    return tmp_path


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *map(str, words)], env=ENVIRONMENT, capture_output=True, text=True)


def one(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run("unshift", *arguments)


def free_port() -> str:
    with socket.create_server(("localhost", 0)) as server:
        return str(server.getsockname()[1])


def launch(count: int, *arguments: object, restarts: int = 0) -> list[str]:
    options = f"--nproc-per-node {count} --max-restarts {restarts} --master-port {free_port()} -m unshift"
    return ["torch.distributed.run", *options.split(), *map(str, arguments)]


def torchrun(count: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run(*launch(count, *arguments))


def start(*words: str, **environment: str) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", *words], env={**ENVIRONMENT, **environment}, **pipes)


def without_torchrun(*commands: tuple[str, ...], **environment: str) -> list[subprocess.Popen[str]]:
    """Start one rank for each command line, with nothing to end the others."""
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port(), "WORLD_SIZE": str(len(commands)), **environment}
    return [
        start("unshift", *command, **shared, RANK=str(rank), LOCAL_RANK=str(rank))
        for rank, command in enumerate(commands)
    ]


def wait_for_state(process: subprocess.Popen[str], before: int = 0) -> None:
    while process.poll() is None and (not STATE.exists() or STATE.stat().st_mtime_ns == before):
        time.sleep(0.02)


def kill_a_rank(torchrun: subprocess.Popen[str], which: int = 0) -> None:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(torchrun.pid)], capture_output=True, text=True).stdout
    if children := listed.split():
        os.kill(int(children[which % len(children)]), signal.SIGKILL)


def assert_close(one: str, other: str, loss: float, validation_loss: float = 9.0) -> None:
    histories = [unshift.load(name).metadata["history"] for name in (one, other)]
    for mine, theirs in zip(*histories, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], abs=loss)
        assert mine["validation_loss"] == pytest.approx(theirs["validation_loss"], abs=validation_loss)


def test_alone_there_is_one_rank():
    assert (ranks.rank(), ranks.count(), ranks.is_first()) == (0, 1, True)
    rows = torch.arange(5)
    assert torch.equal(ranks.share(rows), rows)
    assert torch.equal(ranks.gathered(rows), rows)
    assert ranks.summed([1.5]) == [1.5]
    assert ranks.gathered_json([{"a": 1}]) == [{"a": 1}]
    assert ranks.device("cuda") == "cuda"
    with ranks.process_group([]):
        assert ranks.count() == 1


@pytest.mark.timeout(300)
def test_two_processes_train_like_one(folder):
    """The same global batches: the same losses to float tolerance, logged once, written once.

    91 images in batches of 15: one rank has no image of the last batch.
    """
    two = torchrun(2, *fit(2, "two.safetensors"), "--validation", 9)
    assert two.returncode == 0, two.stderr
    assert two.stdout.count("trained on") == 1
    assert two.stderr.count("epoch 1:") == 1
    assert sorted(path.name for path in folder.glob("two*")) == ["two.safetensors"]
    pixels = torch.from_numpy(np.load("blobs.npy"))
    unshift.fit(pixels, "dense", epochs=2, batch_size=15, validation=9, progress=False).save("one.safetensors")
    assert_close("two.safetensors", "one.safetensors", 1e-4, 1e-3)
    together, alone = (unshift.load(f"{name}.safetensors").metadata for name in ("two", "one"))
    assert together["train_images"] == alone["train_images"] == 91
    assert together["validation"]["exact"] == alone["validation"]["exact"]
    assert [epoch["exact"] for epoch in together["history"]] == [epoch["exact"] for epoch in alone["history"]]


@pytest.mark.slow
def test_other_commands_share_their_input_and_give_one_table(folder):
    assert one(*fit(out="it.safetensors")).returncode == 0
    np.savez("labelled.npz", images=np.load("blobs.npy"), labels=np.arange(100) % 3)
    Path("net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.flatten(1) @ torch.linspace(-1, 1, 144 * 3).cos().view(144, 3)\n"
    )
    data = ("labelled.npz", "--restorer", "it.safetensors")
    for command in (
        ("evaluate", *data, "--classifier", "net:Net", "--scope", "0,3", "--repeats", 2, "--json"),
        ("verify", *data, "--max-moves", 4, "--limit", 9, "--json"),
    ):
        alone, together = one(*command), torchrun(2, *command)
        assert together.returncode == alone.returncode == 0, together.stderr
        wanted, result = ({**json.loads(run.stdout), "seconds": 0} for run in (alone, together))
        if command[0] == "evaluate":  # a sum of floats, in another order
            assert result["rates"].pop("confidence") == pytest.approx(wanted["rates"].pop("confidence"))
        assert result == wanted
    Path("photos/05.png").write_text("broken")
    restore = ("restore", "photos", "--restorer", "it.safetensors", "--skip-unreadable")
    alone, together = one(*restore, "--out", "a"), torchrun(2, *restore, "--out", "b")
    assert together.returncode == alone.returncode == 0, together.stderr
    assert together.stdout.replace("b/", "a/") == alone.stdout
    assert [path.name for path in sorted(Path("b").iterdir())] == [path.name for path in sorted(Path("a").iterdir())]
    assert all((Path("b") / path.name).read_bytes() == path.read_bytes() for path in Path("a").iterdir())


@pytest.mark.slow
def test_invalid_runs_are_refused(folder):
    few = torchrun(2, *fit(), "--validation", 99)
    assert "2 processes" in few.stderr
    other = torchrun(2, "models")
    assert "fit, evaluate, restore, verify" in other.stderr
    assert other.returncode == few.returncode == 1
    for process in without_torchrun(fit(), (*fit(), "--seed", "1")):
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "--seed 1" in errors
    assert not Path("x.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_rank_ends_the_run(folder, how):
    """Killed, its connections close; stopped, it does not answer within the time limit."""
    processes = without_torchrun(fit(2000), fit(2000), UNSHIFT_RANK_TIMEOUT="8")
    wait_for_state(processes[0])
    processes[1].send_signal(how)
    started = time.monotonic()
    _, errors = processes[0].communicate(timeout=120)
    processes[1].kill()
    processes[1].communicate()
    assert time.monotonic() - started < 60
    assert processes[0].returncode == 2, errors
    assert "another process" in errors.splitlines()[-1]


@pytest.mark.slow
def test_a_run_resumes_with_another_number_of_ranks_and_by_itself(folder):
    process = start(*launch(2, *fit(60)))
    wait_for_state(process)
    kill_a_rank(process)
    process.communicate(timeout=120)
    assert process.returncode != 0
    assert one(*fit(60), "--resume").returncode == one(*fit(60, "alone.safetensors")).returncode == 0
    assert_close("x.safetensors", "alone.safetensors", 0.02)
    Path("x.safetensors").unlink()
    process = start(*launch(2, *fit(60), restarts=2))
    wait_for_state(process)
    kill_a_rank(process)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert len(unshift.load("x.safetensors").metadata["history"]) == 60
