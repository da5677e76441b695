"""Evaluation on cases small enough to count by hand."""

from __future__ import annotations

import math

import pytest
import torch
from samples import blobs, make_restorer
from torch import Tensor, nn

from unshift import Restorer
from unshift.evaluation import (
    accuracy,
    accuracy_over_scopes,
    predict,
    random_shifts,
    restoration_rates,
)


class Brightest(nn.Module):
    """An equivariant scorer: the scores are the pixels, so the shift is the position of the brightest one."""

    def forward(self, images: Tensor) -> Tensor:
        return images.sum(1).long()


class Position(nn.Module):
    """A classifier whose class is the position of the brightest pixel."""

    def forward(self, images: Tensor) -> Tensor:
        return images.sum(1).flatten(1).float()


def dots(*places: int, size: int = 6) -> Tensor:
    """Return one signal per place: 9 there, 0 elsewhere."""
    images = torch.zeros(len(places), 1, size)
    images[torch.arange(len(places)), 0, list(places)] = 9
    return images


RESTORER = Restorer(Brightest())


# --- rates --------------------------------------------------------------------------------------------


def test_rates_counted_by_hand():
    # 2 of 6 are restored exactly; 1 and 5 (which is -1) are one pixel off.
    rates = restoration_rates(RESTORER, dots(0, 0, 1, 5, 2, 4))
    assert (rates.images, rates.exact, rates.within_1, rates.tied) == (6, 2 / 6, 4 / 6, 0)
    assert rates.confidence == pytest.approx(1 / (1 + 5 * math.exp(-9)), abs=1e-6)


def test_within_one_pixel_means_along_every_axis():
    image = torch.zeros(1, 1, 4, 4)
    image[0, 0, 1, 3] = 9  # one down, one left
    assert restoration_rates(RESTORER, image).within_1 == 1.0
    image = torch.zeros(1, 1, 4, 4)
    image[0, 0, 1, 2] = 9
    assert restoration_rates(RESTORER, image).within_1 == 0.0


def test_no_images_are_refused():
    with pytest.raises(ValueError, match="no images"):
        restoration_rates(RESTORER, dots())


# --- random shifts ------------------------------------------------------------------------------------


def test_random_shifts_fill_their_range_and_nothing_else():
    shifts = random_shifts(5000, 2, 3, seed=0)
    assert shifts.dtype == torch.int64
    assert shifts.shape == (5000, 2)
    for axis in range(2):
        values, counts = shifts[:, axis].unique(return_counts=True)
        assert values.tolist() == [-3, -2, -1, 0, 1, 2, 3]
        assert (counts > 5000 / 7 * 0.85).all()  # uniform
        assert (counts < 5000 / 7 * 1.15).all()
    assert not torch.equal(shifts[:, 0], shifts[:, 1])


# --- classifiers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_predictions_and_accuracy_counted_by_hand(batch_size):
    images, labels = dots(0, 1, 5, 3), torch.tensor([0, 1, 2, 3])
    assert predict(Position(), images, batch_size=batch_size).tolist() == [0, 1, 5, 3]
    assert accuracy(Position(), images, labels, batch_size=batch_size) == 0.75


@pytest.mark.parametrize("classifier", [lambda x: x, lambda x: x.flatten(), lambda x: x[:1, 0]])
def test_a_classifier_must_return_logits(classifier):
    with pytest.raises(ValueError, match="logits"):
        predict(classifier, dots(1, 2))


# --- over scopes --------------------------------------------------------------------------------------


def test_without_a_restorer_a_shift_moves_the_class():
    images, labels = dots(*[0] * 40), torch.zeros(40, dtype=torch.int64)
    shifts = random_shifts(40, 1, 2, seed=5)
    (still, moved) = accuracy_over_scopes(Position(), images, labels, RESTORER, scopes=[0, 2], seeds=[5])
    assert (still.scope, still.without, still.restored, still.effect) == (0, (1.0,), (1.0,), 0.0)
    unmoved = float((shifts == 0).double().mean())
    assert (moved.scope, moved.images, moved.seeds) == (2, 40, (5,))
    assert moved.without == (unmoved,)
    assert moved.restored == (1.0,)
    assert moved.effect == pytest.approx(1 - unmoved)


def test_with_a_restorer_the_line_is_flat():
    images = blobs(30, 1, (12, 12))
    labels = torch.arange(30) % 3
    restorer = make_restorer("paper", 1, (12, 12), trained=True)
    classifier = nn.Sequential(nn.AdaptiveAvgPool2d((3, 1)), nn.Flatten())
    rows = accuracy_over_scopes(classifier, images, labels, restorer, scopes=[0, 1, 5, 12, 40], seeds=(0, 1))
    flat = accuracy(lambda x: classifier(restorer(x)), images, labels)
    assert {value for row in rows for value in row.restored} == {flat}
    assert all(row.consistent_restored == 1.0 for row in rows)
    assert len({row.without for row in rows}) > 1  # and without, it is not


def test_consistency_counted_by_hand():
    images, labels = dots(0, 0, 0, 0), torch.zeros(4, dtype=torch.int64)
    seeds = (0, 1, 2)
    (row,) = accuracy_over_scopes(Position(), images, labels, RESTORER, scopes=[1], seeds=seeds)
    shifts = torch.stack([random_shifts(4, 1, 1, seed)[:, 0] for seed in seeds])
    assert row.consistent_without == float((shifts == shifts[0]).all(0).double().mean())
    assert row.consistent_restored == 1.0
    assert row.without == tuple(float((one == 0).double().mean()) for one in shifts)
