"""Section 3 as code: circular filters, Theorem 3.4, and the layers of a network that break it."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from unshift.shifts import all_shifts, apply, ravel
from unshift.testing import assert_equivariant, equivariance_error
from unshift.theory import (
    Verdict,
    affine_of,
    check_affine,
    circular_matrix,
    diagnose,
    nearest_equivariant,
    translate,
)

sizes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
real_sizes = sizes.filter(lambda size: math.prod(size) > 1)
seeds = st.integers(0, 2**31)
quick = settings(max_examples=25, deadline=None)


def integers(seed: int, *shape: int) -> Tensor:
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(seed))


def assert_true_witness(verdict: Verdict, matrix: Tensor, bias: Tensor, size: tuple[int, ...]) -> None:
    """Compute both sides of the witness independently: they are as stated, and differ."""
    witness = verdict.witness
    assert not verdict
    assert witness is not None

    def value(x: Tensor) -> Tensor:
        return matrix @ x[0].flatten() + bias

    place = int(ravel(torch.tensor([witness.index[1:]]), size))
    shift = torch.tensor([witness.shift])
    after = value(apply(witness.input[None], shift)[0])[place]
    before = translate(value(witness.input), witness.shift, size)[place]
    assert Fraction(after.item()) == witness.mapped_after
    assert Fraction(before.item()) == witness.mapped_before
    assert after != before


@quick
@given(size=sizes, seed=seeds)
def test_vectorized_translation_is_translation_of_the_tensor(size, seed):
    x = integers(seed, *size)
    for shift in all_shifts(size):
        moved = apply(x[None, None], shift[None])[0, 0]
        assert torch.equal(translate(x.flatten(), shift.tolist(), size), moved.flatten())


@quick
@given(size=sizes, seed=seeds)
def test_lemma_a1_a_functional_of_a_shifted_input(size, seed):
    v, x = integers(seed, 2, math.prod(size))
    for shift in all_shifts(size):
        assert v @ translate(x, shift.tolist(), size) == translate(v, (-shift).tolist(), size) @ x


@quick
@given(size=sizes, seed=seeds)
def test_every_row_of_a_circular_filter_is_row_zero_translated(size, seed):
    row = integers(seed, math.prod(size))
    matrix = circular_matrix(row, size)
    assert check_affine(matrix, None, size)
    for place, shift in zip(matrix, all_shifts(size).tolist(), strict=True):
        assert torch.equal(place, translate(row, shift, size))


@quick
@given(size=sizes, seed=seeds, level=st.integers(-3, 3))
def test_circular_filters_with_constant_bias_are_equivariant(size, seed, level):
    matrix = circular_matrix(integers(seed, math.prod(size)), size)
    bias = torch.full((math.prod(size),), level)
    assert check_affine(matrix, bias, size)
    assert check_affine(matrix.double() / 7, bias.double() / 7, size)
    near = nearest_equivariant(matrix, bias, size)
    assert near.distance < 1e-12


@quick
@given(size=real_sizes, seed=seeds, data=st.data())
def test_one_changed_entry_is_caught_with_a_true_witness(size, seed, data):
    n = math.prod(size)
    matrix, bias = circular_matrix(integers(seed, n), size), torch.full((n,), 2)
    row, column = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    matrix[row, column] += data.draw(st.sampled_from([-5, -1, 1, 3]))
    verdict = check_affine(matrix, bias, size)
    assert_true_witness(verdict, matrix, bias, size)
    if n > 2:  # of two different entries, neither is rarer
        assert f"[{row}, {column}] is" in verdict.reason


@quick
@given(size=real_sizes, seed=seeds, data=st.data())
def test_a_bias_that_is_not_constant_is_caught_with_a_true_witness(size, seed, data):
    n = math.prod(size)
    matrix, bias = circular_matrix(integers(seed, n), size), torch.zeros(n, dtype=torch.int64)
    bias[data.draw(st.integers(0, n - 1))] = data.draw(st.sampled_from([-2, 1]))
    assert_true_witness(check_affine(matrix, bias, size), matrix, bias, size)


@quick
@given(size=real_sizes, seed=seeds)
def test_the_nearest_equivariant_map_is_the_average_over_the_group(size, seed):
    n = math.prod(size)
    matrix, bias = integers(seed, n, n).double(), integers(seed + 1, n).double()
    near = nearest_equivariant(matrix, bias, size)
    assert check_affine(near.matrix, near.bias, size)
    average = torch.zeros(n, n, dtype=torch.float64)
    for shift in all_shifts(size).tolist():
        moved = torch.stack([translate(e, shift, size) for e in torch.eye(n, dtype=torch.float64)], dim=1)
        average += moved.T @ matrix @ moved / n
    torch.testing.assert_close(near.matrix, average)
    expected = math.hypot((matrix - average).norm(), (bias - bias.mean()).norm())
    assert near.distance == pytest.approx(expected)
    # Nearest: the residual is orthogonal to every circular filter, of which shifts are a basis.
    residual = matrix - near.matrix
    assert abs((residual * circular_matrix(integers(seed + 2, n).double(), size)).sum()) < 1e-8


def test_several_channels_are_blocks():
    rows = integers(0, 2, 3, 4)
    blocks, bias = circular_matrix(rows, (4,)), torch.tensor([[1] * 4, [2] * 4])
    assert check_affine(blocks, bias, (4,))
    blocks[1, 2, 3, 0] += 1
    verdict = check_affine(blocks, bias, (4,))
    assert "[1, 2, 3, 0]" in verdict.reason
    assert verdict.witness.index == (1, 3)
    assert nearest_equivariant(blocks, bias, (4,)).matrix.shape == blocks.shape


def test_a_tiny_change_is_not_lost_to_rounding():
    matrix = circular_matrix(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), (3,))
    matrix[1, 1] += 2**-52
    verdict = check_affine(matrix, torch.full((3,), 1e20, dtype=torch.float64), (3,))
    assert verdict.witness.mapped_after - verdict.witness.mapped_before == Fraction(1, 2**52)


@quick
@given(size=real_sizes, seed=seeds, data=st.data())
def test_an_affine_callable_is_decided(size, seed, data):
    n = math.prod(size)
    matrix, bias = circular_matrix(integers(seed, n).double(), size), torch.full((n,), 0.5).double()

    def function(x: Tensor) -> Tensor:
        return (x.flatten(2) @ matrix.T + bias).reshape(x.shape)

    blocks, constants = affine_of(function, size)
    assert torch.equal(blocks[0, 0], matrix)
    assert torch.equal(constants[0], bias)
    assert check_affine(blocks, constants, size)
    matrix[data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))] += 1
    assert_true_witness(check_affine(*affine_of(function, size), size), matrix, bias, size)
    assert nearest_equivariant(*affine_of(function, size), size).distance > 0


CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
AVERAGE_POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
BREAKING = {
    "strided": lambda d, k: CONVOLUTIONS[d](1, 2, k, stride=2, padding=k // 2, padding_mode="circular"),
    "strided by one pixel filters": lambda d, k: CONVOLUTIONS[d](1, 2, 1, stride=2),
    "zero-padded": lambda d, k: CONVOLUTIONS[d](1, 2, k, padding=k // 2),
    "zero-padded 'same'": lambda d, k: CONVOLUTIONS[d](1, 2, k, padding="same"),
    "replicate-padded": lambda d, k: CONVOLUTIONS[d](1, 2, 3, padding=1, padding_mode="replicate"),
    "valid": lambda d, k: CONVOLUTIONS[d](1, 2, k),
    "max pool": lambda d, k: MAX_POOLS[d](2),
    "max pool, same size": lambda d, k: MAX_POOLS[d](3, stride=1, padding=1),
    "average pool": lambda d, k: AVERAGE_POOLS[d](2),
    "average pool, same size": lambda d, k: AVERAGE_POOLS[d](3, stride=1, padding=1),
}


@pytest.mark.parametrize("kind", BREAKING)
def test_every_strided_padded_or_pooled_layer_is_caught(kind):
    for d in range(3):
        layer, size = BREAKING[kind](d, 5 if d == 0 else 3), (6, 5, 7)[: d + 1]
        assert equivariance_error(layer.double(), (1, *size)) > 1e-6
        (row,) = diagnose(layer, size).layers
        assert row.equivariant is False
        assert "becomes" in row.reason or row.error > 1e-3


@settings(max_examples=12, deadline=None)  # of nine kinds
@given(d=st.integers(0, 2), k=st.sampled_from([1, 3, 5]), seed=seeds)
def test_circular_layers_pass(d, k, seed):
    torch.manual_seed(seed)
    size = (6, 5, 7)[: d + 1]
    conv = CONVOLUTIONS[d](2, 3, k, padding=k // 2, padding_mode="circular")
    net = nn.Sequential(conv, nn.ReLU(), CONVOLUTIONS[d](3, 1, 1))
    assert diagnose(net, size, channels=2, seed=seed)
    assert_equivariant(net.double(), (2, *size))


def test_the_diagnosis_of_a_small_cnn_names_layers_and_reasons():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    diagnosis = diagnose(net, (8, 8))
    assert not diagnosis
    assert [row.name for row in diagnosis.broken] == ["0", "3", "5", "(whole network)"]
    assert [row.equivariant for row in diagnosis.layers] == [False, True, True, False, True, False, None, False]
    for reason in ("padding", "stride 2x2", "8x8 becomes 4x4", "position turns into a feature"):
        assert reason in str(diagnosis)
    assert next(net.parameters()).dtype == torch.float32, "the user's model is not changed"
    assert net.training


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: circular_matrix(torch.zeros(3), (2, 2)), r"4 entries, got shape \(3,\)"),
        (lambda: check_affine(torch.zeros(3, 3), None, (2,)), r"got shape \(3, 3\)"),
        (lambda: check_affine(torch.zeros(1, 2, 2), None, (2,)), r"\(out, in, N, N\)"),
        (lambda: check_affine(torch.zeros(2, 2), torch.zeros(3, 2), (2,)), r"1 output channels, got shape \(3, 2\)"),
        (lambda: check_affine(torch.full((2, 2), float("nan")), None, (2,)), "NaN"),
        (lambda: affine_of(lambda x: x[..., :1], (4,)), r"size \(4,\), got \(1,\)"),
    ],
)
def test_errors_name_the_shape(call, message):
    with pytest.raises(ValueError, match=message):
        call()
