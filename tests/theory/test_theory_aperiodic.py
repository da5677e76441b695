"""Definition 4.2, decided exactly and without comparing all pairs."""

from __future__ import annotations

import itertools
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from unshift.shifts import apply
from unshift.theory import is_aperiodic


def by_all_pairs(dataset: Tensor, channel_shifts: bool = False) -> bool:
    """Definition 4.2 word for word, for a set."""
    images = dataset.unsqueeze(1) if channel_shifts else dataset
    axes = tuple(range(1, images.ndim - 1))
    if any(not image.any() for image in images):
        return False
    for x, other in itertools.product(images, images):
        for shift in itertools.product(*map(range, images.shape[2:])):
            if torch.equal(x.roll(shift, axes), other) and (any(shift) or not torch.equal(x, other)):
                return False
    return True


@settings(max_examples=150, deadline=None)
@given(
    size=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    channels=st.integers(1, 3),
    count=st.integers(1, 4),
    levels=st.integers(2, 5),
    channel_shifts=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_agrees_with_all_pairs_and_the_answer_is_true(size, channels, count, levels, channel_shifts, seed):
    generator = torch.Generator().manual_seed(seed)
    dataset = torch.randint(levels, (count, channels, *size), generator=generator)
    answer = is_aperiodic(dataset, channel_shifts=channel_shifts)
    assert bool(answer) == by_all_pairs(dataset, channel_shifts)
    if not answer:
        i, j = answer.pair
        if answer.shift is None:
            assert not dataset[i].any()
        else:
            axes = range(0 if channel_shifts else 1, dataset.ndim - 1)
            assert torch.equal(dataset[i].roll(answer.shift, tuple(axes)), dataset[j])
            assert any(answer.shift)


def test_names_the_pair_the_period_and_the_zero_image():
    torch.manual_seed(0)
    dataset = torch.randint(256, (50, 3, 6, 5), dtype=torch.uint8)
    assert is_aperiodic(dataset)
    shifted = dataset.clone()
    shifted[40] = apply(dataset[7:8], torch.tensor([[2, 3]]))[0]
    answer = is_aperiodic(shifted)
    assert (answer.pair, answer.shift) == ((7, 40), (2, 3))
    assert str(answer) == "not aperiodic: image 40 is image 7 shifted by (2, 3)"
    periodic = dataset.clone()
    periodic[12, :, 3:] = periodic[12, :, :3]
    answer = is_aperiodic(periodic)
    assert (answer.pair, answer.shift) == ((12, 12), (3, 0))
    dataset[30] = 0
    assert "image 30 is the zero image" in is_aperiodic(dataset).reason


def test_a_dataset_is_a_set_so_repeats_are_no_offence():
    dataset = torch.tensor([[[1, 2, 3]], [[4, 2, 3]], [[1, 2, 3]]])
    answer = is_aperiodic(dataset)
    assert answer
    assert answer.repeats == (2,)


def test_real_values_compare_as_numbers():
    assert not is_aperiodic(torch.tensor([[[0.0, 1.5, 2.0]], [[2.0, -0.0, 1.5]]]))
    assert is_aperiodic(torch.tensor([[[0.25, 1.5, 2.0]], [[2.0, 0.5, 1.5]]]))
    assert is_aperiodic(torch.tensor([[[True, False, False]]]))
    with pytest.raises(ValueError, match="NaN"):
        is_aperiodic(torch.tensor([[[float("nan"), 1.0]]]))


def test_near_linear_in_the_number_of_images():
    torch.manual_seed(0)
    dataset = torch.randint(256, (20_000, 1, 6, 6), dtype=torch.uint8)
    start = time.perf_counter()
    assert is_aperiodic(dataset)
    # All pairs would be 2e8 of them times 36 shifts; this is well under a second on a quiet machine.
    assert time.perf_counter() - start < 20


@pytest.mark.data
@pytest.mark.slow
def test_all_of_mnist_is_aperiodic_in_under_two_minutes(mnist):
    start = time.perf_counter()
    answer = is_aperiodic(mnist)
    seconds = time.perf_counter() - start
    print(f"\n{answer} ({seconds:.1f} s)")
    assert answer
    assert not answer.repeats
    assert seconds < 120
    mnist[59_999] = apply(mnist[5:6], torch.tensor([[3, 27]]))[0]
    answer = is_aperiodic(mnist)
    assert (answer.pair, answer.shift) == ((5, 59_999), (3, 27))


@pytest.mark.parametrize("pixels", [[0, -torch.inf, 0, -torch.inf], [-torch.inf] * 3, [torch.inf, 1, torch.inf, 1]])
def test_infinite_pixels_are_pixels(pixels):
    answer = is_aperiodic(torch.tensor([[pixels]]))
    assert not answer
    assert answer.pair == (0, 0)
    assert torch.equal(torch.tensor(pixels).roll(answer.shift), torch.tensor(pixels))


def test_one_infinite_pixel_is_no_period():
    assert is_aperiodic(torch.tensor([[[0, -torch.inf, 0, 0]], [[0, 0, 0, 1]]]))
    twice = is_aperiodic(torch.tensor([[[0, -torch.inf, 0, 0]], [[-torch.inf, 0, 0, 0]]]))
    assert twice.pair == (0, 1)
