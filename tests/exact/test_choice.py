"""The choice: argmax, a tie rule that compares images only, and the confidence."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import integers
from samples import DTYPES, FLOATS, hard_images

from unshift.exact import Scores, choose, ordered_bits, rank_restored
from unshift.shifts import all_shifts, apply, undo


def in_order(image):
    """Return the pixels as the rule compares them: in row-major order, channel by channel within a pixel."""
    return image.flatten(1).T.flatten().tolist()


def ranks_of(image):
    return rank_restored([image[None]], torch.tensor([True]))[0].tolist()


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


def test_ranks_compare_all_copies_and_skip_untied_images():
    first, second = torch.tensor([[3, 1, 4]]), torch.tensor([[1, 4, 2]])
    copies = torch.stack([torch.stack([first, second]), torch.stack([second, first])])
    assert rank_restored(copies.unbind(1), torch.tensor([True, False])).tolist() == [[3, 1, 5, 0, 4, 2], [0] * 6]
    # Undone by 0, 1, 2: 314, 143, 431 and 142, 421, 214.


def choose_in(scores, images):
    """The choice on images as they are, one copy of each, as :class:`Shifts` makes it."""
    return choose(scores, lambda highest, tied: rank_restored([images], tied))


def choice(scores, images):
    """The shift that is chosen of a map of scores, and whether it was tied."""
    index, tied = choose_in(Scores([scores.flatten(1)], (1, *scores.shape[1:])), images)
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


def test_candidates_are_ranked_only_if_something_ties():
    index, tied = choose(Scores([torch.tensor([[1, 3, 2]])], (1, 3)), lambda *_: pytest.fail("nothing ties"))
    assert (index.tolist(), tied.tolist()) == ([1], [False])


@pytest.mark.parametrize("size", [(4, 5), (2, 3, 4), (6,)], ids=str)
def test_separable_scores_are_chosen_from_as_their_map_is(size):
    images = integers(0, 2, 200, 1, *size)  # few values: most scores tie, and many images do
    separable = Scores([integers(0, 3, 200, n) for n in size], (1, *size))
    whole = Scores([separable.map().flatten(1)], (1, *size))
    found, wanted = (choose_in(scores, images) for scores in (separable, whole))
    assert 50 < int(wanted[1].sum()) < 200 or size == (6,)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    torch.testing.assert_close(separable.confidence(0.7), whole.confidence(0.7), rtol=3e-3, atol=0)


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
    """Count the sorts: a constant 224x224 image needs no more than others, nor many tied images more than one."""
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


def test_empty_batches_stay_empty():
    scores = torch.zeros(0, 4, 5, dtype=torch.int64)
    shift, tied = choice(scores, torch.zeros(0, 1, 4, 5))
    assert (shift.shape, tied.shape) == ((0, 2), (0,))
    assert Scores([scores.flatten(1)], (1, 4, 5)).confidence(1.0).shape == (0,)


# --- the confidence --------------------------------------------------------------------------------------


def confidence(scores, unit):
    """The confidence of a map of scores ``(batch, *positions)``."""
    return Scores([scores.flatten(1)], (1, *scores.shape[1:])).confidence(unit)


def test_the_confidence_of_terms_is_the_same_for_every_shift():
    lines = [integers(-(2**20), 2**20, 1, n) for n in (7, 9)]
    moved = [torch.cat([line.roll(k, 1) for k in range(line.shape[1])]) for line in lines]
    found = {
        Scores([row[None], column[None]], (1, 7, 9)).confidence(1e-5).item() for row in moved[0] for column in moved[1]
    }
    assert len(found) == 1


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e-6, 1e-3, 0.03, 1.0, 50.0, 1e12])
def test_confidence_is_the_softmax(unit):
    logits = torch.cat([3 * torch.randn(6, 8, 9), torch.zeros(1, 8, 9), 100 * torch.randn(2, 8, 9)]).double()
    scores = (logits / unit).round().clamp(-(2**50), 2**50).to(torch.int64)
    wanted = (scores.double() * unit).flatten(1).softmax(1).amax(1)
    torch.testing.assert_close(confidence(scores, unit), wanted, rtol=3e-3, atol=0)


def test_confidence_is_the_same_for_every_shift():
    scores = integers(-(2**20), 2**20, 1, 7, 9)
    moved = apply(scores.expand(63, 1, 7, 9), all_shifts((7, 9)))[:, 0]
    assert len(confidence(moved, 1e-5).unique()) == 1


@pytest.mark.parametrize("pixels", [1, 72, 224 * 224, 2**23])
def test_confidence_of_a_flat_map_is_one_over_its_pixels(pixels):
    assert confidence(torch.zeros(1, pixels, dtype=torch.int64), 1.0).item() == pytest.approx(1 / pixels)
