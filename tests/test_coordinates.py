"""unshift.coordinates: every kind of move undone bit for bit, spelt here a second time with torch alone."""

from __future__ import annotations

import functools
import itertools
import math

import pytest
import torch
from samples import PRESETS, blobs, hard_images, train
from torch import nn

from unshift import Chain, Restorer, ShiftEstimator, apply, quantise
from unshift import restorer as restorer_module
from unshift.coordinates import GROUPS, Canvas, Centre, Polar, Pose, Ring, Turns, all_shifts, from_description
from unshift.exact import ordered_bits
from unshift.testing import verify

DTYPES = (torch.uint8, torch.float16, torch.float32, torch.float64)
QUARTERS = [functools.partial(torch.rot90, k=k, dims=(2, 3)) for k in range(4)]


def cube_turns():
    """The 24 rotations of a cube: what quarter turns in its three planes make, one after another."""
    number = torch.arange(27).view(1, 1, 3, 3, 3)
    words = {tuple(number.flatten().tolist()): ()}
    reached = list(words.values())
    for word in reached:
        for plane in ((2, 3), (2, 4), (3, 4)):
            longer = (*word, plane)
            found = tuple(spell(longer)(number).flatten().tolist())
            if found not in words:
                words[found] = longer
                reached.append(longer)
    return [spell(word) for word in reached]


def spell(word):
    return lambda x: functools.reduce(lambda x, plane: torch.rot90(x, 1, plane), word, x)


SPELT = {  # what each element does to an array, in the order of the group (but for the cube)
    "mirror": [lambda x: x, lambda x: x.flip(-1)],
    "half": [lambda x: x, lambda x: x.rot90(2, (2, 3))],
    "quarter": QUARTERS,
    "flips": [*QUARTERS, *(lambda x, turn=turn: turn(x.flip(-1)) for turn in QUARTERS)],
    "strand": [lambda x: x, lambda x: x.flip(1, 2)],
    "cube": cube_turns(),
}

CASES = [
    ("mirror", 1, (6, 6)),
    ("mirror", 2, (9,)),
    ("mirror", 1, (5, 7)),
    ("mirror", 1, (3, 4, 5)),
    ("half", 1, (8, 8)),
    ("half", 2, (5, 6)),
    ("quarter", 1, (8, 8)),
    ("quarter", 3, (5, 5)),
    ("flips", 1, (8, 8)),
    ("flips", 1, (5, 5)),
    ("strand", 4, (16,)),
    ("strand", 4, (15,)),
    ("cube", 1, (3, 3, 3)),
]

KINDS = ("random", "constant", "uneven", "one_pixel", "tied", "symmetric", "faint_symmetric", "signed_zeros")
"""The hard images that differ most, where there is no time for all."""


def moved_by_all(image, turns):
    """Every turn of ``image``, then every shift of it, spelt with torch alone."""
    shifts = all_shifts(image.shape[1:])
    axes = tuple(range(1, image.ndim))
    return torch.stack([turn(image[None])[0].roll(tuple(s), axes) for turn in turns for s in shifts.tolist()])


def images_for(turns, channels, size, dtype):
    """All hard images, those that the turns leave alone, and noise that is nothing as integers."""
    images = hard_images(channels, size, dtype)
    noise = torch.rand(channels, *size, generator=torch.Generator().manual_seed(5))
    largest = torch.stack([turn(noise[None])[0] for turn in turns]).amax(0)  # no sum: the same bits in any order
    images["symmetric"] = (255 * largest).to(dtype) if dtype == torch.uint8 else largest.to(dtype)
    if dtype != torch.uint8:
        images["faint"], images["faint_symmetric"] = (noise * 1e-4).to(dtype), (largest * 1e-4).to(dtype)
    return images


def restorer_for(coordinates, preset, channels, size, trained=False):
    torch.manual_seed(0)
    net = coordinates.network(preset, channels, size)
    samples = coordinates.canvas(blobs(16, channels, size)).flatten(0, 1)
    if trained:
        train(net, samples)
    return Restorer(quantise(net, samples), coordinates=coordinates)


