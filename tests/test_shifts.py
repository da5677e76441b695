"""unshift.shifts: the group action, its signs and axes, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import DTYPES, bits

from unshift import shifts
from unshift.shifts import apply, compose, undo

INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1])
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)
MANY = settings(deadline=None, max_examples=60)


def counting(size, batch=1, channels=1, dtype=torch.int64):
    """Images whose pixels are all different."""
    return torch.arange(batch * channels * math.prod(size)).view(batch, channels, *size).to(dtype)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint16, torch.float8_e5m2, torch.bool], ids=str)
@pytest.mark.parametrize("size", [(97, 91), (9001,), (21, 20, 23)], ids=str)
def test_roll_and_gather_agree(size, dtype, monkeypatch):
    images = torch.randint(0, 200, (3, 1, *size)).to(dtype)
    shift = torch.tensor([[0] * len(size), [5] * len(size), [-(10**12) - 7] * len(size)])
    rolled = apply(images, shift), undo(images, shift)
    monkeypatch.setattr(shifts, "LARGE", 2**40)
    gathered = apply(images, shift), undo(images, shift)
    assert all(torch.equal(bits(one), bits(other)) for one, other in zip(rolled, gathered, strict=True))


# --- signs and axes, as literals ----------------------------------------------------------------


def test_apply_moves_forward_along_one_axis():
    assert apply(torch.tensor([[[0, 1, 2, 3]]]), torch.tensor([[1]])).tolist() == [[[3, 0, 1, 2]]]


@pytest.mark.parametrize(
    ("shift", "wanted"),
    [
        ((1, 0), [[4, 5, 6], [1, 2, 3]]),  # axis 0 moves down
        ((0, 1), [[3, 1, 2], [6, 4, 5]]),  # axis 1 moves right
        ((0, -1), [[2, 3, 1], [5, 6, 4]]),
        ((-3, 7), [[6, 4, 5], [3, 1, 2]]),  # modulo the size
    ],
)
def test_axes_of_an_image(shift, wanted):
    assert apply(torch.tensor([[[[1, 2, 3], [4, 5, 6]]]]), torch.tensor([shift])).tolist() == [[wanted]]


def test_compose_adds_modulo_the_size():
    assert compose(torch.tensor([[3, -1]]), torch.tensor([[2, -1]]), (4, 7)).tolist() == [[1, 5]]


def test_compose_does_not_overflow():
    largest = torch.tensor([[2**63 - 1]])
    assert compose(largest, largest, (3,)).tolist() == [[(2**64 - 2) % 3]]


# --- properties ---------------------------------------------------------------------------------


@MANY
@given(st.data(), SIZES)
def test_apply_is_a_roll_by_any_int64(data, size):
    shift = [data.draw(INT64) for _ in size]
    images = counting(size, channels=2)
    rolled = images.roll([s % n for s, n in zip(shift, size, strict=True)], tuple(range(2, images.ndim)))
    assert torch.equal(apply(images, torch.tensor([shift])), rolled)


@MANY
@given(st.data(), SIZES, st.integers(1, 3))
def test_undo_takes_apply_back_with_a_shift_per_image(data, size, batch):
    shift = torch.tensor([[data.draw(INT64) for _ in size] for _ in range(batch)])
    images = counting(size, batch)
    assert torch.equal(undo(apply(images, shift), shift), images)
    assert torch.equal(apply(undo(images, shift), shift), images)


@MANY
@given(st.data(), SIZES)
def test_compose_is_one_shift_for_two(data, size):
    first, second = (torch.tensor([[data.draw(INT64) for _ in size]]) for _ in range(2))
    images = counting(size)
    both = compose(first, second, size)
    assert torch.equal(apply(images, both), apply(apply(images, first), second))
    assert ((both >= 0) & (both < torch.tensor(size))).all()


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.int16, torch.int64])
def test_every_dtype_keeps_its_bits(dtype):
    images = counting((3, 4), batch=2, channels=2, dtype=dtype)
    if dtype.is_floating_point:
        images.view(-1)[:4] = torch.tensor([-0.0, float("inf"), float("nan"), torch.finfo(dtype).tiny / 2]).to(dtype)
    shift = torch.tensor([[1, 2], [-5, 9]])
    moved = apply(images, shift)
    assert moved.dtype == dtype
    assert torch.equal(bits(moved[1]), bits(images[1]).roll((-5, 9), (1, 2)))
    assert torch.equal(bits(undo(moved, shift)), bits(images))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_shift_may_have_any_integer_dtype(dtype):
    images = counting((300,))
    shift = torch.tensor([[100]], dtype=dtype)
    assert torch.equal(apply(images, shift), images.roll(100, 2))
    assert torch.equal(undo(images, shift), images.roll(-100, 2))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("size", [(4, 5), (3, 4, 5), (110, 120)], ids=str)
def test_channels_last_images_stay_channels_last(batch, size):
    layout = torch.channels_last if len(size) == 2 else torch.channels_last_3d
    images = counting(size, batch, channels=3).to(memory_format=layout)
    for move in (apply, undo):
        for shift in (0, 2):
            moved = move(images, torch.full((batch, len(size)), shift))
            assert moved.is_contiguous(memory_format=layout)
            assert torch.equal(moved, move(images.contiguous(), torch.full((batch, len(size)), shift)))


@pytest.mark.parametrize("move", [apply, undo])
def test_gradients_flow_through(move):
    images = torch.randn(2, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    shift = torch.tensor([[1, -2], [5, 3]])
    assert torch.autograd.gradcheck(lambda x: move(x, shift), images)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([[1.0]], r"must be a torch.Tensor .*got list"),
        (torch.zeros(2, 3), r"1, 2 or 3 spatial axes, got 2 axes: shape \(2, 3\)"),
        (torch.zeros(1, 1, 2, 2, 2, 2), r"got 6 axes"),
        (torch.zeros(1, 0, 4), r"at least one channel and pixel, got shape \(1, 0, 4\)"),
        (torch.zeros(1, 1, 4, 0), r"at least one channel and pixel"),
        (torch.zeros(1, 1, 4, dtype=torch.complex64), "complex64"),
    ],
)
@pytest.mark.parametrize("move", [apply, undo])
def test_bad_images(move, images, message):
    with pytest.raises(ValueError, match=message):
        move(images, torch.tensor([[1]]))


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        (torch.zeros(2, 1, dtype=torch.int64), r"\(batch, d\) = \(2, 2\) for images of shape .*, got \(2, 1\)"),
        (torch.zeros(1, 2, dtype=torch.int64), r"= \(2, 2\) .*got \(1, 2\)"),
        (torch.zeros(2, dtype=torch.int64), r"= \(2, 2\) .*got \(2,\)"),
        (torch.zeros(2, 2), r"must be an integer tensor, got torch.float32"),
        (torch.zeros(2, 2, dtype=torch.bool), r"must be an integer tensor, got torch.bool"),
        ((1, 2), r"integer tensor of shape \(2, 2\), got tuple"),
    ],
)
@pytest.mark.parametrize("move", [apply, undo])
def test_bad_shift(move, shift, message):
    with pytest.raises(ValueError, match=message):
        move(torch.zeros(2, 1, 4, 5), shift)


def test_compose_wants_one_entry_per_axis():
    with pytest.raises(ValueError, match=r"must end in 2 axes for size \(4, 5\), got shapes \(1, 1\) and \(1, 2\)"):
        compose(torch.tensor([[1]]), torch.tensor([[1, 2]]), (4, 5))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (0, 3, 1, 2)])
def test_the_order_in_memory_is_the_same_for_every_shift(batch, channels, order):
    """A model may sum in memory order: equal pixels in another order could give other sums."""
    size = [0, 0, 0, 0]
    for at, axis in enumerate(order):
        size[axis] = (batch, channels, 5, 4)[at]
    images = torch.rand(size).permute(order)
    strides = {apply(images, torch.full((batch, 2), move)).stride() for move in range(4)}
    assert len(strides) == 1
