"""Checkpoints of fit: a run that is killed at any moment resumes to the same weights, and leaves nothing behind."""

from __future__ import annotations

import functools
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from fits import ENVIRONMENT, Killed, Mortal, assert_same, moved_at_random, quick
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from samples import blobs
from torch import Tensor

import unshift
from unshift.coordinates import Turns
from unshift.data import ImageFolder
from unshift.training import fitting
from unshift.training.checkpoint import KEY, Checkpoint

OPTIONS = {
    "paper": {},
    "seam": {"preset": "seam"},
    "average": {"preset": "dense", "average": 0.5},
    "augmented": {"augment": ["mirror", moved_at_random], "average": 0.9},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_a_run_killed_at_any_save_resumes_to_the_same_weights(images, case, tmp_path, monkeypatch):
    options = {"epochs": 2, **OPTIONS[case]}
    wanted = quick(images, **options)  # 4 steps an epoch: 8 saves
    path = tmp_path / "state"
    for life, in_save in ((1, True), (2, False), (4, True), (4, False), (5, False), (8, True)):
        with monkeypatch.context() as patch:
            patch.setattr(fitting, "Checkpoint", Mortal)
            patch.setattr(Mortal, "life", life)
            patch.setattr(Mortal, "in_save", in_save)
            with pytest.raises(Killed):
                quick(images, **options, checkpoint=path)
        assert path.exists() == (life > 1 or not in_save)
        assert_same(quick(images, **options, checkpoint=path, resume=True), wanted)
        assert not path.exists()


def test_a_checkpoint_does_not_change_the_result(images, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "Checkpoint", functools.partial(Checkpoint, every_seconds=0.0))
    assert_same(quick(images, checkpoint=tmp_path / "deep" / "state"), quick(images))
    assert list((tmp_path / "deep").iterdir()) == []


def kill_second_save(images: Tensor, path: Path, monkeypatch, **options) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "Checkpoint", Mortal)
        patch.setattr(Mortal, "life", 2)
        with pytest.raises(Killed):
            quick(images, checkpoint=path, **options)


def test_without_resume_a_checkpoint_is_overwritten(images, tmp_path, monkeypatch):
    kill_second_save(images, tmp_path / "state", monkeypatch, seed=7)
    assert_same(quick(images, epochs=1, checkpoint=tmp_path / "state"), quick(images, epochs=1))


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
    kill_second_save(images, tmp_path / "state", monkeypatch)
    with pytest.raises(ValueError, match=rf"state: .*\b{named}\b"):
        quick(images, **changes, checkpoint=tmp_path / "state", resume=True)


def test_a_checkpoint_of_other_images_is_refused(images, tmp_path, monkeypatch):
    kill_second_save(images, tmp_path / "state", monkeypatch)
    with pytest.raises(ValueError, match=r"state: .*\bimages\b"):
        quick(images.flip(3), checkpoint=tmp_path / "state", resume=True)


@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "foreign", "incomplete", "folder"])
def test_a_damaged_checkpoint_is_refused_by_name(images, damage, tmp_path, monkeypatch):
    path = tmp_path / "state"
    kill_second_save(images, path, monkeypatch)
    data = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "foreign":
        quick(images).save(path)
    elif damage == "incomplete":
        with safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()[KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        header["run"]["pairs"] = [pair for pair in header["run"]["pairs"] if pair[0] != "optimizer"]
        save_file(tensors, path, {KEY: json.dumps(header)})
    else:
        path.write_bytes({"cut": data[:-9], "noise": b"noise" * 99, "empty": b""}[damage])
    with pytest.raises(ValueError, match=r"state: not a readable checkpoint"):
        quick(images, checkpoint=path, resume=True)


def test_reading_a_checkpoint_runs_no_code(images, tmp_path):
    class Code:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    torch.save({"settings": "{}", "run": Code()}, tmp_path / "state")
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        quick(images, checkpoint=tmp_path / "state", resume=True)
    assert not (tmp_path / "ran").exists()


# --- the command, interrupted and killed -----------------------------------------------------------


class Command:
    """``unshift fit`` on a folder of images, read by two workers, with a checkpoint after every step."""

    CODE = (
        "import sys, signal, unshift.cli\n"
        "from unshift.training.checkpoint import Checkpoint\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "Checkpoint.__init__.__defaults__ = (0.0,)\n"
        "sys.exit(unshift.cli.app(sys.argv[1:], prog_name='unshift'))\n"
    )

    def __init__(self, folder: Path, epochs: int) -> None:
        pixels = (400 * blobs(120, 1, (12, 12))).round().to(torch.uint8)
        (folder / "photos").mkdir()
        for i, image in enumerate(pixels):
            Image.fromarray(image[0].numpy()).save(folder / "photos" / f"{i:03}.png")
        self.folder = folder / "run"
        self.folder.mkdir()
        self.out, self.state = self.folder / "out.safetensors", self.folder / "out.safetensors.checkpoint"
        options = (
            f"--channels 1 --epochs {epochs} --patience {epochs} --batch-size 16 --threads 1 --workers 2 --no-test"
        )
        self.arguments = ["fit", str(folder / "photos"), *options.split(), "--out", str(self.out), "--resume"]

    def start(self) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", self.CODE, *self.arguments]
        return subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self) -> unshift.Restorer:
        process = self.start()
        _, errors = process.communicate()
        assert process.returncode == 0, errors
        return unshift.load(self.out)

    def kill(self, delay: float) -> bool:
        """Kill a run ``delay`` seconds after its first save; return whether it still ran."""
        before = self.state.stat().st_mtime_ns if self.state.exists() else 0
        process = self.start()
        while process.poll() is None and (not self.state.exists() or self.state.stat().st_mtime_ns == before):
            time.sleep(0.01)
        time.sleep(delay)
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout
        process.kill()
        process.communicate()
        end = time.monotonic() + 5
        while (left := [pid for pid in listed.split() if Path(f"/proc/{pid}").exists()]) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left, f"workers outlive the command: {left}"
        assert process.returncode in (0, -signal.SIGKILL)
        return process.returncode != 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_at_random_moments(tmp_path, kills):
    """Each resumed run continues, no worker outlives a kill by 5 s, and the last run leaves only its result."""
    command, dice, killed = Command(tmp_path, epochs=10 * kills), random.Random(0), 0
    files = ImageFolder(tmp_path / "photos", channels=1)
    wanted = quick(files, epochs=10 * kills, patience=10 * kills)
    while killed < kills:
        if command.kill(dice.uniform(0, 0.2)):
            killed += 1
        else:
            command.out.unlink()
    assert_same(command.finish(), wanted)
    assert list(command.folder.iterdir()) == [command.out]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_an_interrupt_while_the_interpreter_ends_is_no_death_by_signal():
    code = (
        "import os, signal, unshift.cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Last:\n    def __del__(self, kill=os.kill, process=os.getpid()): kill(process, 2)\n"
        "last = Last()\nunshift.cli.main()\n"
    )
    run = subprocess.run([sys.executable, "-c", code, "data", "list"], env=ENVIRONMENT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "mnist" in run.stdout