def wrong(restorer, images, moved):
    """Which moved images ``(image, move, channel, *size)`` do not become the bits of their own, or are told apart."""
    count, flat = moved.shape[1], moved.flatten(0, 1)
    still, found = restorer.estimate(images), restorer.estimate(flat)
    wanted = ordered_bits(restorer.undo(images, still)).repeat_interleave(count, 0)
    different = (ordered_bits(restorer.undo(flat, found)) != wanted).flatten(1).any(1)
    for told, before in ((found.confidence, still.confidence), (found.tied, still.tied)):
        different |= told != before.repeat_interleave(count)
    return different.view(len(images), count)


def mismatches(restorer, image, moved):
    """How many of the moved images are not restored to the bits that ``image`` is, or not told alike."""
    return int(wrong(restorer, image[None], moved[None]).sum())


def assert_all_exact(restorer, turns, channels, size, dtypes=(torch.float32,), kinds=None, move=moved_by_all):
    """Restore every hard image under every move, all of a dtype at once."""
    for dtype in dtypes:
        images = images_for(turns, channels, size, dtype)
        images = {kind: image for kind, image in images.items() if kinds is None or kind in kinds}
        moved = torch.stack([move(image, turns) for image in images.values()])
        found = wrong(restorer, torch.stack([*images.values()]), moved).sum(1).tolist()
        assert not any(found), (dtype, {kind: n for kind, n in zip(images, found, strict=True) if n})


# --- turns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("group", "channels", "size"), [*CASES, ("flips", 1, (4, 4)), ("cube", 1, (2, 2, 2))], ids=str)
def test_every_turn_and_shift_is_undone_in_every_dtype(group, channels, size):
    few = len(SPELT[group]) * math.prod(size) < 200
    restorer = restorer_for(Turns(group), "paper", channels, size)
    assert_all_exact(restorer, SPELT[group], channels, size, DTYPES if few else DTYPES[2:3], None if few else KINDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "channels", "size"),
    [("quarter", 1, (8, 8)), ("flips", 1, (5, 5)), ("flips", 1, (8, 8)), ("cube", 1, (3, 3, 3))],
    ids=str,
)
def test_every_turn_and_shift_of_a_large_group_is_undone_in_every_dtype(group, channels, size):
    assert_all_exact(restorer_for(Turns(group), "paper", channels, size), SPELT[group], channels, size, DTYPES)


@pytest.mark.parametrize("trained", [False, True], ids=["untrained", "trained"])
@pytest.mark.parametrize("preset", ["dense", "seam"])
@pytest.mark.parametrize(
    ("group", "channels", "size"),
    [("mirror", 1, (5, 7)), ("half", 1, (5, 6)), ("quarter", 1, (6, 6)), ("flips", 1, (5, 5)), ("strand", 4, (16,))],
)
def test_every_turn_and_shift_is_undone_by_every_preset(group, channels, size, preset, trained):
    restorer = restorer_for(Turns(group), preset, channels, size, trained)
    assert_all_exact(restorer, SPELT[group], channels, size, kinds=KINDS)


def test_all_24_turns_and_216_shifts_of_a_cube():
    size = (6, 6, 6)
    net = ShiftEstimator(1, channels=(2, 1), kernel_size=(2, 2, 2), bias=True)
    restorer = Restorer(quantise(net, blobs(8, 1, size)), coordinates=Turns("cube"))
    image = torch.rand(1, *size)
    moved = moved_by_all(image, SPELT["cube"])
    assert len(moved) == 24 * 216
    assert mismatches(restorer, image, moved) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["constant", "uneven", "one_pixel", "tied", "symmetric", "faint", "signed_zeros"])
def test_hard_volumes_under_all_turns_and_shifts(kind):
    restorer = restorer_for(Turns("cube"), "paper", 1, (6, 6, 6))
    assert_all_exact(restorer, SPELT["cube"], 1, (6, 6, 6), kinds=[kind])


@pytest.mark.parametrize(("group", "channels", "size"), CASES, ids=str)
def test_the_elements_are_the_group_and_map_shifts_to_shifts(group, channels, size):
    turns, count = Turns(group), len(SPELT[group])
    image = torch.arange(channels * math.prod(size)).view(1, channels, *size)
    still = torch.zeros(count, len(size), dtype=torch.int64)
    ours = turns.redo(image.expand(count, *image.shape[1:]), Pose(still, torch.arange(count)))
    spelt = [turn(image)[0] for turn in SPELT[group]]
    if group == "cube":
        assert {tuple(x.flatten().tolist()) for x in ours} == {tuple(x.flatten().tolist()) for x in spelt}
        assert torch.equal(ours[0], image[0])
    else:
        assert torch.equal(ours, torch.stack(spelt))
    assert len(turns.names) == count
    shift = torch.randint(9, (count, len(size)))
    for g, element in enumerate(turns.elements(len(size))):
        assert torch.equal(
            element(apply(image, shift[g : g + 1])), apply(element(image), element.of_shift(shift[g : g + 1]))
        )


