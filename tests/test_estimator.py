"""unshift.network: presets, the one description, line filters, and equivariance at random weights."""

from __future__ import annotations

import json

import pytest
import torch
from samples import PRESETS, blobs, make_estimator

from unshift.network import ACTIVATIONS, ShiftEstimator, as_float
from unshift.testing import assert_equivariant

SIZES = ((7,), (1, 1), (1, 7), (8, 8), (9, 13), (3, 4, 5))


# --- presets ------------------------------------------------------------------------------------


def test_paper_preset_has_the_papers_parameters():
    estimator = ShiftEstimator.preset("paper", 1, (28, 28))
    assert sum(p.numel() for p in estimator.parameters()) == 486
    assert [layer.activation for layer in estimator.local] == ["relu"] * 5 + ["none"]


# --- equivariance -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_equivariant_at_random_weights(preset, size, dtype):
    assert_equivariant(ShiftEstimator.preset(preset, 2, size).to(dtype), (2, *size), dtype=dtype, tolerance=1e-3)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("lines", [{}, {"line_channels": (3, 1), "line_kernel_size": (2, 5)}], ids=["local", "lines"])
def test_every_architecture_is_equivariant(activation, bias, lines):
    channels = (4, 2) if lines else (4, 2, 1)
    estimator = ShiftEstimator(
        2, channels=channels, kernel_size=(3, 4), bias=bias, activation=activation, **lines
    ).double()
    for name, parameter in estimator.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    assert_equivariant(estimator, (2, 6, 7), tolerance=1e-9)


def test_line_scores_are_a_sum_over_rows_and_columns():
    scores = make_estimator("seam", 1, (8, 9))(torch.rand(2, 1, 8, 9)).detach()
    crossed = scores[:, :, :1] + scores[:, :1, :] - scores[:, :1, :1]
    torch.testing.assert_close(scores, crossed)


# --- training -----------------------------------------------------------------------------------


def test_kaiming_initialisation_keeps_the_scores_alive():
    """A ReLU net of one channel can die under any symmetric initialisation, but must not fade away.

    The default of ``nn.Conv2d`` leaves scores so small that they are a constant for training's purposes.
    """
    images = blobs(1, 1, (28, 28))

    def spread(seed, initialise=None):
        torch.manual_seed(seed)
        estimator = ShiftEstimator.preset("paper", 1, (28, 28))
        if initialise:
            for parameter in estimator.parameters():
                initialise(parameter)
        scores = estimator(images).detach()
        return float(scores.max() - scores.min())

    ours = torch.tensor([spread(seed) for seed in range(50)])
    default = torch.tensor([spread(seed, lambda w: torch.nn.init.kaiming_uniform_(w, a=5**0.5)) for seed in range(50)])
    assert (ours > 1e-3).sum() >= 48
    assert (default > 1e-3).sum() < 25
    assert ours.median() > 100 * default.median()


# --- pixels, description ------------------------------------------------------------------------


def test_uint8_is_divided_by_255_and_all_else_keeps_its_values():
    assert as_float(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == [0, torch.tensor(0.2).item(), 1]
    assert as_float(torch.tensor([0, 51], dtype=torch.int64)).tolist() == [0, 51]
    assert as_float(torch.tensor([0.5], dtype=torch.float16)).dtype == torch.float32


@pytest.mark.parametrize("preset", PRESETS)
def test_the_description_rebuilds_the_net_through_json(preset):
    estimator = make_estimator(preset, 2, (8, 9))
    again = ShiftEstimator(**json.loads(json.dumps(estimator.describe())))
    again.load_state_dict(estimator.state_dict())
    images = torch.rand(2, 2, 8, 9)
    assert torch.equal(again(images), estimator(images))
    assert again.describe() == estimator.describe()


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": (4, 2)}, r"last layer must have one channel.*got channels \[4, 2\]"),
        ({"channels": ()}, r"last layer must have one channel"),
        ({"activation": "gelu"}, r"one of relu, abs, none, got 'gelu'"),
        ({"channels": (4,), "line_channels": (1,), "line_kernel_size": (3,)}, r"per spatial axis \(2\), got \(3,\)"),
        ({"size": (8, 8)}, r"kernel \(9, 9\) does not fit images of size \(8, 8\)"),
        ({"size": (8,)}, r"does not fit images of size \(8,\)"),
    ],
)
def test_bad_networks(options, message):
    with pytest.raises(ValueError, match=message):
        ShiftEstimator(1, **options)


def test_axes_across_are_seen_by_the_local_filters_and_leave_no_positions():
    net = ShiftEstimator(6, channels=(2,), kernel_size=(3, 3), line_channels=(1,), line_kernel_size=(5,), across=(3,))
    net.double()
    assert net.local[0].weight.shape == (2, 2, 3, 3)  # 6 channels are 2 of 3 rows
    assert ShiftEstimator(**net.describe()).across == (3,)
    images = torch.rand(4, 6, 8, dtype=torch.float64)
    features = net.local[0](images.view(4, 2, 3, 8)).mean(2)
    assert torch.equal(net(images), net.lines[0][0](features)[:, 0])


@pytest.mark.parametrize(
    "bad",
    [
        {"in_channels": 5},  # not a multiple of the rows
        {"line_channels": (), "line_kernel_size": (), "channels": (1,)},  # no lines: what would the rows become?
        {"kernel_size": (3,), "line_kernel_size": ()},  # nothing left that moves
    ],
    ids=str,
)
def test_axes_across_that_cannot_be_are_refused(bad):
    good = {"in_channels": 6, "channels": (2,), "kernel_size": (3, 3), "line_channels": (1,), "line_kernel_size": (5,)}
    with pytest.raises(ValueError, match="across"):
        ShiftEstimator(**{**good, **bad}, across=(3,))
