"""Corners of exactness: strips and blocks, what is prepared once, float32 that is none, numbers at their limits."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from samples import PRESETS, assert_exact, bits, blobs, hard_images, make_estimator, make_restorer
from test_exact import by_integers
from torch import nn
from torch.nn import functional as F

import unshift
from unshift import Restorer, ShiftEstimator, apply, quantise
from unshift.coordinates import Polar
from unshift.exact import LARGEST_SCALE, IntegerEstimator, confidence, integers, kernels
from unshift.exact.direct import Direct32, Direct64
from unshift.exact.integers import bits_of
from unshift.exact.kernels import prepare
from unshift.exact.task import Task, float32_is_plain
from unshift.testing import all_shifts


def fresh(net):
    """The same integers in a net that has prepared nothing yet."""
    again = IntegerEstimator(**net.describe())
    again.load_state_dict(net.state_dict())
    return again


def used(net):
    """The kernels that a net has been run with."""
    plans = [kept.value for kept in net._plans.values()]
    lines = [made for plan in plans for line in plan.lines for made in line]
    return {type(made.kernel) for made in [*(made for plan in plans for made in plan.local), *lines]}


# --- the whole network, in int64 alone ---------------------------------------------------------------


def by_layers(values, layers):
    for layer in layers:
        values = by_integers(values, layer.weight) + layer.bias.view(-1, *[1] * (values.ndim - 2))
        if layer.divisor is not None:
            values = values.abs() if layer.activation == "abs" else values.clamp(min=0)
            values = values // layer.divisor.view(-1, *[1] * (values.ndim - 2))
            values = values.clamp(-layer.largest, layer.largest)
    return values


def scored_in_int64(net, images):
    """The scores as the formulas have them: integers only, no kernel, no block, no strip."""
    size = tuple(images.shape[2:])
    features = by_layers(net.pixels(images).to(torch.int64), net.local)
    if not len(net.lines):
        return features[:, 0]
    total = torch.zeros(len(images), *size, dtype=torch.int64)
    for axis, line in enumerate(net.lines):
        others = [2 + a for a in range(len(size)) if a != axis]
        sums = features.sum(others) if others else features
        divisor = net.get_buffer(f"mean_divisor_{axis}").view(-1, 1)
        pixels, calibrated = (torch.tensor(n).prod() // n[axis] for n in (size, net.calibrated))
        means = (sums * calibrated // (divisor * pixels)).clamp(-net.largest, net.largest)
        total += by_layers(means, line)[:, 0].view(-1, *[n if a == axis else 1 for a, n in enumerate(size)])
    return total


@pytest.mark.parametrize("trained", [False, True], ids=["untrained", "trained"])
@pytest.mark.parametrize("size", [(11,), (9, 13), (3, 4, 5), (2, 70)], ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_scores_are_those_of_the_formulas(preset, size, trained):
    net = make_restorer(preset, 2, size, trained).scorer
    images = torch.cat([torch.rand(3, 2, *size), torch.stack([*hard_images(2, size).values()])])
    assert torch.equal(net(images), scored_in_int64(net, images))


@pytest.mark.parametrize("calibrated", [(8, 8), (9, 12)], ids=str)
@pytest.mark.parametrize("size", [(8, 8), (9, 11), (13, 8), (16, 24), (30, 9)], ids=str)
def test_line_nets_are_exact_at_sizes_they_were_not_calibrated_at(calibrated, size):
    torch.manual_seed(0)
    net = ShiftEstimator(
        1, channels=(4, 4), kernel_size=(3, 3), bias=True, line_channels=(6, 1), line_kernel_size=(5, 5)
    )
    restorer = Restorer(quantise(net, blobs(16, 1, calibrated)))
    images = torch.rand(3, 1, *size)
    assert torch.equal(restorer.scorer(images), scored_in_int64(restorer.scorer, images))
    for kind in ("random", "blob", "constant", "tied", "uneven"):
        assert_exact(restorer, hard_images(1, size)[kind])


def test_line_sums_at_the_calibrated_size_are_divided_by_the_divisor_alone():
    net = make_restorer("seam", 1, (8, 9)).scorer
    sums = torch.randint(0, 1023 * 9, (2, len(net.mean_divisor_0), 8)).double()
    wanted = (sums.long() // net.mean_divisor_0.view(-1, 1)).clamp(max=net.largest)
    assert torch.equal(net.means(sums, net.line_rule(0, (8, 9))).long(), wanted)


def test_line_nets_refuse_what_would_leave_53_bits():
    net = ShiftEstimator(1, channels=(1,), kernel_size=(1, 1), line_channels=(1,), line_kernel_size=(1, 1))
    scorer = quantise(net, torch.rand(1, 1, 16, 17), bits=40, sum_bits=50)
    with pytest.raises(ValueError, match=r"images of size .* too large for a net calibrated at \(16, 17\)"):
        scorer(torch.rand(1, 1, 255, 251))


# --- strips and blocks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "size"), [("paper", (200, 9)), ("paper", (209, 70)), ("seam", (41, 12)), ("seam", (60, 66))], ids=str
)
def test_strips_give_the_scores_of_the_whole(preset, size, monkeypatch):
    torch.manual_seed(0)
    net = quantise(ShiftEstimator.preset(preset, 1, size), blobs(4, 1, size))
    images = torch.rand(2, 1, *size)
    monkeypatch.setattr(integers, "BLOCK", 2**40)
    wanted = net(images)
    monkeypatch.setattr(integers, "BLOCK", 1)
    monkeypatch.setattr(integers, "STRIPS", float("inf"))
    counts = []
    features = IntegerEstimator._features

    def counted(self, *arguments):
        parts = list(features(self, *arguments))
        counts.append(len(parts))
        yield from parts

    monkeypatch.setattr(IntegerEstimator, "_features", counted)
    again = fresh(net)
    assert torch.equal(again(images), wanted)
    assert min(counts) > 1
    shift = torch.tensor([[size[0] // 2 + 1, 5]]).expand(2, 2)  # and so do the strips of a shifted image
    assert torch.equal(again(apply(images, shift)), apply(wanted[:, None], shift)[:, 0])


@pytest.mark.parametrize("preset", PRESETS)
def test_blocks_do_not_show(preset, monkeypatch):
    net, images = make_restorer(preset, 2, (9, 13), trained=True).scorer, torch.rand(7, 2, 9, 13)
    found = []
    for block in (1, 2**11, 2**12, 2**13, 2**30):
        monkeypatch.setattr(integers, "BLOCK", block)
        found.append(fresh(net)(images))
    assert all(torch.equal(one, found[0]) for one in found)


def test_blocks_of_the_choice_do_not_show(monkeypatch):
    restorer = make_restorer("paper", 1, (8, 8))
    images = torch.stack([*hard_images(1, (8, 8)).values()])
    wanted = restorer.estimate(images)
    for name in ("unshift.restorer.BLOCK", "unshift.exact.ties.BLOCK", "unshift.exact.softmax.BLOCK"):
        with monkeypatch.context() as patch:
            patch.setattr(name, 1)
            found = restorer.estimate(images)
            for a, b in zip(found, wanted, strict=True):
                assert (a is b is None) or torch.equal(a, b)


# --- what is prepared once follows the integers ----------------------------------------------------------


def run_and(change, preset="paper"):
    """Run a net, change it, and return its scores and those of a net that was never run before the change."""
    net, images = fresh(make_restorer(preset, 1, (9, 13)).scorer), torch.rand(2, 1, 9, 13)
    before = net(images)
    net = change(net) or net
    return before, net(images), fresh(net)(images)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("buffer", ["weight", "bias", "divisor"])
def test_changes_in_place_are_followed(preset, buffer):
    def change(net):
        getattr(net.local[0], buffer).mul_(2).add_(10_000)

    before, found, wanted = run_and(change, preset)
    assert torch.equal(found, wanted)
    assert not torch.equal(found, before)


def test_a_change_of_the_pixel_scale_is_followed():
    def finer(net):
        net.pixel_scale_bits.copy_(bits_of(100.0))
        net.score_unit_bits.copy_(bits_of(0.25))

    net = fresh(make_restorer("paper", 1, (9, 13)).scorer)
    assert net.score_unit != 0.25
    before, found, wanted = run_and(finer)
    finer(net)
    assert net.score_unit == 0.25
    assert torch.equal(found, wanted)
    assert not torch.equal(found, before)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
def test_other_weights_are_followed(preset, assign):
    other = make_restorer(preset, 1, (9, 13), trained=True).scorer
    state = {name: buffer.clone() for name, buffer in other.state_dict().items()}

    def change(net):
        net.load_state_dict(state, assign=assign)

    before, found, wanted = run_and(change, preset)
    assert torch.equal(found, wanted)
    assert not torch.equal(found, before)


def test_a_copy_and_its_original_go_their_own_ways():
    net, images = fresh(make_restorer("paper", 1, (9, 13)).scorer), torch.rand(2, 1, 9, 13)
    before = net(images)
    twin = copy.deepcopy(net)
    twin.local[0].weight.mul_(-1)
    assert torch.equal(net(images), before)
    assert torch.equal(twin(images), fresh(twin)(images))
    assert not torch.equal(twin(images), before)


@pytest.mark.parametrize("change", ["half", "bfloat16", "double", "float"])
def test_a_change_of_dtype_changes_nothing_that_was_prepared(change):
    before, found, wanted = run_and(lambda net: getattr(net, change)())
    assert torch.equal(found, before)
    assert torch.equal(found, wanted)


def test_many_sizes_do_not_fill_the_memory():
    net = fresh(make_restorer("paper", 1, (9, 9)).scorer)
    for width in range(9, 49):
        net(torch.rand(1, 1, 9, width))
    assert len(net._plans) <= 8


def test_threads_that_share_a_net_get_its_scores():
    net, images = fresh(make_restorer("seam", 1, (9, 13)).scorer), torch.rand(4, 1, 9, 13)
    wanted, found = fresh(net)(images), []
    workers = [threading.Thread(target=lambda: found.append(net(images))) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 8
    assert all(torch.equal(one, wanted) for one in found)


def test_nets_made_and_run_in_inference_mode():
    images = torch.rand(3, 1, 8, 8)
    wanted = make_restorer("dense", 1, (8, 8))(images)
    with torch.inference_mode():
        restorer = Restorer(quantise(make_estimator("dense", 1, (8, 8)), blobs(16, 1, (8, 8))))
        assert torch.equal(restorer(images), wanted)
        assert torch.equal(copy.deepcopy(restorer)(images), wanted)
    assert torch.equal(restorer(images), wanted)


# --- float32 that is none --------------------------------------------------------------------------------


def assert_taken_in_float64(net, images, wanted):
    assert not float32_is_plain(torch.device("cpu"))
    again = fresh(net)
    assert torch.equal(again(images), wanted)
    assert {kernel.dtype for kernel in used(again)} == {torch.float64}
    assert torch.equal(net(images), wanted)  # and a net that had prepared float32 before


@pytest.fixture
def run():
    """A net that has been run in float32, images, and its scores."""
    net, images = fresh(make_restorer("paper", 1, (9, 13)).scorer), torch.rand(2, 1, 9, 13)
    wanted = net(images)
    assert float32_is_plain(torch.device("cpu"))
    yield net, images, wanted
    assert float32_is_plain(torch.device("cpu"))  # what a test set is set back


@pytest.mark.parametrize("precision", ["medium", "high"])
def test_a_lower_matmul_precision_means_float64(run, precision):
    torch.set_float32_matmul_precision(precision)
    try:
        assert_taken_in_float64(*run)
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("part", ["conv", "matmul", ""])
@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_lower_precision_of_onednn_means_float64(run, part, precision, monkeypatch):
    module = getattr(torch.backends.mkldnn, part) if part else torch.backends.mkldnn
    if not hasattr(module, "fp32_precision"):
        pytest.skip("this PyTorch has no such setting")
    before = module.fp32_precision
    try:
        module.fp32_precision = precision
        assert_taken_in_float64(*run)
    finally:
        module.fp32_precision = before


@pytest.mark.parametrize("mode", ["BF16", "bf16", "ANY", "TF32", "F16"])
def test_a_lower_precision_in_the_environment_means_float64(run, mode, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", mode)
        assert_taken_in_float64(*run)


def test_a_strict_environment_is_plain(monkeypatch):
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "STRICT")
    assert float32_is_plain(torch.device("cpu"))
    assert not float32_is_plain(torch.device("cuda"))


@pytest.mark.parametrize(
    ("size", "kernel"),
    [((9, 13), (3, 3)), ((9, 16), (3, 3)), ((9,), (4,)), ((32,), (4,)), ((5, 6, 7), (2, 2, 2))],
    ids=str,
)
def test_a_convolution_that_rounds_is_caught_by_the_trial(size, kernel, monkeypatch):
    weight = torch.randint(-999, 1000, (3, 2, *kernel))
    task = Task((3, 2, *kernel), size, float(1023 * weight.abs().flatten(1).sum(1).max()))
    monkeypatch.setattr(kernels, "KERNELS", (Direct32, Direct64))
    monkeypatch.setattr(Direct64, "cost", staticmethod(lambda task: 1e9))
    assert isinstance(prepare(weight, task, plain=True), Direct32)
    name = f"conv{max(2, len(size))}d"  # lines go through two axes, one of them of length 1
    plain = getattr(F, name)

    def rounding(images, weight, bias, *stride):
        if images.dtype == torch.float32:
            images, weight = images.bfloat16().float(), weight.bfloat16().float()
        return plain(images, weight, bias, *stride)

    monkeypatch.setattr(F, name, rounding)
    assert isinstance(prepare(weight, task, plain=True), Direct64)


# --- numbers at their limits ------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [1e-38, 1e-40, 1e-44, 1e-30, 1e-20])
def test_pixels_that_flush_to_zero_are_zero_anyway(top):
    images = (blobs(4, 1, (8, 8)) / 0.5 * top).float()
    restorer = Restorer(quantise(make_estimator("dense", 1, (8, 8)), images))
    assert float(restorer.scorer.pixel_scale_bits.view(torch.float64)) <= LARGEST_SCALE
    wanted, still = restorer.estimate(images), restorer(images)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    try:
        found, restored = restorer.estimate(images), restorer(images)
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(found.shift, wanted.shift)
    assert torch.equal(found.confidence, wanted.confidence)
    assert torch.equal(found.tied, wanted.tied)
    assert torch.equal(bits(restored), bits(still))


def test_a_file_with_a_larger_pixel_scale_is_refused(tmp_path):
    restorer = copy.deepcopy(make_restorer("dense", 1, (8, 8)))
    restorer.scorer.pixel_scale_bits.copy_(bits_of(LARGEST_SCALE))
    restorer.save(tmp_path / "largest.safetensors")
    unshift.load(tmp_path / "largest.safetensors")
    restorer.scorer.pixel_scale_bits.copy_(bits_of(2 * LARGEST_SCALE))
    restorer.save(tmp_path / "larger.safetensors")
    with pytest.raises(ValueError, match=r"pixel_scale_bits must stand for at most 1.26765e\+30, got 2.5"):
        unshift.load(tmp_path / "larger.safetensors")


@pytest.mark.parametrize("unit", [1e-30, 1e-18, 1e-9, 1.0, 1e30])
def test_scores_that_are_2_to_the_63_apart_have_a_confidence(unit):
    scores = torch.tensor([[-(2**63), 2**63 - 1, 0], [2**63 - 1] * 3, [-(2**63)] * 3])
    found = confidence(scores, unit)
    assert ((found > 0) & (found <= 1)).all()
    assert torch.equal(confidence(scores.flip(1), unit), found)
    assert found[1:].tolist() == pytest.approx([1 / 3, 1 / 3])


class Extreme(nn.Module):
    """A foreign scorer whose scores are as far apart as int64 goes."""

    def forward(self, images):
        return torch.where(images[:, 0] > 0.5, 2**63 - 1, -(2**63))


def test_a_foreign_scorer_may_use_all_of_int64():
    image = torch.rand(1, 8, 8)
    restorer = Restorer(Extreme())
    assert_exact(restorer, image)
    assert 0 < restorer.estimate(image[None]).confidence.item() <= 1


# --- unusual dtypes -----------------------------------------------------------------------------------------

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOAT8 = [
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
]


def unusual(dtype, *shape):
    values = torch.rand(shape) + 0.25
    return (200 * values).to(torch.int64).to(dtype) if dtype in UNSIGNED else values.to(dtype)


def moved_bits(images, by):
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[images.element_size()]
    return by(images.view(width)), width


@pytest.mark.parametrize("dtype", [*UNSIGNED, *FLOAT8], ids=str)
def test_shifts_of_unusual_dtypes_are_exact(dtype):
    image = unusual(dtype, 1, 1, 8, 8)
    restorer = make_restorer("paper", 1, (8, 8), trained=True)
    wanted = restorer(image)
    assert wanted.dtype == dtype
    _, width = moved_bits(image, lambda x: x)
    for shift in all_shifts((8, 8)):
        moved = image.view(width).roll(tuple(shift.tolist()), (2, 3)).view(dtype)
        assert torch.equal(restorer(moved).view(width), wanted.view(width))


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("dtype", [*UNSIGNED, *FLOAT8], ids=str)
def test_rotations_of_unusual_dtypes_are_exact_or_refused(dtype, refine):
    polar = Polar(8, angles=12, radii=3, refine=refine)
    torch.manual_seed(0)
    net = polar.network("dense", 1, (8, 8))
    restorer = Restorer(quantise(net, polar.canvas(torch.rand(8, 1, 8, 8))[:, 0]), coordinates=polar)
    images = unusual(dtype, 4, 1, 8, 8)
    _, width = moved_bits(images, lambda x: x)
    try:
        wanted = restorer(images)
    except ValueError as error:
        assert str(dtype) in str(error)  # noqa: PT017 (either is right)
        return
    assert wanted.dtype == dtype
    for k in range(1, 4):
        turned = torch.rot90(images.view(width), k, (2, 3)).contiguous().view(dtype)
        assert torch.equal(restorer(turned).view(width), wanted.view(width))
