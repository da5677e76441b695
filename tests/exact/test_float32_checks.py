"""Where float32 rounds, by a setting or by a kernel, the network takes float64."""

from __future__ import annotations

import pytest
import torch
from networks import fresh
from samples import make_restorer
from torch.nn import functional as F

from unshift.exact import kernels
from unshift.exact.direct import Direct32, Direct64
from unshift.exact.kernels import prepare
from unshift.exact.task import Task, float32_is_plain


def used(net):
    """The kernels that a net has been run with."""
    plans = [kept.value for kept in net._plans.values()]
    lines = [made for plan in plans for line in plan.lines for made in line.layers]
    return {type(made.kernel) for made in [*(made for plan in plans for made in plan.local), *lines]}


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
    assert isinstance(prepare(weight, task, plain=True, passed=set()), Direct32)
    name = f"conv{max(2, len(size))}d"  # lines go through two axes, one of them of length 1
    plain = getattr(F, name)

    def rounding(images, weight, bias, *stride):
        if images.dtype == torch.float32:
            images, weight = images.bfloat16().float(), weight.bfloat16().float()
        return plain(images, weight, bias, *stride)

    monkeypatch.setattr(F, name, rounding)
    assert isinstance(prepare(weight, task, plain=True, passed=set()), Direct64)