@pytest.mark.parametrize(("group", "channels", "size"), CASES, ids=str)
def test_scores_are_carried_as_the_image_is_moved(group, channels, size):
    """What verify rests on: the scores of a moved image are the carried scores, for every move."""
    restorer, turns = restorer_for(Turns(group), "paper", channels, size), Turns(group)
    moves, image = turns.moves(size), torch.rand(1, channels, *size)
    assert len(moves.shift) == len(SPELT[group]) * math.prod(size)
    moved = turns.move(image.expand(len(moves.shift), *image.shape[1:]), moves)
    scores = restorer.scores(turns.canvas(image))
    carried = turns.carry(scores.expand(len(moved), *scores.shape[1:]), moves)
    assert torch.equal(restorer.scores(turns.canvas(moved)), carried)
    assert len({tuple(one.flatten().tolist()) for one in moved}) == len(moved)  # no move twice


# --- literals that pin the conventions --------------------------------------------------------------


def turned(group, images, g, shift=None):
    images = torch.tensor(images)
    shift = torch.tensor([shift or [0] * (images.ndim - 2)])
    return Turns(group).redo(images, Pose(shift, torch.tensor([g]))).tolist()


@pytest.mark.parametrize(
    ("group", "g", "wanted"),
    [
        ("mirror", 1, [[2, 1], [4, 3]]),
        ("half", 1, [[4, 3], [2, 1]]),
        ("quarter", 1, [[2, 4], [1, 3]]),  # counter-clockwise
        ("quarter", 2, [[4, 3], [2, 1]]),
        ("quarter", 3, [[3, 1], [4, 2]]),
        ("flips", 1, [[2, 4], [1, 3]]),
        ("flips", 4, [[2, 1], [4, 3]]),
        ("flips", 5, [[1, 3], [2, 4]]),  # mirrored, then turned
    ],
)
def test_which_way_a_turn_goes(group, g, wanted):
    assert turned(group, [[[[1, 2], [3, 4]]]], g) == [[wanted]]


def test_an_array_is_turned_first_and_shifted_then():
    assert turned("quarter", [[[[1, 2], [3, 4]]]], 1, [0, 1]) == [[[[4, 2], [3, 1]]]]
    image = torch.tensor([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]])
    pose = Pose(torch.tensor([[1, 0]]), torch.tensor([1]))
    assert Turns("quarter").redo(image, pose).tolist() == [[[[1, 4, 7], [3, 6, 9], [2, 5, 8]]]]
    assert torch.equal(Turns("quarter").undo(Turns("quarter").redo(image, pose), pose), image)


def one_hot(bases):
    return nn.functional.one_hot(torch.tensor(["ACGT".index(b) for b in bases]), 4).T[None].tolist()


def test_the_other_strand_is_the_reverse_complement():
    assert turned("strand", one_hot("AACG"), 1) == one_hot("CGTT")
    assert turned("strand", one_hot("ACGGT"), 1, [1]) == one_hot("TACCG")  # ACCGT, one base further


def test_a_ring_moves_along_its_axis_only():
    image = torch.tensor([[[[1, 2, 3], [4, 5, 6]]]])
    assert Ring(-1).pose(torch.tensor([2]), torch.zeros(1, 1, 3), (2, 3)).shift.tolist() == [[0, 2]]
    assert Ring(0).pose(torch.tensor([1]), torch.zeros(1, 1, 2), (2, 3)).shift.tolist() == [[1, 0]]
    assert Ring(1).redo(image, Pose(torch.tensor([[0, 1]]))).tolist() == [[[[3, 1, 2], [6, 4, 5]]]]
    assert Ring(1).canvas(image).tolist() == [[[[1, 2, 3], [4, 5, 6]]]]  # the rows are channels
    assert Ring(0).canvas(image).tolist() == [[[[1, 4], [2, 5], [3, 6]]]]
    assert Ring(0).moves((2, 3)).shift.tolist() == [[0, 0], [1, 0]]


