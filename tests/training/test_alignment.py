"""Training images that are not aligned: the mean position, the rounds, the move that a classifier chooses."""

from __future__ import annotations

import contextlib

import pytest
import torch
from samples import blobs
from torch import Tensor, nn

import unshift
from unshift.coordinates import Shifts
from unshift.evaluation import random_shifts
from unshift.training.run import Run

QUICK = {"epochs": 3, "batch_size": 20, "learning_rate": 0.01, "progress": False, "drop_unusable": True}


@pytest.fixture(scope="module")
def jittered() -> tuple[Tensor, Tensor]:
    """Blobs on a larger background, and the same blobs up to two pixels off."""
    images = nn.functional.pad(blobs(300, 1, (6, 6)), [3, 3, 3, 3])
    return images, unshift.apply(images, random_shifts(300, 2, 2, seed=1))


def spread(restorer: unshift.Restorer, images: Tensor) -> float:
    """Mean distance of the estimated shifts of aligned images from the most frequent one."""
    shift = restorer.estimate(images).shift
    mode = shift.mode(0).values
    return float(Shifts().distance(restorer.estimate(images)._replace(shift=shift - mode), (12, 12)).mean())


def test_alignment_reduces_the_spread(jittered):
    images, moved = jittered
    plain, aligned = (unshift.fit(moved, "dense", aligned=given, **{**QUICK, "epochs": 8}) for given in (True, False))
    assert spread(aligned, images) < 0.85 * spread(plain, images), (spread(aligned, images), spread(plain, images))
    alignment = aligned.metadata["alignment"]
    assert alignment["rounds"] == len(alignment["moved"]) + 1
    assert all(0 <= share <= 1 for share in alignment["moved"])


class UpperLeft(nn.Module):
    """Confident if the light is in the upper left corner."""

    def forward(self, images: Tensor) -> Tensor:
        corner = images[..., :6, :6].sum((1, 2, 3)) / images.sum((1, 2, 3))
        return torch.stack([9 * corner, torch.zeros(len(images))], 1)


def test_the_last_round_learns_the_global_move(jittered):
    images, _ = jittered
    restorer = unshift.fit(images[:120], "dense", aligned=False, classifier=UpperLeft(), **QUICK)
    assert restorer.metadata["alignment"]["classifier"]["shift"] != [0, 0]
    assert restorer(images)[..., :6, :6].sum() > 0.8 * images.sum()


def test_a_classifier_needs_unaligned_images():
    with pytest.raises(ValueError, match="aligned=False"):
        unshift.fit(torch.rand(9, 1, 6, 6), classifier=UpperLeft(), progress=False)


def test_datasets_are_aligned_like_tensors(jittered):
    class Lazy(torch.utils.data.Dataset):
        def __len__(self):
            return 60

        def __getitem__(self, row):
            return jittered[1][row]

    settings = {**QUICK, "epochs": 1}
    lazy, memory = (unshift.fit(each, "dense", aligned=False, **settings) for each in (Lazy(), jittered[1][:60]))
    assert lazy.metadata["alignment"] == memory.metadata["alignment"]


# --- resuming --------------------------------------------------------------------------------------


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A checkpoint of a run that was killed in its second round, and its arguments."""
    arguments = {**QUICK, "epochs": 1, "validation": 2, "aligned": False, "checkpoint": tmp_path / "state"}
    train, trained = Run.train, []

    def killed(run, *args):
        trained.append(run)
        if len(trained) == 2:
            raise KeyboardInterrupt
        train(run, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "train", killed)
        with pytest.raises(KeyboardInterrupt):
            unshift.fit(blobs(20, 1, (6, 6)), "dense", **arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    return arguments


@pytest.mark.parametrize("classifier", [None, UpperLeft()])
def test_a_run_killed_in_any_round_resumes_to_the_same_weights(classifier, monkeypatch, tmp_path):
    images, arguments = blobs(20, 1, (6, 6)), {**QUICK, "epochs": 1, "validation": 2, "aligned": False}
    arguments["classifier"] = classifier
    whole = unshift.fit(images, "dense", **arguments)
    finish_epoch, epochs = Run._finish_epoch, []

    def killed(run):
        finish_epoch(run)
        epochs.append(run)
        if len(epochs) % 2:
            raise KeyboardInterrupt  # before the epoch is saved

    monkeypatch.setattr(Run, "_finish_epoch", killed)
    resumed = None
    while resumed is None:
        with contextlib.suppress(KeyboardInterrupt):
            resumed = unshift.fit(images, "dense", resume=True, checkpoint=tmp_path / "state", **arguments)
    assert len(epochs) == 2 * (whole.metadata["alignment"]["rounds"] + (classifier is not None))
    assert {**resumed.metadata, "seconds": 0} == {**whole.metadata, "seconds": 0}
    assert torch.equal(resumed(images), whole(images))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"seed": 1}, "seed"),
        ({"preset": "paper"}, "network"),
        ({"images": 2}, "images"),
        ({"bits": 9}, "bits"),
        ({"aligned": True}, "aligned"),
    ],
)
def test_the_rounds_of_another_run_are_refused(interrupted, changes, name):
    images = changes.get("images", 1) * blobs(20, 1, (6, 6))
    options = {"preset": "dense", **interrupted, **{key: to for key, to in changes.items() if key != "images"}}
    with pytest.raises(ValueError, match=rf"state: .*\b{name}\b"):
        unshift.fit(images, **options, resume=True)
