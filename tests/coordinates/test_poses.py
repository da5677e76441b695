"""Poses without positions: every turn is undone bit for bit, by any network, for images of any shape."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from samples import DTYPES, blobs
from spelt_moves import KINDS, QUARTERS, SPELT, images_for
from torch import nn

import unshift
from unshift import Chain, PoseEstimator, Restorer, ShiftEstimator, quantise
from unshift.coordinates import Angles, Centre, Poses, Shifts
from unshift.coordinates.boxes import box_means
from unshift.exact import Scorer, ordered_bits, poses

CASES = [
    *((group, 1, size) for group in ("mirror", "half", "quarter", "flips") for size in ((8, 8), (7, 12), (1, 9))),
    ("strand", 4, (16,)),
    ("strand", 4, (9,)),
    ("cube", 1, (3, 3, 3)),
    ("cube", 1, (3, 4, 5)),
]


def samples_of(coordinates, channels, size):
    return [canvas for canvases in coordinates.canvases(blobs(16, channels, size)) for canvas in canvases]


@functools.cache
def trained(group, channels, size, epochs):
    """A restorer of random weights, or one that was fitted on a few images."""
    torch.manual_seed(0)
    coordinates = Poses(group)
    net = coordinates.network("evidence", channels, size)
    if epochs:
        images = blobs(16, channels, size) + 0.1 * torch.rand(16, channels, *size)
        return unshift.fit(images, net, coordinates=coordinates, epochs=epochs, progress=False)
    return Restorer(quantise(net, samples_of(coordinates, channels, size)), coordinates=coordinates)


def same(one, other):
    return one.shape == other.shape and torch.equal(ordered_bits(one), ordered_bits(other))


def mistakes(restorer, image, moved):
    """The moves after which the restored image, the confidence or the tie differ, or redo is not the inverse."""
    wanted, still = restorer(image), restorer.estimate(image)
    wrong = []
    for number, other in enumerate(moved):
        found = restorer.estimate(other)
        restored = restorer.undo(other, found)
        alike = same(restored, wanted) and same(restorer.redo(restored, found), other)
        if not alike or found.confidence != still.confidence or found.tied != still.tied:
            wrong.append(number)
    return wrong


@pytest.mark.filterwarnings("ignore:this")
@pytest.mark.parametrize("epochs", [0, 1], ids=["untrained", "trained"])
@pytest.mark.parametrize(("group", "channels", "size"), CASES, ids=str)
def test_every_turn_of_every_hard_image_is_undone(group, channels, size, epochs):
    restorer = trained(group, channels, size, epochs)
    for dtype in DTYPES if size in ((7, 12), (9,)) else DTYPES[2:3]:
        square = len(set(size)) == 1 or group in ("mirror", "half", "strand")
        images = images_for(SPELT[group] if square else SPELT[group][:1], channels, size, dtype)
        for kind in KINDS:
            if kind in images:
                image = images[kind][None]
                assert mistakes(restorer, image, [turn(image) for turn in SPELT[group]]) == [], (dtype, kind)


@pytest.mark.filterwarnings("ignore:this restorer may be wrong")
@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("options", [{}, {"reduce": 2}, {"reduce": 3}, {"refine": False}], ids=str)
def test_every_quarter_turn_of_every_hard_image_is_undone_by_angles(size, options):
    torch.manual_seed(0)
    angles = Angles(size, 8, **options)
    net = angles.network("look", 1, (size, size))
    restorer = Restorer(quantise(net, torch.stack(samples_of(angles, 1, (size, size)))), coordinates=angles)
    for dtype in DTYPES if size == 9 else DTYPES[2:3]:
        images = images_for(QUARTERS, 1, (size, size), dtype)
        for kind in KINDS:
            if kind in images:
                image = images[kind][None]
                wanted, still = restorer(image), restorer.estimate(image)
                for turn in QUARTERS:
                    found = restorer.estimate(turn(image))
                    assert same(restorer(turn(image)), wanted), (dtype, kind)
                    assert found.confidence == still.confidence


class FloatSums(Scorer):
    """The same evidence of each copy, added up in float32 in another order for each."""

    whole = True

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images):
        evidence = self.net.local[0](images).flatten(1)
        sums = [functools.reduce(torch.add, row[torch.randperm(len(row))]) for row in evidence.detach()]
        return (torch.stack(sums).double() * 2**40).to(torch.int64)


def test_float_sums_in_another_order_are_caught():
    torch.manual_seed(0)
    restorer = Restorer(FloatSums(PoseEstimator(1, channels=(4,), kernel_size=3)), coordinates=Poses("quarter"))
    image = torch.rand(1, 1, 8, 8)
    image = torch.maximum(image, image.rot90(2, (2, 3)))  # two copies are equal, so their scores should be
    image[0, 0, 0, 0] += 1e-6
    assert mistakes(restorer, image, [turn(image) for turn in QUARTERS])
    assert not unshift.verify(restorer, image.expand(8, -1, -1, -1)).exact


# --- the network ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sum_bits", [24, 40], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, (70, 50)),
        ({}, (7, 12)),
        ({"hidden": 8, "activation": "abs"}, (40, 33)),
        ({"channels": (4, 8), "kernel_size": (5, 3), "stride": (2, 1), "hidden": 8, "size": (20, 17)}, (20, 17)),
        ({"axes": 1}, (90,)),
        ({"axes": 3, "channels": (4, 8), "kernel_size": 3}, (9, 10, 11)),
    ],
)
def test_scores_are_those_of_the_reference_in_strips_too(options, size, sum_bits, monkeypatch):
    torch.manual_seed(0)
    net = PoseEstimator(2, **options)
    images = torch.rand(9, 2, *size)
    scorer = quantise(net, images, sum_bits=sum_bits)
    wanted = scorer.reference(images)
    assert torch.equal(scorer(images), wanted)
    assert ((wanted * scorer.score_unit) - net(images)).abs().max() < 0.05
    monkeypatch.setattr(poses, "BLOCK", 500)
    scorer.cache._entries.clear()
    assert torch.equal(scorer(images), wanted)


def test_the_reference_is_a_strided_correlation_and_a_mean():
    net = quantise(PoseEstimator(1, channels=(1,), kernel_size=2, stride=2), torch.rand(4, 1, 5, 5))
    first, last = net.local
    image = torch.rand(1, 1, 5, 5)
    pixel = net.pixels(image)[0, 0].long().tolist()
    total = 0
    for i in (0, 2):
        for j in (0, 2):
            taps = [int(first.weight[0, 0, a, b]) * pixel[i + a][j + b] for a in (0, 1) for b in (0, 1)]
            value = min(max(sum(taps) + int(first.bias), 0) // int(first.divisor), net.largest)
            total += value * int(last.weight) + int(last.bias)
    assert net.reference(image).tolist() == [total * poses.FRACTION // 4]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PoseEstimator(1, channels=(4, 8), stride=(2,)), r"\(2,\)"),
        (lambda: PoseEstimator(1, size=(28, 28)), r"\(28, 28\).*29"),
        (lambda: PoseEstimator(1, size=(28,)), "2"),
        (lambda: PoseEstimator(0), "0 in"),
        (lambda: PoseEstimator(1, activation="none"), "none"),
        (lambda: PoseEstimator.preset("paper", 1, (8, 8)), "look, evidence"),
        (lambda: Angles(8, 1), "angles.*1"),
        (lambda: Angles(8, 6), "6"),
        (lambda: Angles(8, reduce=5), "4.*5"),
        (lambda: Poses("third"), "third"),
        (lambda: Poses("quarter", reduce=0), "reduce.*0"),
        (lambda: Restorer(PoseEstimator(1), coordinates=Shifts()), "PoseEstimator"),
        (lambda: Restorer(ShiftEstimator(1), coordinates=Poses("half")), "PoseEstimator"),
        (lambda: unshift.fit(blobs(8, 1, (8, 8)), coordinates=Poses("half"), progress=False), "paper.*look"),
        (lambda: Restorer(nn.Flatten(1), coordinates=Poses("half"))(torch.zeros(1, 1, 8, 8)), r"\(2, 64\)"),
    ],
)
def test_what_does_not_fit_is_named(make, message):
    if message == "PoseEstimator":
        make = functools.partial(wrong_kind, make)
    with pytest.raises(ValueError, match=message):
        make()


def wrong_kind(make):
    """Quantised networks know their kind; a float one is any module."""
    scorer = make().scorer.module
    coordinates = Shifts() if isinstance(scorer, PoseEstimator) else Poses("half")
    Restorer(quantise(scorer, torch.rand(4, 1, 40, 40)), coordinates=coordinates)


def test_one_look_wants_its_own_size():
    net = Poses("half").network("look", 1, (9, 8))
    restorer = Restorer(quantise(net, torch.rand(4, 1, 9, 8)), coordinates=Poses("half"))
    assert restorer(torch.rand(2, 1, 9, 8)).shape == (2, 1, 9, 8)
    with pytest.raises(ValueError, match=r"\(9, 8\).*\(8, 9\)"):
        restorer(torch.rand(2, 1, 8, 9))


# --- images that are not square, and box means ------------------------------------------------------


def test_a_batch_that_is_not_square_comes_out_as_a_list():
    restorer, images = trained("quarter", 1, (7, 12), 0), torch.rand(5, 1, 7, 12)
    estimate = restorer.estimate(images)
    restored = restorer(images)
    assert [image.shape for image in restored] == [(1, 7, 12) if g % 2 == 0 else (1, 12, 7) for g in estimate.turn]
    assert all(torch.equal(restorer(image[None])[0], other) for image, other in zip(images, restored, strict=True))
    assert all(map(torch.equal, restorer.redo(restored, estimate), images))
    assert all(map(torch.equal, restorer([*images]), restored))
    arrays = restorer(images.numpy())
    assert all(torch.equal(torch.from_numpy(array), image) for array, image in zip(arrays, restored, strict=True))
    assert unshift.verify(restorer, images).exact


@pytest.mark.parametrize("width", [2, 3, 4, 7])
@pytest.mark.parametrize("size", [(8, 8), (7, 12), (1, 9), (20, 5)], ids=str)
def test_box_means_commute_with_all_turns(size, width, monkeypatch):
    for dtype in DTYPES:
        images = (torch.rand(2, 3, *size) * 255).to(dtype)
        means = box_means(images, width)
        for turn in SPELT["flips"]:
            assert same(box_means(turn(images), width), turn(means))
        monkeypatch.setattr("unshift.coordinates.boxes.STRIP", 1)
        assert same(box_means(images, width), means)
        monkeypatch.undo()
    constant = torch.full((1, 1, *size), 0.75)
    assert torch.allclose(box_means(constant, width), torch.tensor(0.75))


def test_longest_reduces_every_turn_alike():
    coordinates = Poses("quarter", reduce=2, longest=10)
    shapes = [tuple(canvas.shape[2:]) for canvas in coordinates.canvases(torch.rand(1, 1, 25, 40))]
    assert shapes == [(6, 10), (10, 6), (6, 10), (10, 6)]


def test_a_chain_of_a_centre_and_poses_is_exact():
    torch.manual_seed(0)
    size = (8, 8)
    stages = []
    for coordinates, preset in ((Centre(), "dense"), (Poses("quarter"), "look")):
        net = coordinates.network(preset, 1, size)
        stages.append(Restorer(quantise(net, torch.stack(samples_of(coordinates, 1, size))), coordinates=coordinates))
    chain = Chain(*stages)
    checked = unshift.verify(chain, torch.cat([blobs(2, 1, size), torch.ones(1, 1, *size)]))
    assert checked.exact
    assert checked.moves == 3 * 4 * math.prod(size)
