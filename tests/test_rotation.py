"""The rotation and volume experiments, their rivals and their part of the report, on a few digits."""

from __future__ import annotations

import json

import pytest
import torch

import unshift
from unshift.data import dataset, resize, to_float
from unshift.data.volumes import mnist3d
from unshift.evaluation import accuracy
from unshift.experiments import ITEMS, MAIN, fig5, fig6, reproduce
from unshift.experiments.classifiers import shipped
from unshift.experiments.rivals import principal_axis, reference_axis, vote
from unshift.polar import rotate

NAMES = ("mnist-rotation", "mnist-rotation-paper")


@pytest.fixture(scope="module")
def digits():
    test = dataset("mnist-10k", "test")
    return test.images, test.labels


@pytest.fixture(scope="module")
def few(digits):
    """100 digits at 224 x 224, each turned by its own angle."""
    upright = fig6.enlarge(digits[0][:100])
    applied = 360 * torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return upright, rotate(upright, applied), applied, digits[1][:100]


def test_the_path_does_nothing_to_upright_digits(digits):
    straight = resize(to_float(digits[0][:50]), (32, 32))
    assert torch.allclose(fig6.shrink(fig6.enlarge(digits[0][:50])), straight, atol=1e-6)


@pytest.mark.parametrize(("name", "lowest"), [("mnist-rotation", 0.95), ("mnist-rotation-paper", 0.86)])
def test_shipped_restorers_undo_random_rotations(few, name, lowest):
    _, turned, _, labels = few
    classifier = shipped()["lenet5-mnist"]()
    restorer = unshift.load(name)
    bare = accuracy(classifier, fig6.shrink(turned), labels)
    restored = accuracy(classifier, fig6.shrink(restorer(turned)), labels)
    assert bare < 0.6
    assert restored >= lowest
    assert restorer.metadata["kind"] == "rotation"
    assert restorer.metadata["preparation"] == {"resize": [224, 224]}


def test_the_papers_restorer_is_the_papers():
    restorer = unshift.load("mnist-rotation-paper")
    grid = restorer.coordinates.describe()
    assert (grid["size"], grid["angles"], grid["radii"], grid["radius"], grid["ratio"]) == (224, 36, 36, 112.0, 0.92)
    network = restorer.scorer.describe()["network"]
    assert (network["channels"], network["kernel_size"], network["bias"]) == ([1] * 6, [9], False)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_restorers_are_exact_under_quarter_turns(digits, name):
    restorer = unshift.load(name)
    upright = fig6.enlarge(digits[0][:40])
    wanted, still = restorer(upright), restorer.estimate(upright)
    for k in range(1, 4):
        turned = torch.rot90(upright, k, (2, 3))
        assert torch.equal(restorer(turned), wanted)
        angle = restorer.estimate(turned).angle
        assert torch.equal(torch.remainder(angle - still.angle, 360), torch.full_like(angle, 90.0 * k))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_shipped_restorers_are_exact_under_quarter_turns_on_all_test_digits(digits, name):
    restorer = unshift.load(name)
    for part in digits[0].split(200):
        upright = fig6.enlarge(part)
        wanted = restorer(upright)
        for k in range(1, 4):
            assert torch.equal(restorer(torch.rot90(upright, k, (2, 3))), wanted)


def test_the_angle_is_counter_clockwise(few):
    upright, *_ = few
    restorer = unshift.load("mnist-rotation")
    angle = restorer.estimate(rotate(upright[:20], 40.0)).angle
    assert abs(float(angle.median()) - 40) < 3


def test_weights_are_small():
    sizes = {name: unshift.weights.pretrained()[name].stat().st_size for name in (*NAMES, "mnist3d")}
    assert all(size < 300_000 for size in sizes.values()), sizes


# --- rivals -----------------------------------------------------------------------------------------


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
    _, turned, _, _ = few
    classifier = shipped()["lenet5-mnist"]()
    with torch.no_grad():
        slow = [classifier(fig6.shrink(rotate(turned[:12], 90.0 * k))).argmax(1) for k in range(4)]
    assert torch.equal(vote(classifier, turned[:12], turns=4), torch.stack(slow).mode(0).values)