def centring(size):
    """The simplest net for a centre: a pixel's own value, or the four pixels around a corner."""
    net = ShiftEstimator(
        1, channels=(1,), kernel_size=(2, 2) if size % 2 == 0 else (1, 1), symmetric=True, corners=size % 2 == 0
    )
    nn.init.ones_(net.local[0].filter.weight)
    return Restorer(quantise(net, torch.ones(1, 1, size, size)), coordinates=Centre())


def test_the_centre_is_a_pixel_of_odd_sizes_and_a_corner_of_even_ones():
    image = torch.zeros(1, 1, 5, 5)
    image[0, 0, 1, 2] = 1
    assert centring(5).estimate(image).shift.tolist() == [[4, 0]]  # one row above the middle
    assert centring(5)(image)[0, 0, 2, 2] == 1
    image = torch.zeros(1, 1, 4, 4)
    image[0, 0, 0:2, 1:3] = 1
    assert centring(4).estimate(image).shift.tolist() == [[3, 0]]
    assert centring(4)(image)[0, 0, 1:3, 1:3].tolist() == [[1, 1], [1, 1]]


# --- rings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("size", "axis"),
    [
        ((8,), 0),
        ((5, 8), 1),
        ((8, 5), 0),
        ((8, 8), -1),
        ((3, 4, 7), 0),
        ((3, 4, 7), 1),
        ((3, 4, 7), -1),
        ((2, 8, 3), -2),
    ],
)
def test_every_shift_along_a_ring_is_undone(size, axis, preset):
    for trained in (False, True):
        restorer = restorer_for(Ring(axis), preset, 2, size, trained)
        along = lambda image, _: torch.stack([image.roll(k, axis % len(size) + 1) for k in range(size[axis])])  # noqa: E731
        assert_all_exact(restorer, [lambda x: x], 2, size, DTYPES, move=along)


def test_a_ring_leaves_moves_along_other_axes_alone():
    restorer = restorer_for(Ring(1), "dense", 1, (5, 8), trained=True)
    image = torch.rand(1, 5, 8)
    assert mismatches(restorer, image, torch.stack([image.roll(k, 1) for k in range(5)])) == 4


# --- centres and chains -----------------------------------------------------------------------------


def chain_for(size, preset="dense", trained=False, refine=False):
    centre = restorer_for(Centre(), preset, 1, (size, size), trained)
    polar = Polar(size, angles=8, radii=3, ratio=None, refine=refine)
    return Chain(centre, restorer_for(polar, "dense", 1, (size, size), trained))


@pytest.mark.parametrize(("size", "preset"), [(8, "dense"), (7, "dense"), (8, "paper"), (7, "paper")])
def test_a_centre_undoes_every_shift_and_lets_quarter_turns_pass(size, preset):
    restorer = restorer_for(Centre(), preset, 1, (size, size), trained=preset == "dense")
    shifted = lambda image, _: moved_by_all(image, QUARTERS[:1])  # noqa: E731
    assert_all_exact(restorer, QUARTERS, 1, (size, size), DTYPES, move=shifted)
    for dtype in DTYPES:
        images = images_for(QUARTERS, 1, (size, size), dtype)
        plain = torch.stack([images["random"], images["blob"]])
        for turn in QUARTERS:
            assert torch.equal(restorer(turn(plain)), turn(restorer(plain)))


@pytest.mark.parametrize(
    ("size", "trained", "refine"),
    [
        (4, False, False),
        (5, True, True),
        *(pytest.param(4, trained, True, marks=pytest.mark.slow) for trained in (False, True)),
        *(pytest.param(5, trained, False, marks=pytest.mark.slow) for trained in (False, True)),
    ],
)
def test_a_chain_undoes_every_quarter_turn_and_shift(size, trained, refine):
    chain = chain_for(size, trained=trained, refine=refine)
    assert_all_exact(chain, QUARTERS, 1, (size, size), kinds=KINDS)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_a_chain_is_exact_in_every_dtype(size, dtype):
    kinds = ("random", "symmetric", "tied", "signed_zeros")
    assert_all_exact(chain_for(size, refine=True), QUARTERS, 1, (size, size), [dtype], kinds)


