"""The integer network: its scores are those of its formulas, in strips and blocks of any size."""

from __future__ import annotations

import pytest
import torch
from integer_sums import by_integers
from networks import fresh
from samples import PRESETS, assert_exact, blobs, hard_images, make_restorer

from unshift import Restorer, ShiftEstimator, apply, quantise
from unshift.exact import IntegerEstimator, integers

# --- the whole network, in int64 alone -------------------------------------------------------------


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


@pytest.mark.parametrize("divisor", [2**14, 2**14 + 1, 2**13], ids=["as it is", "no power", "clamped"])
def test_a_power_of_two_divides_as_it_is_summed_and_all_else_afterwards(divisor):
    net = fresh(make_restorer("seam", 2, (30, 40)).scorer)
    assert (net.local[0].divisor == 2**14).all()  # nothing is clamped: no sum reaches 2^24, no integer 2^10
    net.local[0].divisor.fill_(divisor)
    images = torch.cat([torch.rand(3, 2, 30, 40), torch.stack([*hard_images(2, (30, 40)).values()])])
    assert torch.equal(net(images), scored_in_int64(net, images))
    assert [made.divided for made in net.plan((30, 40), images.device).local] == [divisor == 2**14]


def test_line_sums_at_the_calibrated_size_are_divided_by_the_divisor_alone():
    net = make_restorer("seam", 1, (8, 9)).scorer
    sums = torch.randint(0, 1023 * 9, (2, len(net.mean_divisor_0), 8)).double()
    wanted = (sums.long() // net.mean_divisor_0.view(-1, 1)).clamp(max=net.largest)
    assert torch.equal(net.line_rule(0, (8, 9)).means(sums, net.largest).long(), wanted)


def test_line_nets_refuse_what_would_leave_53_bits():
    net = ShiftEstimator(1, channels=(1,), kernel_size=(1, 1), line_channels=(1,), line_kernel_size=(1, 1))
    scorer = quantise(net, torch.rand(1, 1, 16, 17), bits=40, sum_bits=50)
    with pytest.raises(ValueError, match=r"images of size .* too large for a net calibrated at \(16, 17\)"):
        scorer(torch.rand(1, 1, 255, 251))


# --- strips and blocks -----------------------------------------------------------------------------


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
