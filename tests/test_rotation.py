"""The rotation experiment and its baselines, and the shipped rotation restorers, on a few digits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import unshift
from unshift.coordinates import rotate
from unshift.data import dataset, resize, to_float
from unshift.evaluation import accuracy
from unshift.experiments import find
from unshift.experiments.classifiers import shipped
from unshift.experiments.record import Options
from unshift.experiments.renderers import terminal
from unshift.experiments.rotation_baselines import principal_axis, reference_axis, vote
from unshift.experiments.rotation_measurement import enlarge, shrink

NAMES = ("mnist-rotation", "mnist-rotation-paper")
ROTATION = find("rotation")


@pytest.fixture(scope="module")
def digits():
    test = dataset("mnist-10k", "test")
    return test.images, test.labels


@pytest.fixture(scope="module")
def few(digits):
    """100 digits at 224 x 224, upright and turned each by its own angle, and their labels."""
    upright = enlarge(digits[0][:100])
    applied = 360 * torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return upright, rotate(upright, applied), digits[1][:100]


def test_the_path_does_nothing_to_upright_digits(digits):
    straight = resize(to_float(digits[0][:50]), (32, 32))
    assert torch.allclose(shrink(enlarge(digits[0][:50])), straight, atol=1e-6)


@pytest.mark.parametrize(("name", "lowest"), [("mnist-rotation", 0.95), ("mnist-rotation-paper", 0.86)])
def test_shipped_restorers_undo_random_rotations(few, name, lowest):
    _, turned, labels = few
    classifier = shipped()["lenet5-mnist"]()
    assert accuracy(classifier, shrink(turned), labels) < 0.6
    assert accuracy(classifier, shrink(unshift.load(name)(turned)), labels) >= lowest


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_shipped_restorers_are_exact_under_quarter_turns(digits, name, count):
    restorer = unshift.load(name)
    for part in digits[0][:count].split(200):
        upright = enlarge(part)
        wanted, still = restorer(upright), restorer.estimate(upright).angle
        for k in range(1, 4):
            turned = torch.rot90(upright, k, (2, 3))
            assert torch.equal(restorer(turned), wanted)
            angle = restorer.estimate(turned).angle
            assert torch.equal(torch.remainder(angle - still, 360), torch.full_like(angle, 90.0 * k))


def test_the_angle_is_counter_clockwise(few):
    angle = unshift.load("mnist-rotation").estimate(rotate(few[0][:20], 40.0)).angle
    assert abs(float(angle.median()) - 40) < 3


# --- baselines --------------------------------------------------------------------------------------


def test_the_principal_axis_follows_the_rotation():
    bar = torch.zeros(1, 1, 41, 41)
    bar[..., 20, 8:36] = 1
    bar[..., 18:23, 8:12] = 1  # heavy at one end, so that the third moment tells the ends apart
    still = principal_axis(bar)
    for angle in (0.0, 30.0, 90.0, 200.0):
        moved = (principal_axis(rotate(bar, angle)) - still - angle + 180) % 360 - 180
        assert moved.abs() < 1.5
    assert reference_axis(bar) == pytest.approx((float(still) + 180) % 360 - 180, abs=1e-6)


def test_the_vote_sees_what_a_rotated_and_resized_image_shows(few):
    turned = few[1][:12]
    classifier = shipped()["lenet5-mnist"]()
    with torch.no_grad():
        slow = [classifier(shrink(rotate(turned, 90.0 * k))).argmax(1) for k in range(4)]
    assert torch.equal(vote(classifier, turned, turns=4), torch.stack(slow).mode(0).values)


# --- the experiments --------------------------------------------------------------------------------


def test_the_measurement_adds_up():
    case = ROTATION.cases[0].load(Options(quick=True, seeds=(0, 1), progress=False))
    case = replace(case, digits=case.digits[:6], labels=case.labels[:6], swept=1, repeated=6)
    result = ROTATION.measure(case)
    assert result["accuracy"]["without"] < result["accuracy"]["mnist-rotation"]
    drawn = result["over_seeds"]["ways"]
    assert (drawn["upright"]["spread"], drawn["upright"]["consistent"]) == (0.0, 100.0)  # no angle in it
    assert drawn["without"]["consistent"] < 100
    assert result["sweep"]["quarter_turns_different"] == dict.fromkeys(NAMES, 0)
    assert len(result["sweep"]["accuracy"]["without"]) == 36
    assert sum(result["errors"]["mnist-rotation"]["histogram"]["counts"]) == 6
    shown = terminal(ROTATION.show("mnist-rotation", {"mnist-rotation": result}))
    assert "vote over 36 rotations" in shown
    assert "What cannot be restored" in shown


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rotation", "volumes"])
def test_restorers_are_trained_anew_when_asked(name):
    (case,) = find(name).cases
    trained = case.load(Options(train=True, quick=True, progress=False)).restorers
    assert all(restorer.metadata["epochs"] == 1 for restorer in trained.values())


@pytest.mark.slow
def test_the_targets_on_the_whole_test_set(digits):
    """Random angles through the shipped LeNet-5: bare, with the paper's net, and with the dense one."""
    images, labels = digits
    classifier = shipped()["lenet5-mnist"]()
    applied = 360 * torch.rand(len(images), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ways = {"upright": None, "without": None, **{name: unshift.load(name) for name in NAMES}}
    share = dict.fromkeys(ways, 0.0)
    for rows in torch.arange(len(images)).split(200):
        upright = enlarge(images[rows])
        turned = rotate(upright, applied[rows])
        for name, restorer in ways.items():
            shown = restorer(turned) if restorer else upright if name == "upright" else turned
            share[name] += accuracy(classifier, shrink(shown), labels[rows]) * len(rows) / len(images)
    assert share["without"] < 0.45
    assert share["mnist-rotation-paper"] >= 0.92
    assert share["mnist-rotation"] >= max(0.975, share["upright"] - 0.01)


@pytest.mark.slow
def test_volumes_are_classified_alike_at_every_shift():
    volumes = find("volumes")
    result = volumes.measure(volumes.cases[0].load(Options(progress=False)))
    assert result["images"] == 1000
    assert result["restored"]["mnist3d"]["same_at_every_scope"]
    assert result["restored"]["mnist3d"]["rates"]["within_1"] >= 0.95