@pytest.mark.parametrize(("size", "preset"), [(8, "dense"), (7, "paper")])
def test_a_chain_at_larger_sizes(size, preset):
    assert_all_exact(chain_for(size, preset=preset), QUARTERS, 1, (size, size), kinds=("random", "blob", "one_pixel"))


@pytest.mark.slow
@pytest.mark.parametrize("refine", [False, True], ids=["on the grid", "refined"])
@pytest.mark.parametrize("size", [8, 7])
def test_a_chain_at_larger_sizes_on_all_hard_images(size, refine):
    assert_all_exact(chain_for(size, refine=refine), QUARTERS, 1, (size, size), DTYPES)


def test_a_chain_tells_what_its_stages_tell():
    chain = chain_for(8)
    images = torch.rand(3, 1, 8, 8)
    found, first = chain.estimate(images), chain.stages[0].estimate(images)
    second = chain.stages[1].estimate(chain.stages[0].undo(images, first))
    assert torch.equal(found.shift, first.shift)
    assert torch.equal(found.angle, second.angle)
    assert found.turn is None
    assert torch.equal(found.confidence, first.confidence * second.confidence)


# --- what breaks the group is caught -----------------------------------------------------------------


class Positional(nn.Module):
    """Scores near an edge are lower, as with zero padding."""

    def __init__(self, scorer):
        super().__init__()
        self.scorer = scorer

    def forward(self, images):
        scores = self.scorer(images)
        scores[..., 0] -= 2**20
        return scores


class FirstCopy(Positional):
    """Equivariant to shifts, but every copy scores higher than the one before."""

    def forward(self, images):
        scores = self.scorer(images)
        return scores + 2**20 * torch.arange(len(scores)).view(-1, *[1] * (scores.ndim - 1))


def named(value: object) -> str:
    """Name a parameter the same in every process: functions would show their address."""
    return "" if isinstance(value, list) else " ".join(str(value).split())


SHIFTING = [
    *((Turns(group), channels, size, SPELT[group]) for group, channels, size in CASES),
    (Ring(-1), 1, (4, 8), None),
    (Ring(0), 1, (8, 4), None),
    (Centre(), 1, (6, 6), None),
    (Centre(), 1, (7, 7), None),
]


@pytest.mark.parametrize(("coordinates", "channels", "size", "turns"), SHIFTING, ids=named)
def test_a_scorer_that_knows_its_position_is_caught(coordinates, channels, size, turns):
    good = restorer_for(coordinates, "dense", channels, size)
    image = torch.rand(1, channels, *size)
    assert verify(good, image).exact
    assert verify(good, image, brute_force=True).exact
    assert not verify(Restorer(Positional(good.scorer), coordinates=coordinates), image).exact


@pytest.mark.parametrize(("group", "channels", "size"), CASES, ids=str)
def test_a_scorer_that_knows_which_copy_comes_first_is_caught(group, channels, size):
    good, image = restorer_for(Turns(group), "dense", channels, size), torch.rand(channels, *size)
    bad = Restorer(FirstCopy(good.scorer), coordinates=Turns(group))
    assert mismatches(bad, image, moved_by_all(image, SPELT[group])) > 0
    assert not verify(bad, image[None]).exact


@pytest.mark.parametrize(("coordinates", "channels", "size", "turns"), SHIFTING, ids=named)
def test_a_plain_argmax_is_caught(coordinates, channels, size, turns, monkeypatch):
    restorer, image = restorer_for(coordinates, "dense", channels, size), 1e-4 * torch.rand(1, channels, *size)
    assert restorer.estimate(image).tied.all()
    assert verify(restorer, image, brute_force=True).exact

    def first(scores, *_):
        flat = scores.flatten(1)
        return flat.argmax(1), (flat == flat.amax(1, keepdim=True)).sum(1) > 1

    monkeypatch.setattr(restorer_module, "choose", first)
    assert not verify(restorer, image, brute_force=True).exact


@pytest.mark.parametrize("size", [8, 7])
def test_a_net_that_does_not_turn_with_the_image_is_caught_in_a_chain(size):
    chain = chain_for(size)
    plain = restorer_for(Canvas(), "dense", 1, (size, size)).scorer
    broken = Chain(Restorer(plain, coordinates=Centre()), chain.stages[1])
    image = torch.rand(1, size, size)
    moved = moved_by_all(image, QUARTERS)
    assert mismatches(chain, image, moved) == 0
    assert mismatches(broken, image, moved) > 0
    assert verify(chain, image[None]).exact
    assert verify(chain, image[None]).moves == 4 * size * size
    assert not verify(broken, image[None]).exact


