"""Restorers that are not exact are caught: by verify, and by the checks of the other tests."""

from __future__ import annotations

import pytest
import torch
from samples import Positional, blobs
from spelt_moves import CASES, QUARTERS, SPELT, chain_for, mismatches, moved_by_all, restorer_for

from unshift import Chain, Restorer, ShiftEstimator, quantise
from unshift import restorer as restorer_module
from unshift.coordinates import Centre, Ring, Shifts, Turns
from unshift.testing import verify


class FirstCopy(Positional):
    """Equivariant to shifts, but every copy scores higher than the one before."""

    def forward(self, images):
        scores = self.scorer(images)
        return scores + 2**20 * torch.arange(len(scores)).view(-1, *[1] * (scores.ndim - 1))


def named(value: object) -> str:
    """Name a parameter the same in every process: functions would show their address."""
    return "" if isinstance(value, list) else " ".join(str(value).split())


SHIFTING = [
    *((Turns(group), channels, size, SPELT[group]) for group, channels, size in CASES),
    (Ring(-1), 1, (4, 8), None),
    (Ring(0), 1, (8, 4), None),
    (Centre(), 1, (6, 6), None),
    (Centre(), 1, (7, 7), None),
]


@pytest.mark.parametrize(("coordinates", "channels", "size", "turns"), SHIFTING, ids=named)
def test_verify_catches_a_scorer_that_depends_on_the_position(coordinates, channels, size, turns):
    good = restorer_for(coordinates, "dense", channels, size)
    image = torch.rand(1, channels, *size)
    assert verify(good, image).exact
    assert not verify(Restorer(Positional(good.scorer), coordinates=coordinates), image).exact


@pytest.mark.parametrize(("group", "channels", "size"), CASES, ids=str)
def test_verify_catches_a_scorer_that_depends_on_the_order_of_copies(group, channels, size):
    good, image = restorer_for(Turns(group), "dense", channels, size), torch.rand(channels, *size)
    bad = Restorer(FirstCopy(good.scorer), coordinates=Turns(group))
    assert mismatches(bad, image, moved_by_all(image, SPELT[group])) > 0
    assert not verify(bad, image[None]).exact


@pytest.mark.parametrize(("coordinates", "channels", "size", "turns"), SHIFTING, ids=named)
def test_verify_catches_a_plain_argmax(coordinates, channels, size, turns, monkeypatch):
    restorer, image = restorer_for(coordinates, "dense", channels, size), 1e-4 * torch.rand(1, channels, *size)
    assert restorer.estimate(image).tied.all()
    assert verify(restorer, image).exact
    monkeypatch.setattr(restorer_module, "choose", lambda scores, order: scores.best())
    assert not verify(restorer, image).exact


@pytest.mark.parametrize("size", [8, 7])
def test_verify_catches_a_chain_with_asymmetric_filters(size):
    chain = chain_for(size)
    plain = restorer_for(Shifts(), "dense", 1, (size, size)).scorer
    broken = Chain(Restorer(plain, coordinates=Centre()), chain.stages[1])
    image = torch.rand(1, size, size)
    moved = moved_by_all(image, QUARTERS)
    assert mismatches(chain, image, moved) == 0
    assert mismatches(broken, image, moved) > 0
    assert verify(chain, image[None]).exact
    assert verify(chain, image[None]).moves == 4 * size * size
    assert not verify(broken, image[None]).exact


def test_symmetric_filters_must_score_corners_at_an_even_size():
    """The centre of 8 pixels is a corner, which odd filters do not score."""
    torch.manual_seed(0)
    net = ShiftEstimator(1, channels=(4, 1), kernel_size=(5, 5), bias=True, symmetric=True, corners=False)
    polar = chain_for(8).stages[1]
    broken = Chain(Restorer(quantise(net, blobs(8, 1, (8, 8))), coordinates=Centre()), polar)
    image = torch.rand(1, 8, 8)
    assert mismatches(broken, image, moved_by_all(image, QUARTERS)) > 0
