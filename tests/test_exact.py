"""unshift.exact: sums that are exact, a tie rule that sees images only, a confidence without an order."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import CLAMPED, DTYPES, FLOATS, PRESETS, blobs, hard_images, make_estimator, make_restorer, train

from unshift.circular import circular_correlation
from unshift.estimator import ShiftEstimator
from unshift.exact import (
    IntegerEstimator,
    LineScores,
    choose,
    confidence,
    ordered_bits,
    quantise,
    rank_restored,
    score_map,
)
from unshift.exact.direct import Direct32, Direct64
from unshift.exact.filters import IntegerFilter, floor_divide
from unshift.exact.fourier import Fft64, Waves64, fft_error_bound
from unshift.exact.kernels import KERNELS, prepare
from unshift.exact.pixels import PixelScale
from unshift.exact.task import Task
from unshift.shifts import apply, undo
from unshift.testing import all_shifts, assert_equivariant

CORRELATIONS = [  # (spatial size, kernel), with sizes that are prime, which an FFT likes least
    ((7,), (3,)),
    ((101,), (101,)),
    ((1, 1), (1, 1)),
    ((1, 7), (1, 4)),
    ((9, 13), (9, 9)),
    ((31, 37), (5, 5)),
    ((16, 16), (16, 16)),
    ((6, 7, 8), (3, 2, 4)),
    ((5, 70), (3, 4)),  # wider than one tile of 64 columns
    ((4, 131), (2, 9)),
]

STRIPS = [((9,), (4,)), ((40,), (7,)), ((9, 8), (3, 4)), ((12, 70), (4, 3)), ((7, 130), (5, 2)), ((8, 6), (1, 6))]


def integers(low, high, *shape):
    return torch.randint(low, high + 1, shape)


def by_integers(images, weight):
    """The circular correlation of int64 tensors, in int64."""
    kernel, axes = weight.shape[2:], tuple(range(2, images.ndim))
    total = torch.zeros(len(images), len(weight), *images.shape[2:], dtype=torch.int64)
    for tap in itertools.product(*map(range, kernel)):
        ahead = images.roll([k // 2 - j for j, k in zip(tap, kernel, strict=True)], axes)
        total += (ahead[:, None] * weight[(..., *tap)].view(*weight.shape[:2], *[1] * len(axes))).sum(2)
    return total


def task_of(images, weight, largest, **options):
    worst = float(largest * weight.double().abs().flatten(1).sum(1).max())
    return Task(tuple(weight.shape), tuple(images.shape[2:]), worst, **options)


def only(monkeypatch, *kernels):
    """Force integer inference through some of its kernels."""
    monkeypatch.setattr("unshift.exact.kernels.KERNELS", kernels)


# --- exact sums ---------------------------------------------------------------------------------


def test_the_reference_is_right_in_python_integers():
    images, weight = integers(-9, 9, 1, 2, 3, 4), integers(-9, 9, 1, 2, 2, 3)
    found = by_integers(images, weight)[0, 0].tolist()
    for row, column in itertools.product(range(3), range(4)):
        wanted = sum(
            int(weight[0, r, a, b]) * int(images[0, r, (row + a - 1) % 3, (column + b - 1) % 4])
            for r, a, b in itertools.product(range(2), range(2), range(3))
        )
        assert found[row][column] == wanted


@pytest.mark.parametrize(("size", "kernel"), CORRELATIONS, ids=str)
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 2), (1, 3), (2, 1)])
@pytest.mark.parametrize(("largest", "tap"), [(1, 1), (15, 3), (1023, 2**14), (2**20, 2**14)])
def test_every_kernel_that_says_it_holds_is_exact(size, kernel, inputs, outputs, largest, tap):
    images = integers(-largest, largest, 3, inputs, *size)
    weight = integers(-tap, tap, outputs, inputs, *kernel)
    images[0], weight[0] = largest, tap  # the largest sums there are
    wanted = by_integers(images, weight)
    tried = set()
    for traced in (False, True):
        task = task_of(images, weight, largest, traced=traced)
        for one in KERNELS:
            if one.holds(task) and (one.traced or not traced):
                found = one(weight, task)(images.to(one.dtype), margin=False)
                assert found.dtype == one.dtype
                assert torch.equal(found.to(torch.int64), wanted), one
                tried.add(one)
    assert Direct64 in tried
    if tap < 4:
        assert tried == {*KERNELS} - ({Waves64} if len(size) != 2 else set())


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("one", KERNELS)
def test_sums_just_below_the_limit_of_float32_are_exact(kernel, one):
    """The worst case: all pixels and taps as large as 24 bits allow, all of one sign."""
    weight = torch.full((1, 1, kernel, kernel), (2**24 - 1) // (1023 * kernel**2))
    assert 1023 * int(weight.sum()) < 2**24
    images = torch.full((2, 1, 10, 11), 1023) - integers(0, 1, 2, 1, 10, 11)
    task = task_of(images, weight, 1023, traced=one is Waves64)
    assert one.holds(task)
    found = one(weight, task)(images.to(one.dtype), margin=False)
    assert torch.equal(found.to(torch.int64), by_integers(images, weight))


def test_the_limits_of_the_kernels():
    """No kernel claims a sum past what its numbers hold."""
    limits = {2.0**24 - 1: {*KERNELS}, 2.0**24: {Direct64, Fft64}, 2.0**52: {Direct64}, 2.0**53: set()}
    for worst, holding in limits.items():
        assert {one for one in KERNELS if one.holds(Task((1, 1, 3, 3), (8, 8), worst, traced=True))} == holding


@pytest.mark.parametrize("one", [Direct32, Direct64])
@pytest.mark.parametrize(("size", "kernel"), STRIPS, ids=str)
def test_a_strip_with_its_margin_is_a_strip_of_the_whole(one, size, kernel):
    images, weight = integers(-99, 99, 2, 2, *size), integers(-9, 9, 3, 2, *kernel)
    whole = by_integers(images, weight)
    task = task_of(images, weight, 99, strips=True)
    assert one.holds(task)
    made = one(weight, task)
    before, after = kernel[0] // 2, kernel[0] - 1 - kernel[0] // 2
    for start, end in ((0, 2), (1, size[0]), (size[0] - 1, size[0])):
        rows = torch.arange(start - before, end + after) % size[0]
        found = made(images[:, :, rows].to(one.dtype), margin=True)
        assert torch.equal(found.to(torch.int64), whole[:, :, start:end])


@pytest.mark.parametrize(("size", "kernel"), CORRELATIONS, ids=str)
@pytest.mark.parametrize(("largest", "tap"), [(1, 1), (1023, 2**14), (2**16, 2**16)])
def test_the_fft_error_bound_bounds_the_error(size, kernel, largest, tap):
    images, weight = integers(-largest, largest, 4, 2, *size), integers(-tap, tap, 2, 2, *kernel)
    images[0], weight[0] = largest, tap  # the largest sums there are
    measured = (circular_correlation(images.double(), weight.double(), "fft") - by_integers(images, weight)).abs().max()
    bound = fft_error_bound(size, 2, task_of(images, weight, largest).worst)
    assert measured <= bound
    assert bound < 0.5 or tap > 2**14


def test_the_fft_error_bound_grows_with_everything_that_adds_error():
    bound = fft_error_bound((16, 16), 3, 1e6)
    assert fft_error_bound((16, 16), 4, 1e6) > bound
    assert fft_error_bound((16, 17), 3, 1e6) > bound
    assert fft_error_bound((16, 16), 3, 1.1e6) > bound
    # The same sums out of more channels: past some number of them the FFT is not used.
    held = [Fft64.holds(Task((1, inputs, 3), (64,), 2.0**38)) for inputs in (1, 2**8, 2**16, 2**24)]
    assert held[0]
    assert not held[-1]
    assert sorted(held, reverse=True) == held


def test_past_the_bound_the_sums_are_direct():
    images, weight = integers(-(2**20), 2**20, 1, 1, 16, 16), integers(-(2**24), 2**24, 1, 1, 5, 5)
    task = task_of(images, weight, 2**20)
    assert fft_error_bound((16, 16), 1, task.worst) >= 0.5
    made = prepare(weight, task, plain=True)
    assert isinstance(made, Direct64)
    assert torch.equal(made(images.double(), margin=False).to(torch.int64), by_integers(images, weight))


@pytest.mark.parametrize(("traced", "limit"), [(False, r"below 2\^53"), (True, r"below 2\^24, .*sum_bits=24")])
def test_sums_past_the_limit_are_refused(traced, limit):
    with pytest.raises(ValueError, match=rf"sums reach 9007199254740992; they must stay {limit}"):
        prepare(torch.tensor([[[2**33]]]), Task((1, 1, 1), (4,), 2.0**53, traced=traced), plain=True)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_path_gives_the_same_scores(preset, monkeypatch):
    net = make_restorer(preset, 2, (9, 13), trained=True).scorer
    images = torch.rand(5, 2, 9, 13)
    wanted = net(images)
    for forced in ([Direct32], [Direct64], [Fft64]):
        only(monkeypatch, *forced)
        again = IntegerEstimator(**net.describe())  # a net that has prepared nothing yet
        again.load_state_dict(net.state_dict())
        assert torch.equal(again(images), wanted)
        plan = again.plan((9, 13), images.device)
        assert {type(made.kernel) for made in [*plan.local, *(made for line in plan.lines for made in line)]} <= {
            *forced
        }


@given(st.integers(-(2**50), 2**50), st.integers(1, 2**40))
@settings(deadline=None)
def test_floor_division_between_layers_is_exact(value, divisor):
    found = floor_divide(torch.tensor([[[float(value)]]], dtype=torch.float64), torch.tensor([divisor]).double(), 2**51)
    assert int(found) == value // divisor


@given(st.integers(-(2**24) + 1, 2**24 - 1), st.integers(1, 2**24))
@settings(deadline=None)
def test_floor_division_in_float32_is_exact(value, divisor):
    found = floor_divide(torch.tensor([[[float(value)]]]), torch.tensor([float(divisor)]), 2**24)
    assert int(found) == value // divisor


# --- from float to integer ----------------------------------------------------------------------


def filters(net):
    return [module for module in net.modules() if isinstance(module, IntegerFilter)]


@pytest.mark.parametrize("trained", [False, True], ids=["untrained", "trained"])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("bits", "sum_bits"), [(10, 24), (8, 24), (4, 12), (10, 20), (16, 34), (10, 48), (3, 48)])
def test_quantise_keeps_every_sum_below_its_limit(preset, trained, bits, sum_bits):
    net = quantise(make_estimator(preset, 3, (8, 8), trained), blobs(8, 3, (8, 8)), bits=bits, sum_bits=sum_bits)
    for layer in filters(net):
        worst = (2**bits - 1) * layer.weight.double().abs().flatten(1).sum(1) + layer.bias.abs()
        assert worst.max() < 2**sum_bits
        assert worst.max() > 2 ** (sum_bits - 2) or layer.divisor is None  # and uses the room it has
        assert layer.divisor is None or (layer.divisor >= 1).all()


def test_the_default_is_exact_in_float32():
    for layer in filters(make_restorer("dense", 1, (8, 8)).scorer):
        assert layer.largest * layer.weight.abs().flatten(1).sum(1).max() < 2**24


@pytest.mark.parametrize(("bits", "sum_bits"), [(10, 24), (10, 32), (10, 48), (16, 32), (16, 40), (16, 48)])
@pytest.mark.parametrize("preset", PRESETS)
def test_integer_scores_follow_the_float_ones(preset, bits, sum_bits):
    estimator, images = make_estimator(preset, 1, (16, 16), trained=True), blobs(16, 1, (16, 16))
    net = quantise(estimator, images, bits=bits, sum_bits=sum_bits)
    wanted = estimator(images).detach().double().flatten(1)
    found = net(images).double().flatten(1) * net.score_unit
    spread = wanted.max() - wanted.min()
    assert (found - wanted).abs().max() < (0.05 if bits == 10 else 0.01) * spread


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("size", [(7,), (8, 8), (3, 4, 5)], ids=str)
def test_integer_nets_are_equivariant_to_the_last_bit(preset, size):
    for dtype in (torch.float32, torch.float64):
        assert_equivariant(make_restorer(preset, 2, size).scorer, (2, *size), dtype=dtype, tolerance=0)


def test_pixels_are_quantised_one_by_one():
    net = make_restorer("paper", 1, (8, 8)).scorer
    image = torch.tensor([0.0, CLAMPED, -CLAMPED, CLAMPED / 2, 1.0, -7.0]).view(1, 1, 1, 6)
    assert net.pixels(image).flatten().tolist() == [0, 1023, -1023, 512, 1023, -1023]
    assert net.pixels((image.clamp(0, 1) * 255).to(torch.uint8)).max() == 1023


@pytest.mark.parametrize("value", [1e300, -1e300, 3e38, 5e-324, 1e-310])
def test_extreme_pixels_overflow_nothing(value):
    image = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    image[0, 0, 2, 3] = value
    image[0, 0, 4:, 1] = torch.tensor([1e300, -1e300, 5e-324, 0.25], dtype=torch.float64)
    for preset in PRESETS:
        net = make_restorer(preset, 1, (8, 8), trained=True).scorer
        assert net.pixels(image).abs().max() <= net.largest
        scores = net(image)
        assert scores.abs().max() < 2 * 2**24
        assert torch.equal(net(apply(image, torch.tensor([[3, 5]]))), scores.roll((3, 5), (1, 2)))


@pytest.mark.parametrize("top", [3e38, 1e20, 1e-20, 1e-36, 1e-38, 1e-44])
@pytest.mark.parametrize("preset", PRESETS)
def test_calibration_takes_any_range_of_pixels(preset, top):
    """Neither a huge nor a vanishing range may overflow, become NaN, or leave the confidence undefined."""
    images = (blobs(8, 1, (8, 8)).double() / CLAMPED * top).float()
    net = quantise(make_estimator(preset, 1, (8, 8)), images)
    assert net.pixels(images).isfinite().all()
    if top > 1e-30:
        assert net.pixels(images).abs().max() == net.largest
    scores = net(images)
    assert scores.abs().max() < 2 * 2**24
    sure = confidence(scores, net.score_unit)
    assert ((sure > 0) & (sure <= 1)).all()


@pytest.mark.parametrize("change", ["half", "bfloat16", "double", "float"])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_change_of_dtype_leaves_the_scores_alone(preset, change):
    net = make_restorer(preset, 1, (8, 8)).scorer
    images = torch.rand(3, 1, 8, 8)
    changed = getattr(copy.deepcopy(net), change)()
    assert torch.equal(changed(images), net(images))
    assert changed.score_unit == net.score_unit


@pytest.mark.parametrize("preset", PRESETS)
def test_state_dict_round_trip_into_a_fresh_net(preset):
    net = make_restorer(preset, 2, (8, 9), trained=True).scorer
    fresh = IntegerEstimator(**net.describe())
    fresh.load_state_dict(net.state_dict())
    images = torch.rand(3, 2, 8, 9)
    assert torch.equal(fresh(images), net(images))
    assert fresh.score_unit == net.score_unit
    assert fresh.size == net.size


def test_a_net_of_one_size_only_says_so():
    with pytest.raises(ValueError, match=r"made for images of size \(8, 8\), got \(9, 8\)"):
        make_restorer("dense", 1, (8, 8)).scorer(torch.zeros(1, 1, 9, 8))
    for preset in ("paper", "seam"):
        assert make_restorer(preset, 1, (8, 8)).scorer(torch.zeros(1, 1, 9, 10)).shape == (1, 9, 10)


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (torch.zeros(0, 1, 8, 8), {}, r"at least one sample image.*got none"),
        (torch.full((1, 1, 8, 8), float("nan")), {}, r"NaN or infinity"),
        (torch.full((1, 1, 8, 8), float("-inf")), {}, r"NaN or infinity"),
        (torch.zeros(1, 1, 8), {}, r"wants 2 spatial axes, got 1"),
        (torch.zeros(1, 2, 8, 8), {}, r"wants 1 channel\(s\), got 2"),
        (torch.zeros(1, 1, 8, 7), {}, r"size \(8, 8\), got \(8, 7\)"),
        (torch.zeros(1, 1, 8, 8), {"bits": 1}, r"got bits=1, sum_bits=24"),
        (torch.zeros(1, 1, 8, 8), {"bits": 22}, r"got bits=22, sum_bits=24"),
        (torch.zeros(1, 1, 8, 8), {"sum_bits": 60}, r"got bits=10, sum_bits=60"),
    ],
)
def test_bad_calibration(images, options, message):
    with pytest.raises(ValueError, match=message):
        quantise(make_estimator("dense", 1, (8, 8)), images, **options)


def test_black_samples_still_make_a_net():
    net = quantise(make_estimator("dense", 1, (8, 8)), torch.zeros(1, 1, 8, 8))
    assert_equivariant(net, (1, 8, 8), tolerance=0)


# --- the choice ---------------------------------------------------------------------------------


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
    lines = LineScores(tuple(integers(0, 3, 200, n) for n in size))
    sums = score_map(lines)[:, None]
    found, wanted = (choose(scores, lambda: images[:, None]) for scores in (lines, sums))
    assert 50 < int(wanted[1].sum()) < 200 or size == (6,)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    torch.testing.assert_close(confidence(lines, 0.7), confidence(sums, 0.7), rtol=3e-3, atol=0)


def test_the_confidence_of_terms_is_the_same_for_every_shift():
    lines = [integers(-(2**20), 2**20, 1, n) for n in (7, 9)]
    moved = [torch.cat([line.roll(k, 1) for k in range(line.shape[1])]) for line in lines]
    found = {confidence(LineScores((row[None], column[None])), 1e-5).item() for row in moved[0] for column in moved[1]}
    assert len(found) == 1


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


# --- confidence ---------------------------------------------------------------------------------


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


def test_confidence_of_a_clear_winner_is_one():
    scores = torch.zeros(1, 4, 4, dtype=torch.int64)
    scores[0, 1, 1] = 10**6
    assert confidence(scores, 1.0).item() == 1


def test_confidence_of_a_quantised_net_is_near_the_float_nets():
    size = (16, 16)
    torch.manual_seed(0)
    estimator = ShiftEstimator.preset("dense", 1, size)
    images = blobs(32, 1, size)
    train(estimator, images, steps=30)
    net = quantise(estimator, images)
    wanted = estimator(images).detach().flatten(1).softmax(1).amax(1).double()
    torch.testing.assert_close(confidence(net(images), net.score_unit), wanted, rtol=0.05, atol=0.01)


def test_empty_batches_stay_empty():
    scores = torch.zeros(0, 4, 5, dtype=torch.int64)
    shift, tied = choice(scores, torch.zeros(0, 1, 4, 5))
    assert (shift.shape, tied.shape, confidence(scores, 1.0).shape) == ((0, 2), (0,), (0,))


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


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_net_that_is_not_finite_is_refused(value):
    net = ShiftEstimator(1, channels=(4, 1), kernel_size=(5, 5), bias=True)
    net.local[0].filter.weight.data[0, 0, 0, 0] = value
    with pytest.raises(ValueError, match=r"local\.0\.filter\.weight holds NaN or infinity"):
        quantise(net, torch.rand(2, 1, 8, 8))


def test_line_sums_beyond_53_bits_are_refused():
    net = ShiftEstimator(1, channels=(1,), kernel_size=(1, 1), line_channels=(1,), line_kernel_size=(1, 1))
    with pytest.raises(ValueError, match=r"images of size \(256, 256\) are too large"):
        quantise(net, torch.rand(1, 1, 256, 256), bits=47, sum_bits=50)


@pytest.mark.parametrize("scale", [1023.0, 255.0, 1000.3, 4000.0, 0.7])
def test_bytes_become_the_integers_of_what_they_stand_for(scale):
    """By one multiplication where that gives all 256 the same: 1023 / 255 does, a scale that clamps does not."""
    pixels = PixelScale(scale, 1023)
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(pixels(every), pixels(every.to(torch.float32) / 255))
    assert (pixels.of_bytes is None) == (scale > 1023)