def test_a_map_of_pixels_has_no_centre_at_an_even_size():
    """Symmetric filters alone do not do: the middle of 8 pixels is a corner, which odd filters do not score."""
    torch.manual_seed(0)
    net = ShiftEstimator(1, channels=(4, 1), kernel_size=(5, 5), bias=True, symmetric=True, corners=False)
    polar = chain_for(8).stages[1]
    broken = Chain(Restorer(quantise(net, blobs(8, 1, (8, 8))), coordinates=Centre()), polar)
    image = torch.rand(1, 8, 8)
    assert mismatches(broken, image, moved_by_all(image, QUARTERS)) > 0


# --- round trips ------------------------------------------------------------------------------------

EVERY = [
    (Canvas(), 2, (4, 5)),
    (Canvas(2), 2, (4, 5)),
    (Canvas(1), 2, (5,)),
    *((Turns(group), channels, size) for group, channels, size in CASES),
    *((Ring(axis), 1, (3, 4, 5)) for axis in (0, 1, 2, -1, -2, -3)),
    (Centre(), 1, (6, 6)),
    (Centre(), 1, (7, 7)),
    (Polar(8, angles=12, radii=2), 1, (8, 8)),
    (Polar(6, angles=8, radii=2, polar_angles=3, axis=1), 1, (6, 6, 6)),
]


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_every_candidate_stands_for_one_pose(coordinates, channels, size):
    canvas = coordinates.canvas(torch.rand(1, channels, *size))
    count = canvas.shape[1] * math.prod(canvas.shape[3:])
    scores = torch.zeros(count, canvas.shape[1], *canvas.shape[3:], dtype=torch.int64)
    index = torch.arange(count)
    pose = coordinates.pose(index, scores, size)
    assert torch.equal(coordinates.candidate(pose, size), index)
    assert pose.shift.shape == (count, len(size))
    assert pose.shift.dtype == torch.int64


@pytest.mark.parametrize(
    ("coordinates", "channels", "size"), [case for case in EVERY if "pad" not in str(case[0])], ids=str
)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32])
def test_redo_is_the_inverse_of_undo(coordinates, channels, size, dtype):
    moves = coordinates.moves(size)
    images = (8 * torch.rand(len(moves.shift), channels, *size)).to(torch.uint8).to(dtype)
    assert torch.equal(coordinates.redo(coordinates.undo(images, moves), moves), images)
    assert torch.equal(coordinates.undo(coordinates.redo(images, moves), moves), images)
    assert torch.equal(coordinates.undo(coordinates.move(images, moves), moves), images)


def test_redo_is_the_inverse_of_undo_along_a_chain():
    coordinates = chain_for(8).coordinates
    moves = coordinates.moves((8, 8))
    images = torch.rand(len(moves.shift), 1, 8, 8)
    assert len(moves.shift) == 4 * 64
    assert torch.equal(coordinates.redo(coordinates.undo(images, moves), moves), images)
    assert torch.equal(coordinates.undo(coordinates.move(images, moves), moves), images)


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_restore_is_the_estimate_undone(coordinates, channels, size):
    restorer = restorer_for(coordinates, "dense", channels, size)
    images = torch.rand(3, channels, *size)
    assert torch.equal(restorer(images), restorer.undo(images, restorer.estimate(images)))
    assert torch.equal(restorer.restore(images), restorer(images))


@pytest.mark.parametrize("coordinates", [Canvas(), Turns("mirror"), Turns("flips"), Ring(0), Centre()], ids=str)
def test_a_mask_goes_back_where_the_image_was(coordinates):
    """Images of three channels, a mask of one: drawn on the restored image, it lies on the image as it came."""
    restorer = restorer_for(coordinates, "dense", 3, (8, 8))
    images = torch.rand(5, 3, 8, 8)
    estimate = restorer.estimate(images)
    mask = restorer.undo(images, estimate).mean(1, keepdim=True) > 0.5
    assert torch.equal(restorer.redo(mask, estimate), images.mean(1, keepdim=True) > 0.5)


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_empty_batches_stay_empty(coordinates, channels, size):
    restorer, images = restorer_for(coordinates, "dense", channels, size), torch.zeros(0, channels, *size)
    estimate = restorer.estimate(images)
    assert restorer(images).shape == restorer.redo(images, estimate).shape == images.shape
    assert estimate.shift.shape == (0, len(size))
    assert estimate.confidence.shape == estimate.tied.shape == (0,)


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_a_description_rebuilds_the_coordinates(coordinates, channels, size):
    again = from_description(coordinates.describe())
    assert again.describe() == coordinates.describe()
    images = torch.rand(2, channels, *size)
    assert torch.equal(again.canvas(images), coordinates.canvas(images))


