"""Sums of integers: every kernel that says it is exact is, up to its limit."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from integer_sums import by_integers, integers
from samples import PRESETS, make_restorer

from unshift.circular import circular_correlation
from unshift.estimator import ShiftEstimator
from unshift.exact import (
    IntegerEstimator,
    quantise,
)
from unshift.exact.direct import Direct32, Direct64
from unshift.exact.filters import floor_divide
from unshift.exact.fourier import Fft64, Waves64, fft_error_bound
from unshift.exact.kernels import GRAPH_KERNELS, KERNELS, prepare
from unshift.exact.task import Task
from unshift.shifts import apply

ALL = [*KERNELS, Waves64]

CORRELATIONS = [  # (spatial size, kernel), with sizes that are prime, which an FFT likes least
    ((7,), (3,)),
    ((101,), (101,)),
    ((1, 1), (1, 1)),
    ((1, 7), (1, 4)),
    ((9, 13), (9, 9)),
    ((31, 37), (5, 5)),
    ((16, 16), (16, 16)),
    ((6, 7, 8), (3, 2, 4)),
    ((5, 70), (3, 4)),  # wider than one tile of 64 columns
    ((4, 131), (2, 9)),
]

STRIPS = [((9,), (4,)), ((40,), (7,)), ((9, 8), (3, 4)), ((12, 70), (4, 3)), ((7, 130), (5, 2)), ((8, 6), (1, 6))]


def task_of(images, weight, largest, **options):
    worst = float(largest * weight.double().abs().flatten(1).sum(1).max())
    return Task(tuple(weight.shape), tuple(images.shape[2:]), worst, **options)


def only(monkeypatch, *kernels):
    """Force integer inference through some of its kernels."""
    monkeypatch.setattr("unshift.exact.kernels.KERNELS", kernels)


# --- exact sums ------------------------------------------------------------------------------------


def test_the_reference_is_right_in_python_integers():
    images, weight = integers(-9, 9, 1, 2, 3, 4), integers(-9, 9, 1, 2, 2, 3)
    found = by_integers(images, weight)[0, 0].tolist()
    for row, column in itertools.product(range(3), range(4)):
        wanted = sum(
            int(weight[0, r, a, b]) * int(images[0, r, (row + a - 1) % 3, (column + b - 1) % 4])
            for r, a, b in itertools.product(range(2), range(2), range(3))
        )
        assert found[row][column] == wanted


@pytest.mark.parametrize(("size", "kernel"), CORRELATIONS, ids=str)
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 2), (1, 3), (2, 1)])
@pytest.mark.parametrize(("largest", "tap"), [(1, 1), (15, 3), (1023, 2**14), (2**20, 2**14)])
def test_every_kernel_that_says_it_holds_is_exact(size, kernel, inputs, outputs, largest, tap):
    images = integers(-largest, largest, 3, inputs, *size)
    weight = integers(-tap, tap, outputs, inputs, *kernel)
    images[0], weight[0] = largest, tap  # the largest sums there are
    wanted = by_integers(images, weight)
    tried = set()
    for traced in (False, True):
        task = task_of(images, weight, largest, traced=traced)
        for one in GRAPH_KERNELS if traced else KERNELS:
            if one.holds(task):
                found = one(weight, task)(images.to(one.dtype), margin=False)
                assert found.dtype == one.dtype
                assert torch.equal(found.to(torch.int64), wanted), one
                tried.add(one)
    assert Direct64 in tried
    if tap < 4:
        assert tried == {*ALL} - ({Waves64} if len(size) != 2 else set())


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("one", ALL)
def test_sums_just_below_the_limit_of_float32_are_exact(kernel, one):
    """The worst case: all pixels and taps as large as 24 bits allow, all of one sign."""
    weight = torch.full((1, 1, kernel, kernel), (2**24 - 1) // (1023 * kernel**2))
    assert 1023 * int(weight.sum()) < 2**24
    images = torch.full((2, 1, 10, 11), 1023) - integers(0, 1, 2, 1, 10, 11)
    task = task_of(images, weight, 1023, traced=one is Waves64)
    assert one.holds(task)
    found = one(weight, task)(images.to(one.dtype), margin=False)
    assert torch.equal(found.to(torch.int64), by_integers(images, weight))


def test_the_limits_of_the_kernels():
    """No kernel claims a sum past what its numbers hold."""
    limits = {2.0**24 - 1: {*ALL}, 2.0**24: {Direct64, Fft64}, 2.0**52: {Direct64}, 2.0**53: set()}
    for worst, holding in limits.items():
        assert {one for one in ALL if one.holds(Task((1, 1, 3, 3), (8, 8), worst, traced=True))} == holding


@pytest.mark.parametrize("one", [Direct32, Direct64])
@pytest.mark.parametrize(("size", "kernel"), STRIPS, ids=str)
def test_a_strip_with_its_margin_is_a_strip_of_the_whole(one, size, kernel):
    images, weight = integers(-99, 99, 2, 2, *size), integers(-9, 9, 3, 2, *kernel)
    whole = by_integers(images, weight)
    task = task_of(images, weight, 99, strips=True)
    assert one.holds(task)
    made = one(weight, task)
    before, after = kernel[0] // 2, kernel[0] - 1 - kernel[0] // 2
    for start, end in ((0, 2), (1, size[0]), (size[0] - 1, size[0])):
        rows = torch.arange(start - before, end + after) % size[0]
        found = made(images[:, :, rows].to(one.dtype), margin=True)
        assert torch.equal(found.to(torch.int64), whole[:, :, start:end])


@pytest.mark.parametrize(("size", "kernel"), CORRELATIONS, ids=str)
@pytest.mark.parametrize(("largest", "tap"), [(1, 1), (1023, 2**14), (2**16, 2**16)])
def test_the_fft_error_bound_bounds_the_error(size, kernel, largest, tap):
    images, weight = integers(-largest, largest, 4, 2, *size), integers(-tap, tap, 2, 2, *kernel)
    images[0], weight[0] = largest, tap  # the largest sums there are
    measured = (circular_correlation(images.double(), weight.double(), "fft") - by_integers(images, weight)).abs().max()
    bound = fft_error_bound(size, 2, task_of(images, weight, largest).worst)
    assert measured <= bound
    assert bound < 0.5 or tap > 2**14


def test_the_fft_error_bound_grows_with_everything_that_adds_error():
    bound = fft_error_bound((16, 16), 3, 1e6)
    assert fft_error_bound((16, 16), 4, 1e6) > bound
    assert fft_error_bound((16, 17), 3, 1e6) > bound
    assert fft_error_bound((16, 16), 3, 1.1e6) > bound
    # The same sums out of more channels: past some number of them the FFT is not used.
    held = [Fft64.holds(Task((1, inputs, 3), (64,), 2.0**38)) for inputs in (1, 2**8, 2**16, 2**24)]
    assert held[0]
    assert not held[-1]
    assert sorted(held, reverse=True) == held


def test_past_the_bound_the_sums_are_direct():
    images, weight = integers(-(2**20), 2**20, 1, 1, 16, 16), integers(-(2**24), 2**24, 1, 1, 5, 5)
    task = task_of(images, weight, 2**20)
    assert fft_error_bound((16, 16), 1, task.worst) >= 0.5
    made = prepare(weight, task, plain=True, passed=set())
    assert isinstance(made, Direct64)
    assert torch.equal(made(images.double(), margin=False).to(torch.int64), by_integers(images, weight))


def test_sums_past_the_limit_are_refused():
    with pytest.raises(ValueError, match=r"sums reach 9007199254740992; they must stay below 2\^53"):
        prepare(torch.tensor([[[2**33]]]), Task((1, 1, 1), (4,), 2.0**53), plain=True, passed=set())


@pytest.mark.parametrize("preset", PRESETS)
def test_every_path_gives_the_same_scores(preset, monkeypatch):
    net = make_restorer(preset, 2, (9, 13), trained=True).scorer
    images = torch.rand(5, 2, 9, 13)
    wanted = net(images)
    for forced in ([Direct32], [Direct64], [Fft64]):
        only(monkeypatch, *forced)
        again = IntegerEstimator(**net.describe())  # a net that has prepared nothing yet
        again.load_state_dict(net.state_dict())
        assert torch.equal(again(images), wanted)
        plan = again.plan((9, 13), images.device)
        assert {
            type(made.kernel) for made in [*plan.local, *(made for line in plan.lines for made in line.layers)]
        } <= {*forced}


@given(st.integers(-(2**50), 2**50), st.integers(1, 2**40))
@settings(deadline=None)
def test_floor_division_between_layers_is_exact(value, divisor):
    found = floor_divide(torch.tensor([[[float(value)]]], dtype=torch.float64), torch.tensor([divisor]).double(), 2**51)
    assert int(found) == value // divisor


@given(st.integers(-(2**24) + 1, 2**24 - 1), st.integers(1, 2**24))
@settings(deadline=None)
def test_floor_division_in_float32_is_exact(value, divisor):
    found = floor_divide(torch.tensor([[[float(value)]]]), torch.tensor([float(divisor)]), 2**24)
    assert int(found) == value // divisor


# --- confidence ------------------------------------------------------------------------------------


def test_exact_with_onednn_switched_off():
    """Without oneDNN, PyTorch may pick float32 transforms that round; the net must not use float32 then."""
    torch.manual_seed(6)
    images = torch.rand(32, 3, 24, 12).repeat(1, 1, 1, 2)
    images[:, 0, 3, 4] += 1e-6
    net = ShiftEstimator(3, channels=(32, 64, 1), kernel_size=(4, 1), bias=True, activation="abs")
    scorer = quantise(net, images[:8])
    shift = torch.randint(-99, 99, (32, 2))
    with torch.backends.mkldnn.flags(enabled=False):
        scores, moved = scorer(images), scorer(apply(images, shift))
    assert torch.equal(moved, apply(scores[:, None], shift)[:, 0])
