"""Confidences: exact to the bit once calibrated, measured by counting, used by min_confidence."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from samples import assert_exact, blobs, make_restorer

import unshift
from unshift.coordinates import KINDS, Pose
from unshift.evaluation import calibrate, curve_of, judge, reliability
from unshift.exact import Curve
from unshift.exact.quantised import bits_of
from unshift.files import model_card

WHOLE = Curve.WHOLE
HALVES = Curve([(WHOLE // 2, WHOLE // 4)])


def share(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def untrained() -> unshift.Restorer:
    """Return a copy that a test may change."""
    return copy.deepcopy(make_restorer("paper", 1, (8, 8)))


# --- the curve ----------------------------------------------------------------------------------------


def test_a_curve_goes_through_its_knots_and_its_ends():
    curve = Curve([(WHOLE // 4, WHOLE // 2), (WHOLE // 2, 3 * WHOLE // 4)])
    assert curve(share(0, 0.125, 0.25, 0.5, 0.75, 1)).tolist() == [0, 0.25, 0.5, 0.75, 0.875, 1]
    assert Curve(curve.describe()).describe() == curve.describe()


def test_a_curve_rises_and_stays_between_0_and_1():
    sure = torch.rand(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64).sort().values
    found = curve_of(sure, torch.rand(2000, generator=torch.Generator().manual_seed(1)) < sure.float() ** 3)(sure)
    assert (found.diff() > 0).all()
    assert found[0] >= 0
    assert found[-1] <= 1


def test_half_precision_does_not_touch_a_curve():
    sure = torch.rand(50, dtype=torch.float64)
    assert torch.equal(Curve([(WHOLE // 3, WHOLE // 7)]).half()(sure), Curve([(WHOLE // 3, WHOLE // 7)])(sure))


def test_a_few_images_that_are_all_right_get_a_high_probability():
    sure = torch.logspace(-3, -0.1, 31, dtype=torch.float64)
    curve = curve_of(sure, torch.ones(31).bool())
    assert float(curve(sure).min()) > 0.9
    assert float(curve(sure.new_tensor([1e-5]))) < 0.1  # below all of them


def test_too_few_images_leave_a_restorer_uncalibrated():
    restorer = untrained()
    restorer.metadata["calibration"] = {"images": 400}  # of an earlier calibration
    calibrate(restorer, lambda: [[blobs(9, 1, (8, 8))]])
    assert restorer.curve is None
    assert "calibration" not in restorer.metadata
    assert "calibrated on" not in model_card("x", restorer)


# --- reliability --------------------------------------------------------------------------------------


def test_the_calibration_error_counted_by_hand():
    found = reliability(share(0.9, 0.9, 0.9, 0.9, 0.3, 0.3), torch.tensor([1, 1, 1, 0, 0, 1]).bool())
    assert found.ece == pytest.approx((4 * abs(0.9 - 0.75) + 2 * abs(0.3 - 0.5)) / 6)
    assert [count for *_, count in found.bins] == [2, 4]


def test_risk_against_coverage_counted_by_hand():
    found = reliability(share(0.9, 0.8, 0.7, 0.6), torch.tensor([True, False, True, False]))
    assert [found.risk_at(coverage) for coverage in (0.25, 0.5, 0.75, 1)] == [0, 1 / 2, 1 / 3, 1 / 2]
    assert found.risk[-1] == (1, 1 / 2, 0.6)


# --- a calibrated restorer ----------------------------------------------------------------------------


@pytest.fixture
def calibrated():
    restorer = untrained()
    restorer.curve = HALVES
    return restorer


def test_a_calibrated_confidence_is_exact_under_every_shift(calibrated):
    assert_exact(calibrated, blobs(1, 1, (8, 8))[0])


def test_a_file_keeps_the_curve_and_a_file_without_one_is_as_before(calibrated, tmp_path):
    images = blobs(5, 1, (8, 8))
    calibrated.save(tmp_path / "with.safetensors")
    again = unshift.load(tmp_path / "with.safetensors")
    assert torch.equal(again.estimate(images).confidence, calibrated.estimate(images).confidence)
    calibrated.curve = None
    calibrated.save(tmp_path / "without.safetensors")
    raw = unshift.load(tmp_path / "without.safetensors")
    assert raw.curve is None
    assert torch.equal(raw.estimate(images).confidence, calibrated.estimate(images).confidence)
    assert torch.equal(HALVES(raw.estimate(images).confidence), again.estimate(images).confidence)


def test_calibrating_makes_the_mean_confidence_the_share_that_is_right():
    restorer, images = untrained(), blobs(400, 1, (8, 8))
    restorer.scorer.score_unit_bits.copy_(bits_of(100 * restorer.scorer.score_unit))  # far too confident
    before = judge(restorer, [[images]])
    after = calibrate(restorer, lambda: [[part] for part in images.split(100)])
    calibration = restorer.metadata["calibration"]
    assert torch.equal(after.distance, before.distance)
    assert calibration["images"] == 400
    assert calibration["ece"] < 0.05 < calibration["ece_before"]
    assert float(after.confidence.mean()) == pytest.approx(float(after.right.double().mean()), abs=0.05)


@pytest.mark.filterwarnings("ignore:this is near guessing")
def test_fit_calibrates_on_the_images_held_out():
    restorer = unshift.fit(blobs(600, 1, (8, 8)), epochs=1, validation=200, progress=False)
    assert restorer.curve is not None
    assert restorer.metadata["calibration"]["images"] == 200
    assert restorer.metadata["calibration"]["ece"] < 0.1


# --- min_confidence -----------------------------------------------------------------------------------


def test_images_below_min_confidence_pass_unchanged_and_are_marked():
    images = blobs(40, 1, (8, 8))
    restorer = untrained()
    found = restorer.estimate(images)
    assert found.rejected is None
    restorer.min_confidence = least = float(found.confidence.median())
    estimate = restorer.estimate(images)
    rejected = found.confidence < least
    assert 0 < int(rejected.sum()) < 40
    assert torch.equal(estimate.rejected, rejected)
    assert torch.equal(restorer(images)[rejected], images[rejected])
    assert torch.equal(restorer(images)[~rejected], restorer.undo(images, found)[~rejected])
    assert torch.equal(restorer.redo(restorer(images), estimate), images)
    assert torch.equal(restorer.estimate(list(images)).rejected, rejected)


def test_a_rejected_image_does_not_count_as_restored():
    restorer, images = untrained(), blobs(4, 1, (8, 8))
    restorer.min_confidence = 1.0
    assert restorer.estimate(images).shift.eq(0).all()
    assert not judge(restorer, [[images]]).right.any()
    with pytest.raises(ValueError, match="min_confidence"):
        calibrate(restorer, lambda: [[images]])


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "polar"])
def test_the_pose_of_a_rejected_image_changes_nothing(kind):
    arguments = {"turns": ["quarter"], "padded": [2], "scene": [(6, 6)], "poses": ["quarter"], "angles": [6]}
    coordinates, images = KINDS[kind](*arguments.get(kind, ())), torch.rand(2, 1, 6, 6)
    still = Pose(torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), share(0, 0))
    assert torch.equal(coordinates.undo(images, still), images)


def test_min_confidence_must_be_a_share():
    with pytest.raises(ValueError, match=r"min_confidence.*2"):
        unshift.load("mnist", min_confidence=2)
    restorer = unshift.load("mnist")
    restorer.min_confidence = math.nan
    with pytest.raises(ValueError, match=r"min_confidence.*nan"):
        restorer(torch.rand(1, 1, 32, 32))


@pytest.fixture
def rejecting() -> unshift.Restorer:
    """Return a calibrated restorer that rejects half of the images."""
    restorer = untrained()
    calibrate(restorer, lambda: [[blobs(400, 1, (8, 8))]])
    restorer.min_confidence = float(restorer.estimate(blobs(20, 1, (8, 8))).confidence.median())
    return restorer


def test_a_graph_gives_the_same_confidence_and_rejection(rejecting):
    graphs, images = pytest.importorskip("graphs"), blobs(20, 1, (8, 8))
    wanted = graphs.in_pytorch(rejecting, images)
    assert 0 < int(wanted["rejected"].sum()) < 20
    found = graphs.in_graph(rejecting, images)
    assert set(found) == set(wanted)
    assert graphs.differences(found, wanted) == []


@pytest.mark.slow
def test_an_exported_file_gives_the_same_confidence_and_rejection(rejecting, tmp_path):
    graphs, images = pytest.importorskip("graphs"), blobs(20, 1, (8, 8))
    unshift.export(rejecting, tmp_path / "net.onnx", size=(8, 8))
    found = graphs.run(graphs.session(str(tmp_path / "net.onnx")), images)
    assert {"rejected", "confidence"} <= set(found)
    assert graphs.differences(found, graphs.in_pytorch(rejecting, images)) == []
