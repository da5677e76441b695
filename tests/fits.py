"""Helpers of the tests of training: quick runs, runs that are killed, and comparing their weights."""

from __future__ import annotations

import os
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
