"""The fast integer network equals the reference on hard inputs, in strips and blocks of any size."""

from __future__ import annotations

import pytest
import torch
from networks import fresh, plans
from samples import PRESETS, assert_exact, blobs, hard_images, make_restorer

from unshift import Restorer, ShiftEstimator, apply, load, quantise
from unshift.exact import inference

# --- against the reference ----------------------------------------------------------------------------


@pytest.mark.parametrize("trained", [False, True], ids=["untrained", "trained"])
@pytest.mark.parametrize("size", [(11,), (9, 13), (3, 4, 5), (2, 70)], ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_scores_are_those_of_the_reference(preset, size, trained):
    net = make_restorer(preset, 2, size, trained).scorer
    images = torch.cat([torch.rand(3, 2, *size), torch.stack([*hard_images(2, size).values()])])
    assert torch.equal(net(images), net.reference(images))


def test_scores_with_axes_across_are_those_of_the_reference():
    net = ShiftEstimator(6, channels=(4,), kernel_size=(3, 3), line_channels=(5, 1), line_kernel_size=(5,), across=(3,))
    images = torch.rand(8, 6, 11)
    scorer = quantise(net, images)
    for size in (11, 17):
        images = torch.rand(3, 6, size)
        assert torch.equal(scorer(images), scorer.reference(images))


def test_the_reference_is_the_text_in_python_integers():
    """One local layer, line sums and one layer of lines, number by number."""
    net = quantise(
        ShiftEstimator(1, channels=(2,), kernel_size=(2, 2), bias=True, line_channels=(1,), line_kernel_size=(3, 3)),
        torch.rand(4, 1, 3, 4),
    )
    image = torch.rand(1, 1, 3, 4)
    pixel = net.pixels(image)[0, 0].long().tolist()
    local, high = net.local[0], net.largest

    def clamp(value):
        return min(max(value, -high), high)

    features = [
        [
            [
                clamp(
                    max(
                        int(local.bias[k])
                        + sum(
                            int(local.weight[k, 0, a, b]) * pixel[(i + a - 1) % 3][(j + b - 1) % 4]
                            for a in range(2)
                            for b in range(2)
                        ),
                        0,
                    )
                    // int(local.divisor[k])
                )
                for j in range(4)
            ]
            for i in range(3)
        ]
        for k in range(2)
    ]
    rows = [[sum(features[k][i]) for i in range(3)] for k in range(2)]
    columns = [[sum(features[k][i][j] for i in range(3)) for j in range(4)] for k in range(2)]
    terms = []
    for axis, sums in enumerate((rows, columns)):
        layer, divisor = net.lines[axis][0], net.get_buffer(f"mean_divisor_{axis}")
        means = [[clamp(value // int(divisor[k])) for value in sums[k]] for k in range(2)]
        n = len(means[0])
        terms.append(
            [
                int(layer.bias[0])
                + sum(int(layer.weight[0, k, a]) * means[k][(i + a - 1) % n] for k in range(2) for a in range(3))
                for i in range(n)
            ]
        )
    assert net.reference(image)[0].tolist() == [[row + column for column in terms[1]] for row in terms[0]]


@pytest.mark.parametrize("name", ["cifar10-seam", "mnist", "mnist-paper", "mnist3d", "mitogenome", "mnist-pose"])
def test_shipped_networks_score_as_the_reference(name):
    for stage in load(name).stages:
        scorer = stage.scorer
        size = scorer.size or ((40,) * scorer.axes if scorer.axes > 1 else (80,))
        images = torch.rand(2, scorer.in_channels, *size)
        assert torch.equal(scorer(images), scorer.reference(images))


@pytest.mark.parametrize("calibrated", [(8, 8), (9, 12)], ids=str)
@pytest.mark.parametrize("size", [(8, 8), (9, 11), (13, 8), (16, 24), (30, 9)], ids=str)
def test_networks_of_lines_are_exact_at_sizes_they_were_not_calibrated_at(calibrated, size):
    net = ShiftEstimator(
        1, channels=(4, 4), kernel_size=(3, 3), bias=True, line_channels=(6, 1), line_kernel_size=(5, 5)
    )
    restorer = Restorer(quantise(net, blobs(16, 1, calibrated)))
    images = torch.rand(3, 1, *size)
    assert torch.equal(restorer.scorer(images), restorer.scorer.reference(images))
    for kind in ("random", "blob", "constant", "tied", "uneven"):
        assert_exact(restorer, hard_images(1, size)[kind])


@pytest.mark.parametrize("divisor", [1, 2**14, 2**24 - 1, 2**24, 2**30])
def test_any_divisor_is_exact(divisor):
    net = fresh(make_restorer("seam", 2, (30, 40)).scorer)
    net.local[0].divisor.fill_(divisor)
    images = torch.cat([torch.rand(3, 2, 30, 40), torch.stack([*hard_images(2, (30, 40)).values()])])
    assert torch.equal(net(images), net.reference(images))


def test_line_sums_that_would_leave_53_bits_are_refused():
    net = ShiftEstimator(1, channels=(1,), kernel_size=(1, 1), line_channels=(1,), line_kernel_size=(1, 1))
    scorer = quantise(net, torch.rand(1, 1, 16, 17), bits=40, sum_bits=50)
    with pytest.raises(ValueError, match=r"\(255, 251\).*\(16, 17\)"):
        scorer(torch.rand(1, 1, 255, 251))


# --- strips and blocks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "size"),
    [("paper", (200, 9)), ("paper", (209, 70)), ("seam", (41, 12)), ("seam", (60, 66)), ("paper", (301,))],
    ids=str,
)
def test_strips_give_the_scores_of_the_whole(preset, size, monkeypatch):
    net = quantise(ShiftEstimator.preset(preset, 1, size), blobs(4, 1, size))
    images = torch.rand(2, 1, *size)
    wanted = net.reference(images)
    monkeypatch.setattr(inference, "BLOCK", 1)
    again = fresh(net)
    assert torch.equal(again(images), wanted)
    assert plans(again)[0].rows < size[0]
    shift = torch.tensor([[size[0] // 2 + 1, 5][: len(size)]]).expand(2, -1)  # the strips of a shifted image too
    assert torch.equal(again(apply(images, shift)), apply(wanted[:, None], shift)[:, 0])


@pytest.mark.parametrize("preset", PRESETS)
def test_scores_do_not_depend_on_the_size_of_blocks(preset, monkeypatch):
    net, images = make_restorer(preset, 2, (9, 13), trained=True).scorer, torch.rand(7, 2, 9, 13)
    wanted = net.reference(images)
    for block in (1, 2**9, 2**10, 2**11, 2**30):
        monkeypatch.setattr(inference, "BLOCK", block)
        assert torch.equal(fresh(net)(images), wanted)


def test_estimates_do_not_depend_on_the_size_of_blocks(monkeypatch):
    restorer = make_restorer("paper", 1, (8, 8))
    images = torch.stack([*hard_images(1, (8, 8)).values()])
    wanted = restorer.estimate(images)
    for name in ("unshift.restorer.BLOCK", "unshift.exact.choice.BLOCK", "unshift.exact.confidence.BLOCK"):
        with monkeypatch.context() as patch:
            patch.setattr(name, 1)
            for a, b in zip(restorer.estimate(images), wanted, strict=True):
                assert (a is b is None) or torch.equal(a, b)
