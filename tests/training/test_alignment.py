"""Training images that are not aligned: the mean place, the rounds, the one move that a classifier settles."""

from __future__ import annotations

import pytest
import torch
from samples import blobs
from torch import Tensor, nn

import unshift
from unshift.alignment import Middle, best_move, fit_aligning
from unshift.coordinates import Canvas, Turns
from unshift.evaluation import random_shifts

QUICK = {"epochs": 3, "batch_size": 20, "learning_rate": 0.01, "progress": False, "drop_unusable": True}


class Pixels(nn.Module):
    """Scores are the pixels: equivariant, and a plateau where the image is flat."""

    score_unit = 1.0

    def forward(self, images: Tensor) -> Tensor:
        return images.sum(1).long()


def plateau(first: int, last: int, size: int = 12) -> Tensor:
    image = torch.zeros(1, 1, size)
    image[..., [at % size for at in range(first, last + 1)]] = 50
    return image


@pytest.mark.parametrize(("first", "last", "middle"), [(2, 6, 4), (5, 5, 5), (-2, 2, 0), (9, 13, 11)])
def test_an_image_goes_back_to_the_middle_of_where_it_could_be(first, last, middle):
    image = plateau(first, last)
    found = Middle(unshift.Restorer(Pixels()))(image)
    assert torch.equal(found, unshift.undo(image, torch.tensor([[middle]])))


def test_two_axes_have_a_middle_each():
    image = plateau(1, 3)[..., None] * plateau(6, 10)[..., None, :] / 50
    found = Middle(unshift.Restorer(Pixels()))(image)
    assert torch.equal(found, unshift.undo(image, torch.tensor([[2, 8]])))


def test_of_turned_copies_the_likeliest_one_is_taken():
    image = torch.rand(1, 1, 5, 5)
    image[0, 0, 1, 3] = 90
    restorer = unshift.Restorer(Pixels(), coordinates=Turns("quarter"))
    found = Middle(restorer)(image)
    assert found[0, 0, 0, 0] == 90


@pytest.fixture(scope="module")
def jittered() -> tuple[Tensor, Tensor]:
    """Blobs on a larger ground, and the same up to two pixels off."""
    images = nn.functional.pad(blobs(300, 1, (6, 6)), [3, 3, 3, 3])
    return images, unshift.apply(images, random_shifts(300, 2, 2, seed=1))


def spread(restorer: unshift.Restorer, images: Tensor) -> float:
    """How far apart it puts images that stand in one place: the mean distance from the most usual place."""
    shift = restorer.estimate(images).shift
    usual = shift.mode(0).values
    return float(Canvas().distance(restorer.estimate(images)._replace(shift=shift - usual), (12, 12)).mean())


@pytest.mark.filterwarnings("ignore:this is near guessing")
def test_images_that_are_not_aligned_become_so(jittered):
    images, off = jittered
    plain, fitted = (unshift.fit(off, "dense", aligned=aligned, **{**QUICK, "epochs": 8}) for aligned in (True, False))
    assert spread(fitted, images) < 0.85 * spread(plain, images), (spread(fitted, images), spread(plain, images))
    told = fitted.metadata["alignment"]
    assert told["rounds"] == len(told["moved"]) + 1
    assert all(0 <= share <= 1 for share in told["moved"])


class UpperLeft(nn.Module):
    """Sure of images whose light is in the upper left corner."""

    def forward(self, images: Tensor) -> Tensor:
        corner = images[..., :6, :6].sum((1, 2, 3)) / images.sum((1, 2, 3))
        return torch.stack([9 * corner, torch.zeros(len(images))], 1)


def test_a_classifier_settles_the_move_that_remains_free(jittered):
    images, _ = jittered
    restorer = unshift.fit(images, "dense", **QUICK)
    move, sure = best_move(restorer, images, UpperLeft())
    shown = unshift.apply(Middle(restorer)(images), move.shift.expand(300, 2))
    assert float(UpperLeft()(shown).softmax(1).amax(1).mean()) == pytest.approx(sure, abs=0.02)
    assert shown[..., :6, :6].sum() > 0.9 * shown.sum() > 0
    assert images[..., :6, :6].sum() < 0.5 * images.sum()


def test_the_last_round_learns_that_move(jittered):
    images, _ = jittered
    fitted = unshift.fit(images[:120], "dense", aligned=False, classifier=UpperLeft(), **QUICK)
    assert fitted.metadata["alignment"]["classifier"]["shift"] != [0, 0]
    assert fitted(images)[..., :6, :6].sum() > 0.8 * images.sum()


@pytest.mark.filterwarnings("ignore:this is near guessing")
def test_a_killed_run_goes_on_from_its_last_round(tmp_path):
    images, fits = blobs(20, 1, (6, 6)), []

    def once(shown, checkpoint, resume):
        fits.append(checkpoint)
        if len(fits) == 2:
            raise KeyboardInterrupt
        return unshift.fit(shown, "dense", epochs=1, validation=2, progress=False, drop_unusable=True)

    with pytest.raises(KeyboardInterrupt):
        fit_aligning(images, once, checkpoint=tmp_path / "state")
    assert [path.name for path in tmp_path.iterdir()] == ["state.0.safetensors"]
    restorer = fit_aligning(images, once, checkpoint=tmp_path / "state", resume=True)
    assert fits[1] == fits[2] == tmp_path / "state.1"
    assert len(fits) == restorer.metadata["alignment"]["rounds"] + 1
    assert not list(tmp_path.iterdir())


def test_a_classifier_without_a_question_is_refused():
    with pytest.raises(ValueError, match="a classifier is for images that are not aligned"):
        unshift.fit(torch.rand(9, 1, 6, 6), classifier=UpperLeft(), progress=False)


@pytest.mark.filterwarnings("ignore:this is near guessing")
def test_images_that_are_read_as_they_are_needed_are_aligned_too(jittered):
    class Lazy(torch.utils.data.Dataset):
        def __len__(self):
            return 60

        def __getitem__(self, row):
            return jittered[1][row]

    settings = {**QUICK, "epochs": 1}
    lazy, memory = (unshift.fit(each, "dense", aligned=False, **settings) for each in (Lazy(), jittered[1][:60]))
    assert lazy.metadata["alignment"] == memory.metadata["alignment"]
