"""The choice: argmax, and a tie rule that sees images only."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from integer_sums import integers
from samples import DTYPES, FLOATS, hard_images

from unshift.exact import (
    choose,
    confidence,
    ordered_bits,
    rank_restored,
    score_map,
)
from unshift.shifts import apply, undo
from unshift.testing import all_shifts

# --- the choice ------------------------------------------------------------------------------------


def in_order(image):
    """What the rule compares: pixels in row-major order, channel by channel within a pixel."""
    return image.flatten(1).T.flatten().tolist()


def ranks_of(image):
    return rank_restored(image[None, None], torch.tensor([True]))[0].tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("channels", "size"), [(1, (7,)), (1, (4, 6)), (2, (3, 5)), (3, (1, 1)), (1, (2, 3, 4))])
def test_ranks_are_the_lexicographic_order(dtype, channels, size):
    for name, image in hard_images(channels, size, dtype).items():
        restored = [in_order(undo(image[None], shift[None])[0]) for shift in all_shifts(size)]
        if name == "signed_zeros":  # -0.0 stands below 0.0
            restored = [[math.copysign(1, pixel) for pixel in one] for one in restored]
        distinct = sorted(map(tuple, restored))
        distinct = [one for k, one in enumerate(distinct) if k == 0 or one != distinct[k - 1]]
        assert ranks_of(image) == [distinct.index(tuple(one)) for one in restored], name


@pytest.mark.parametrize("dtype", FLOATS)
def test_keys_order_as_values_do_and_tell_all_bits_apart(dtype):
    tiny = torch.finfo(dtype).smallest_normal
    values = torch.tensor([-1e4, -1.0, -tiny, -0.0, 0.0, tiny, 0.5, 1.0, 1e4], dtype=torch.float64).to(dtype)
    keys = ordered_bits(values)
    assert (keys.diff() > 0).all()


def test_ranks_compare_copies_with_each_other_and_leave_untied_images_alone():
    first, second = torch.tensor([[3, 1, 4]]), torch.tensor([[1, 4, 2]])
    looks = torch.stack([torch.stack([first, second]), torch.stack([second, first])])
    assert rank_restored(looks, torch.tensor([True, False])).tolist() == [[3, 1, 5, 0, 4, 2], [0] * 6]

    # Undone by 0, 1, 2: 314, 143, 431 and 142, 421, 214.


def choice(scores, images):
    """The choice on images as they are, one copy of each: its shift, and whether it was tied."""
    index, tied = choose(scores[:, None], lambda: images[:, None])
    return torch.stack(torch.unravel_index(index, scores.shape[1:]), 1), tied


def test_choose_takes_the_argmax_in_row_major_axes():
    scores = torch.zeros(1, 2, 3, dtype=torch.int64)
    scores[0, 1, 2] = 7
    shift, tied = choice(scores, torch.rand(1, 1, 2, 3))
    assert (shift.tolist(), tied.tolist()) == ([[1, 2]], [False])


def test_choose_compares_the_images_of_tied_positions():
    image = torch.tensor([[[3, 1, 4, 1]]])
    shift, tied = choice(torch.tensor([[5, 0, 5, 5]]), image)
    assert tied.tolist() == [True]
    assert shift.tolist() == [[2]]  # undone by 0: 3141, by 2: 4131, by 3: 1314; the largest wins
    assert undo(image, shift).tolist() == [[[4, 1, 3, 1]]]


def test_looks_are_asked_for_only_where_something_ties():
    index, tied = choose(torch.tensor([[[1, 3, 2]]]), lambda: pytest.fail("nothing ties"))
    assert (index.tolist(), tied.tolist()) == ([1], [False])


@pytest.mark.parametrize("size", [(4, 5), (2, 3, 4), (6,)], ids=str)
def test_terms_along_each_axis_are_chosen_from_as_their_sums_are(size):
    images = integers(0, 2, 200, 1, *size)  # few values: most scores tie, and many images do
    lines = tuple(integers(0, 3, 200, 1, n) for n in size)
    sums = score_map(lines)[:, None]
    found, wanted = (choose(scores, lambda: images[:, None]) for scores in (lines, sums))
    assert 50 < int(wanted[1].sum()) < 200 or size == (6,)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    torch.testing.assert_close(confidence(lines, 0.7), confidence(sums, 0.7), rtol=3e-3, atol=0)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=9), st.data())
@settings(deadline=None)
def test_the_choice_is_the_same_from_every_shift(pixels, data):
    """Any scores, any image: the restored image does not depend on where the two started."""
    n = len(pixels)
    scores = torch.tensor([data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))])
    images, moves = torch.tensor([[pixels]]), all_shifts((n,))
    moved = apply(images.expand(n, 1, n), moves)
    shift, tied = choice(apply(scores.expand(n, 1, n), moves)[:, 0], moved)
    restored = undo(moved, shift)
    assert (restored == restored[0]).all()
    assert (tied == tied[0]).all()


@pytest.mark.parametrize("kind", ["constant", "stripes", "tied", "random"])
def test_ties_everywhere_cost_a_logarithm_of_sorts(kind, monkeypatch):
    """What makes a constant 224x224 image no slower than others, and many tied images no slower than one."""
    calls = []
    sort = torch.Tensor.sort
    monkeypatch.setattr(torch.Tensor, "sort", lambda *args, **options: calls.append(1) or sort(*args, **options))
    channels, size = 3, (64, 64)
    images = hard_images(channels, size)[kind].expand(4, channels, *size)
    _, tied = choice(torch.zeros(4, *size, dtype=torch.int64), images)
    assert tied.all()
    assert len(calls) <= 2 * channels + sum(math.ceil(math.log2(n)) for n in size)
    if kind == "constant":
        assert not calls


# --- confidence ------------------------------------------------------------------------------------


def test_empty_batches_stay_empty():
    scores = torch.zeros(0, 4, 5, dtype=torch.int64)
    shift, tied = choice(scores, torch.zeros(0, 1, 4, 5))
    assert (shift.shape, tied.shape, confidence(scores, 1.0).shape) == ((0, 2), (0,), (0,))