@pytest.mark.parametrize(("coordinates", "channels", "size"), EVERY, ids=str)
def test_drawn_poses_are_moves_and_no_scope_is_no_move(coordinates, channels, size):
    generator = torch.Generator().manual_seed(0)
    pose = coordinates.draw(size, 50, None, generator)
    images = torch.rand(50, channels, *size)
    assert coordinates.move(images, pose).shape == images.shape
    still = coordinates.draw(size, 50, 0, generator)
    assert torch.equal(coordinates.move(images, still), images)
    assert not coordinates.distance(still, size).any()


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coordinates", "shape", "message"),
    [
        (Turns("quarter"), (1, 1, 4, 5), r"group 'quarter' want square images, got shape \(1, 1, 4, 5\)"),
        (Turns("flips"), (1, 1, 4, 5), r"group 'flips' want square images, got shape \(1, 1, 4, 5\)"),
        (Turns("quarter"), (1, 1, 4), r"want square images, got shape \(1, 1, 4\)"),
        (Turns("half"), (1, 1, 4), r"group 'half' want images, got shape \(1, 1, 4\)"),
        (Turns("cube"), (1, 1, 4, 4, 5), r"want cubic volumes, got shape \(1, 1, 4, 4, 5\)"),
        (Turns("strand"), (1, 3, 8), r"want an even number of channels.*got 3: shape \(1, 3, 8\)"),
        (Turns("strand"), (1, 4, 8, 8), r"want sequences, got shape \(1, 4, 8, 8\)"),
        (Ring(1), (1, 1, 8), r"along spatial axis 1, but these arrays have 1: 0 to 0"),
        (Ring(-3), (1, 1, 8, 8), r"along spatial axis -3, but these arrays have 2: 0 to 1"),
        (Centre(), (1, 1, 4, 5), r"want square images, got shape \(1, 1, 4, 5\)"),
        (Polar(8), (1, 1, 8, 9), r"want square images.*got shape \(1, 1, 8, 9\)"),
    ],
    ids=str,
)
def test_images_that_do_not_fit(coordinates, shape, message):
    images = torch.zeros(shape)
    with pytest.raises(ValueError, match=message):
        coordinates.canvas(images)
    with pytest.raises(ValueError, match=message):
        Restorer(nn.Identity(), coordinates=coordinates)(images)


def test_coordinates_that_there_are_none_of():
    with pytest.raises(ValueError, match=r"no group of turns named 'octagon'; there are mirror, half, quarter"):
        Turns("octagon")
    for axis in (3, -4, 0.5, None):
        with pytest.raises(ValueError, match=r"axis must be a spatial axis, 0 to 2.*got"):
            Ring(axis)
    with pytest.raises(ValueError, match=r"no coordinates of kind 'hyperbolic'; there are canvas, ring, turns"):
        from_description({"kind": "hyperbolic"})
    with pytest.raises(ValueError, match="turns coordinates have no margin"):
        from_description({"kind": "turns", "group": "half"}, pad=2)


def test_a_chain_wants_stages_that_read_different_parts():
    shifts = restorer_for(Canvas(), "dense", 1, (8, 8))
    with pytest.raises(ValueError, match=r"two or more restorers.*got 2 that read shift, shift"):
        Chain(shifts, shifts)
    with pytest.raises(ValueError, match=r"got 1 that read shift"):
        Chain(shifts)


def test_every_group_is_spelt_here():
    assert list(SPELT) == list(GROUPS)
    assert [len(SPELT[group]) for group in GROUPS] == [2, 2, 4, 8, 2, 24]
    assert set(itertools.chain(group for group, _, _ in CASES)) == set(GROUPS)
