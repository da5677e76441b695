"""Every kernel equals the plain int64 correlation, up to the limit that it claims; float32 only where it is plain."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import fresh, integers, used_kernels
from samples import PRESETS, make_restorer
from torch.nn import functional as F

from unshift.exact import kernels, quantise
from unshift.exact.inference import floor_divide
from unshift.exact.integers import correlate
from unshift.exact.kernels import KERNELS, Task, prepare
from unshift.exact.kernels.direct import Diagonal32, Direct32, Direct64, Matrix32
from unshift.exact.kernels.fourier import Dft64, Fft64
from unshift.exact.runtime import float32_is_plain
from unshift.network import ShiftEstimator
from unshift.shifts import apply

ALL = [*KERNELS, Dft64]
PLANE = [kind for kind in ALL if kind is not Diagonal32]

CORRELATIONS = [  # (spatial size, kernel), with sizes that are prime, which are the worst for an FFT
    ((7,), (3,)),
    ((101,), (101,)),
    ((1, 1), (1, 1)),
    ((1, 7), (1, 4)),
    ((9, 13), (9, 9)),
    ((31, 37), (5, 5)),
    ((16, 16), (16, 16)),
    ((6, 7, 8), (3, 2, 4)),
    ((4, 131), (2, 9)),
]


def task_of(weight, size, largest):
    return Task(tuple(weight.shape), tuple(size), float(largest * weight.double().abs().flatten(1).sum(1).max()))


def zero_bias(weight):
    return torch.zeros(len(weight), dtype=torch.int64)


def run_kernel(kind, images, weight, bias=None):
    sums = kind(weight, zero_bias(weight) if bias is None else bias, images.shape[2:])(images.to(kind.dtype))
    assert sums.dtype == kind.dtype
    return sums.to(torch.int64)


# --- the reference ----------------------------------------------------------------------------------


def test_the_reference_is_right_in_python_integers():
    images, weight = integers(-9, 9, 1, 2, 3, 4), integers(-9, 9, 1, 2, 2, 3)
    found = correlate(images, weight)[0, 0].tolist()
    for row, column in itertools.product(range(3), range(4)):
        wanted = sum(
            int(weight[0, r, a, b]) * int(images[0, r, (row + a - 1) % 3, (column + b - 1) % 4])
            for r, a, b in itertools.product(range(2), range(2), range(3))
        )
        assert found[row][column] == wanted


# --- exact sums -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "kernel"), CORRELATIONS, ids=str)
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 2), (1, 3), (2, 1)])
@pytest.mark.parametrize(("largest", "tap"), [(1, 1), (15, 3), (1023, 2**14), (2**20, 2**14)])
def test_every_kernel_equals_the_reference_where_it_holds(size, kernel, inputs, outputs, largest, tap):
    images = integers(-largest, largest, 3, inputs, *size)
    weight = integers(-tap, tap, outputs, inputs, *kernel)
    images[0], weight[0] = largest, tap  # the largest possible sums
    wanted = correlate(images, weight)
    task = task_of(weight, size, largest)
    exact_kinds = {kind for kind in ALL if kind.is_exact(task)}
    for kind in exact_kinds:
        assert torch.equal(run_kernel(kind, images, weight), wanted), kind
    assert Direct64 in exact_kinds
    if tap < 4:
        fitting = {Diagonal32: (len(size), outputs) == (1, 1), Dft64: len(size) == 2}
        # A matrix may be too large.
        assert exact_kinds | {Matrix32} == {kind for kind in ALL if fitting.get(kind, True)}


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("kind", ALL)
def test_sums_just_below_the_limit_of_float32_are_exact(kernel, kind):
    """The worst case: all pixels and taps as large as 24 bits allow, all of one sign, and a bias."""
    size = (11,) if kind is Diagonal32 else (10, 11)
    weight = torch.full((1, 1, *[kernel] * len(size)), (2**24 - 8) // (1023 * kernel ** len(size)))
    images = torch.full((2, 1, *size), 1023) - integers(0, 1, 2, 1, *size)
    assert kind.is_exact(task_of(weight, size, 1023))
    bias = torch.tensor([7])
    assert torch.equal(run_kernel(kind, images, weight, bias), correlate(images, weight) + 7)


# In float32, 1 / (30 * 34) is as far from a number as it can be: sums would be off by one.
@pytest.mark.parametrize("size", [(31, 37), (30, 34), (32, 32), (64, 64)], ids=str)
def test_spectra_are_exact_just_below_the_limit(size):
    """Dense filters, with all pixels and taps of one sign, and of random ones."""
    images = torch.stack([torch.full(size, 1023), integers(-1023, 1023, *size)])[:, None]
    taps = [torch.full(size, (2**24 - 3) // 1023 // size[0] // size[1]), integers(-2, 2, *size)]
    for tap in taps:
        if tap.abs().sum() * 1023 >= 2**24 - 1:
            tap = tap.sign() * (torch.rand(size) < 0.2)
        weight = tap[None, None]
        wanted = run_kernel(Direct64, images, weight)
        for kind in (Fft64, Dft64):
            assert kind.is_exact(task_of(weight, size, 1023))
            assert torch.equal(run_kernel(kind, images, weight), wanted)


def test_no_kernel_claims_sums_beyond_its_numbers():
    limits = {2.0**24 - 1: {*PLANE}, 2.0**24: {Direct64, Fft64}, 2.0**52: {Direct64}, 2.0**53: set()}
    for worst, exact_kinds in limits.items():
        assert {kind for kind in ALL if kind.is_exact(Task((1, 1, 3, 3), (8, 8), worst))} == exact_kinds


BOUNDED = [(kind, *one) for kind in (Fft64, Dft64) for one in CORRELATIONS if kind is Fft64 or len(one[0]) == 2]


@pytest.mark.parametrize(("kind", "size", "kernel"), BOUNDED, ids=str)
@pytest.mark.parametrize(("largest", "tap"), [(1, 1), (1023, 2**14), (2**16, 2**16)])
def test_the_error_bounds_bound_the_error(kind, size, kernel, largest, tap, monkeypatch):
    images, weight = integers(-largest, largest, 4, 2, *size), integers(-tap, tap, 2, 2, *kernel)
    images[0], weight[0] = largest, tap  # the largest possible sums
    monkeypatch.setattr("unshift.exact.kernels.fourier._rounded", lambda sums, bias: sums)
    sums = kind(weight, zero_bias(weight), size)(images.double())
    bound = kind.error_bound(task_of(weight, size, largest))
    assert (sums - correlate(images, weight)).abs().max() <= bound
    assert bound < 0.5 or tap > 2**14


def test_sums_beyond_the_bound_of_the_fft_are_direct():
    images, weight = integers(-(2**20), 2**20, 1, 1, 16, 16), integers(-(2**24), 2**24, 1, 1, 5, 5)
    task = task_of(weight, (16, 16), 2**20)
    assert not Fft64.is_exact(task)
    kernel = prepare(weight, zero_bias(weight), task, set())
    assert isinstance(kernel, Direct64)
    assert torch.equal(kernel(images.double()).to(torch.int64), correlate(images, weight))


def test_sums_beyond_float64_are_refused():
    with pytest.raises(ValueError, match="9007199254740992"):
        prepare(torch.tensor([[[2**33]]]), torch.tensor([0]), Task((1, 1, 1), (4,), 2.0**53), set())


@pytest.mark.parametrize("preset", PRESETS)
def test_every_kernel_gives_the_same_scores(preset, monkeypatch):
    net = make_restorer(preset, 2, (9, 13), trained=True).scorer
    images = torch.rand(5, 2, 9, 13)
    wanted = net.reference(images)
    for forced in (Direct32, Direct64, Fft64):
        monkeypatch.setattr(kernels, "KERNELS", (forced,))
        again = fresh(net)
        assert torch.equal(again(images), wanted)
        assert used_kernels(again) == {forced}


@given(st.integers(-(2**50), 2**50), st.integers(1, 2**40))
@settings(deadline=None)
def test_floor_division_in_float64_is_exact(value, divisor):
    sums = torch.tensor([float(value)], dtype=torch.float64)
    assert int(floor_divide(sums, torch.tensor([divisor]).double(), -(2**51), 2**51)) == value // divisor


@given(st.integers(-(2**24) + 1, 2**24 - 1), st.integers(1, 2**24))
@settings(deadline=None)
def test_floor_division_in_float32_is_exact(value, divisor):
    found = floor_divide(torch.tensor([float(value)]), torch.tensor([float(divisor)]), -(2**24), 2**24)
    assert int(found) == value // divisor


def test_no_quotient_is_rounded_up():
    """Division in float32 where it is closest: sums just below a multiple of the divisor."""
    powers = 2 ** torch.arange(25)
    divisors = torch.cat([torch.arange(1, 200), torch.randint(200, 2**24, (200,)), powers, powers[1:] - 1])
    multiples = (2**24 - 1) // divisors * divisors
    for sums in (multiples, multiples - 1, (multiples + 1).clamp(max=2**24 - 1), torch.tensor(2**24 - 1)):
        for sign in (1, -1):
            signed = (sign * sums).float().expand(len(divisors)).clone()
            quotients = floor_divide(signed, divisors.float(), -(2**24), 2**24)
            assert torch.equal(quotients.long(), torch.div(sign * sums, divisors, rounding_mode="floor"))


# --- float32 only where it is plain -------------------------------------------------------------------


def assert_computed_in_float64(net, images, wanted):
    assert not float32_is_plain(torch.device("cpu"))
    again = fresh(net)
    assert torch.equal(again(images), wanted)
    assert {kernel.dtype for kernel in used_kernels(again)} == {torch.float64}
    assert torch.equal(net(images), wanted)  # also a net that had prepared float32 before


@pytest.fixture
def run():
    """A net that has run in float32, images, and its scores."""
    net, images = fresh(make_restorer("paper", 1, (9, 13)).scorer), torch.rand(2, 1, 9, 13)
    wanted = net(images)
    assert float32_is_plain(torch.device("cpu"))
    yield net, images, wanted
    assert float32_is_plain(torch.device("cpu"))  # the test has restored the setting


@pytest.mark.parametrize("precision", ["medium", "high"])
def test_a_lower_matmul_precision_means_float64(run, precision):
    torch.set_float32_matmul_precision(precision)
    try:
        assert_computed_in_float64(*run)
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("part", ["conv", "matmul", ""])
@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_lower_precision_of_onednn_means_float64(run, part, precision):
    module = getattr(torch.backends.mkldnn, part, None) if part else torch.backends.mkldnn
    if not hasattr(module, "fp32_precision"):
        pytest.skip("this PyTorch has no such setting")
    before = module.fp32_precision
    try:
        module.fp32_precision = precision
        assert_computed_in_float64(*run)
    finally:
        module.fp32_precision = before


@pytest.mark.parametrize("mode", ["BF16", "bf16", "ANY", "TF32", "F16"])
def test_a_lower_precision_in_the_environment_means_float64(run, mode, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", mode)
        assert_computed_in_float64(*run)


def test_settings_that_cannot_be_read_are_not_plain(run, monkeypatch):
    def fail():
        raise RuntimeError("mixed settings")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_float32_matmul_precision", fail)
        assert_computed_in_float64(*run)


def test_a_strict_environment_is_plain(monkeypatch):
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "STRICT")
    assert float32_is_plain(torch.device("cpu"))
    assert not float32_is_plain(torch.device("cuda"))


@pytest.mark.parametrize(
    ("size", "kernel"),
    [((9, 13), (3, 3)), ((9, 16), (3, 3)), ((9,), (4,)), ((32,), (4,)), ((5, 6, 7), (2, 2, 2))],
    ids=str,
)
def test_a_convolution_that_rounds_fails_the_trial(size, kernel, monkeypatch):
    weight = torch.randint(-999, 1000, (3, 2, *kernel))
    task = task_of(weight, size, 1023)
    monkeypatch.setattr(kernels, "KERNELS", (Direct32, Direct64))
    monkeypatch.setattr(Direct64, "cost", staticmethod(lambda task: 1e9))
    assert isinstance(prepare(weight, zero_bias(weight), task, set()), Direct32)
    name = f"conv{len(size)}d"
    plain = getattr(F, name)

    def rounding(images, weight, bias):
        if images.dtype == torch.float32:
            images, weight = images.bfloat16().float(), weight.bfloat16().float()
        return plain(images, weight, bias)

    monkeypatch.setattr(F, name, rounding)
    assert isinstance(prepare(weight, zero_bias(weight), task, set()), Direct64)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # PyTorch's own, when it reads its flags
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
