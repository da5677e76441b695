"""Helpers of the tests of training: quick runs, killed runs, comparison of weights, and peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from torch.utils.data import IterableDataset

import unshift
from unshift import Restorer, apply, fit
from unshift.coordinates import Pose
from unshift.training.checkpoint import Checkpoint

ROOT = Path(unshift.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def quick(data, preset="paper", **options) -> Restorer:
    return fit(data, preset, **{"epochs": 3, "batch_size": 16, "progress": False, **options})


def assert_same(one: Restorer, other: Restorer) -> None:
    mine, theirs = one.scorer.state_dict(), other.scorer.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())
    assert one.metadata["history"] == other.metadata["history"]


def differs(one: Restorer, other: Restorer) -> bool:
    theirs = other.scorer.state_dict()
    return any(not torch.equal(tensor, theirs[name]) for name, tensor in one.scorer.state_dict().items())


def moved_at_random(images, generator):
    """An augmentation that moves the images and returns the pose."""
    pose = Pose(torch.randint(12, (len(images), 2), generator=generator))
    return apply(images, pose.shift), pose


class Stream(IterableDataset):
    def __init__(self, images) -> None:
        self.images = images

    def __iter__(self):
        return iter(self.images)


class Killed(BaseException):
    """Stands for the end of the process."""


class Mortal(Checkpoint):
    """A checkpoint after every step; the process dies after (or in) save number ``life``."""

    life, in_save = 0, False

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options, every_seconds=0.0)
        self.saves = 0

    def save(self, run) -> None:
        self.saves += 1
        if self.saves == self.life and self.in_save:
            raise Killed
        super().save(run)
        if self.saves == self.life:
            raise Killed


WATCH = (
    "import resource, subprocess, sys; run = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE);"
    "sys.stdout.buffer.write(run.stdout); sys.stdout.flush();"
    "print('\\n', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024); sys.exit(run.returncode)"
)


def peak(*arguments: object) -> tuple[int, str]:
    """Run Python with these arguments; return its peak memory in MB and its output.

    A small process starts it, because Linux counts the memory of the starting process towards the peak, and a process
    that runs tests holds gigabytes.
    """
    command = [sys.executable, "-c", WATCH, sys.executable, *map(str, arguments)]
    run = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    output, megabytes = run.stdout.rsplit("\n", 2)[0], run.stdout.split()[-1]
    return int(megabytes), output