# --- the experiments --------------------------------------------------------------------------------


def test_they_are_not_part_of_the_main_job():
    assert set(MAIN) == {"table1", "fig1", "fig3"}
    assert {"fig5", "fig6"} <= set(ITEMS)


def test_reproduce_them_quickly(tmp_path, capsys):
    results = reproduce(["fig6", "fig5"], tmp_path, quick=True, progress=False)
    page = (tmp_path / "index.html").read_text()
    assert page.count("<img ") == 5 if results["fig6"]["mnist-rotation"]["pictures"]["examples"] else 4
    assert "What cannot be restored" in page
    assert "3D-MNIST, regenerated" in page
    kept = json.loads((tmp_path / "results.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    turned = kept["fig6"]["mnist-rotation"]
    assert turned["accuracy"]["without"] < turned["accuracy"]["mnist-rotation"]
    assert turned["cost"]["vote of 36"]["passes"] == 36
    drawn = turned["over_seeds"]
    assert drawn["seeds"] == [0, 1]
    assert drawn["ways"]["upright"] | {"mean": 0} == {"mean": 0, "spread": 0.0, "consistent": 100.0}  # no angle in it
    assert drawn["ways"]["without"]["consistent"] < 100
    assert turned["sweep"]["quarter_turns_different"] == dict.fromkeys(NAMES, 0)
    assert len(turned["sweep"]["accuracy"]["without"]) == 36
    assert sum(turned["errors"]["mnist-rotation"]["histogram"]["counts"]) == turned["images"]
    assert [sheet["angle"] for sheet in results["fig6"]["mnist-rotation"]["pictures"]["sheets"]] == [40, 90, 150]
    volumes = kept["fig5"]["mnist3d"]
    assert volumes["restored"]["mnist3d"]["same_at_every_scope"]
    assert volumes["scopes"] == list(range(9))
    shown = capsys.readouterr().out
    assert "vote over 36 rotations" in shown
    assert "shift up to (voxels)" in shown


@pytest.mark.slow
def test_reproduce_trains_too():
    setting = fig6.setting(train=True, quick=True, progress=False)
    assert set(setting.restorers) == {"dense", "paper"}
    assert fig5.setting(train=True, quick=True, progress=False).restorers["paper"].metadata["data"] == "mnist3d"


@pytest.mark.slow
def test_the_targets_on_the_whole_test_set(digits):
    """Random angles through the shipped LeNet-5: bare, with the paper's net, and with the dense one."""
    images, labels = digits
    classifier = shipped()["lenet5-mnist"]()
    applied = 360 * torch.rand(len(images), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    restorers = {name: unshift.load(name) for name in NAMES}
    right = dict.fromkeys(("upright", "without", *NAMES), 0)
    for rows in torch.arange(len(images)).split(200):
        upright = fig6.enlarge(images[rows])
        turned = rotate(upright, applied[rows])
        seen = {"upright": upright, "without": turned, **{name: r(turned) for name, r in restorers.items()}}
        for name, shown in seen.items():
            with torch.no_grad():
                right[name] += int((classifier(fig6.shrink(shown)).argmax(1) == labels[rows]).sum())
    share = {name: count / len(images) for name, count in right.items()}
    assert share["without"] < 0.45
    assert share["mnist-rotation-paper"] >= 0.92
    assert share["mnist-rotation"] >= 0.975
    assert share["mnist-rotation"] >= share["upright"] - 0.01


@pytest.mark.slow
def test_the_volume_classifier_is_the_same_for_every_shift():
    setting = fig5.setting(progress=False)
    assert len(setting.images) == len(mnist3d("test")) == 1000
    result = fig5.run(setting)
    assert result["restored"]["mnist3d"]["same_at_every_scope"]
    assert result["restored"]["mnist3d"]["rates"]["within_1"] >= 0.95
