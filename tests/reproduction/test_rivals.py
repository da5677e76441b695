"""The rivals and baselines of a restorer do what their names say, so that comparisons are fair."""

from __future__ import annotations

import types
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from reproduction.items import find, genomes, rivals
from reproduction.networks import ARCHITECTURES, polyphase
from reproduction.records import Options
from reproduction.spatial_transformer import SpatialTransformer, shift_smoothly
from reproduction.tables import render
from reproduction.translation import Memo
from unshift import apply
from unshift.coordinates import rotate
from unshift.data import dataset, resize, to_float
from unshift.data.sequences import oriented

QUICK = Options(quick=True, seeds=(0, 1), progress=False)
SHIFTS = torch.tensor([[3, 30], [0, 0], [17, 5], [-1, 1]])


@pytest.fixture(scope="module")
def digits():
    return resize(to_float(dataset("mnist-10k", "test").images[:4]), (32, 32))


def logits(images):
    """A classifier that is not invariant to shifts."""
    return images.flatten(1)[:, ::100] * 5 if images.shape[-1] > 8 else images.flatten(1)[:, :10] * 5


def test_test_time_augmentation_is_the_mean_over_shifted_copies(digits):
    copies = [torch.roll(digits, (i, j), (2, 3)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    expected = torch.stack([logits(copy).softmax(1) for copy in copies]).mean(0)
    torch.testing.assert_close(rivals.Rival("9", logits, rivals.shifted_copies(1), passes=9)(digits), expected)
    assert len(list(rivals.shifted_copies(4)(digits))) == 81
    assert torch.equal(rivals.Rival("nothing", logits)(digits), logits(digits).softmax(1))


def test_a_search_takes_the_most_certain_of_all_shifts():
    images = torch.rand(3, 1, 8, 8)
    contest = types.SimpleNamespace(
        images=images,
        options=replace(QUICK, quick=False),
        setting=rivals.SETTINGS["mnist"],
        plain=logits,
    )
    copies = torch.stack([logits(torch.roll(images, (i, j), (2, 3))) for i in range(8) for j in range(8)])
    confident = rivals.searched(contest, "confident", rivals.most_confident)
    least = rivals.searched(contest, "energy", rivals.least_energy, step=2)
    assert (confident.passes, least.passes) == (64, 16)
    assert torch.equal(confident(images).amax(1), copies.softmax(2).amax((0, 2)))
    even = copies.view(8, 8, 3, -1)[::2, ::2].flatten(0, 1)
    rows = even.logsumexp(2).argmax(0)
    assert torch.equal(least(images), even.softmax(2)[rows, torch.arange(3)])


@pytest.mark.parametrize(
    "views",
    [rivals.centred, lambda mean: rivals.correlated(mean, "cross"), lambda mean: rivals.correlated(mean, "phase")],
)
def test_a_method_that_moves_images_back_moves_every_shift_to_one_place(digits, views):
    mean = digits.mean(0)
    (there,), (back,) = views(mean)(digits), views(mean)(apply(digits, SHIFTS))
    assert torch.equal(there, back)
    (own,) = views(digits[0])(apply(digits[:1], SHIFTS[:1]))
    assert torch.equal(own, digits[:1])  # an image equal to the mean image is moved to it


def test_phase_correlation_is_that_of_scikit_image(digits):
    registration = pytest.importorskip("skimage.registration")
    mean = digits.mean(0)
    for image in apply(digits, SHIFTS):
        shift, _, _ = registration.phase_cross_correlation(mean[0].double().numpy(), image[0].double().numpy())
        (back,) = rivals.correlated(mean, "phase")(image[None])
        assert torch.equal(back[0], torch.roll(image, tuple(int(step) for step in shift), (1, 2)))


def test_polyphase_sampling_is_equivariant_and_a_stride_is_not():
    maps, short = torch.rand(4, 2, 8, 8), torch.rand(4, 3, 8, 8)
    kept, also = polyphase(maps, short)
    moved, along = polyphase(*(apply(x, SHIFTS) for x in (maps, short)))
    for row in range(4):
        grids = [torch.roll(kept[row], (i, j), (1, 2)) for i in range(4) for j in range(4)]
        assert any(torch.equal(moved[row], grid) for grid in grids)
        assert {float(x) for x in also[row].flatten()} == {float(x) for x in along[row].flatten()}
    assert not torch.equal(maps[..., ::2, ::2].sort(-1)[0], apply(maps, SHIFTS)[..., ::2, ::2].sort(-1)[0])
    photos = torch.rand(4, 3, 32, 32)
    nets = {name: ARCHITECTURES[name]().eval() for name in ("resnet20", "resnet20-polyphase")}
    with torch.no_grad():
        apart = {name: float((net(photos) - net(apply(photos, SHIFTS))).abs().max()) for name, net in nets.items()}
    assert apart["resnet20-polyphase"] < 1e-5 < 1e-3 < apart["resnet20"]


def test_a_smooth_shift_undoes_whole_pixels_and_has_a_gradient_between(digits):
    assert torch.equal(shift_smoothly(apply(digits, SHIFTS), SHIFTS.float()), digits)
    shift = torch.full((4, 2), 0.5, requires_grad=True)
    halfway = shift_smoothly(digits, shift)
    torch.testing.assert_close(halfway[0, 0, 10, 10], digits[0, 0, 10:12, 10:12].mean())
    (halfway * torch.rand(32)).sum().backward()
    assert (shift.grad != 0).any()


def test_a_spatial_transformer_starts_neutral_and_learns_from_labels(digits, monkeypatch, tmp_path):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    torch.testing.assert_close(SpatialTransformer()(digits), digits)
    window = SpatialTransformer(1, 64, (32, 32))(F.pad(digits, [16] * 4))
    assert window.shape == digits.shape
    assert window.mean() < digits.mean()  # it sees nearly the whole scene
    through, recipe = rivals.TRANSFORMERS["mnist"]
    monkeypatch.setitem(rivals.TRANSFORMERS, "mnist", (through, replace(recipe, data="mnist-10k", epochs=0.1)))
    rivals.make_transformer("mnist", progress=False)
    rival = rivals.transformed(rivals.Contest("mnist", replace(QUICK, quick=True)), "mnist")
    assert rival.training == {}
    learnt = rivals.new_transformer("mnist")
    before = learnt(digits)
    learnt.load_state_dict(rivals.load_file(rivals.transformer_path("mnist")))
    assert not torch.allclose(learnt(digits), before)
    assert [path.name for path in (tmp_path / "rivals").iterdir()] == ["transformer-mnist.safetensors"]


def test_the_table_marks_the_best_and_where_a_rival_is_better(monkeypatch):
    kept = [rivals.nothing, rivals.restored, *rivals.ROWS["mnist"][2:4]]
    monkeypatch.setitem(rivals.ROWS, "mnist", kept)
    result = find("rivals").measure("mnist", QUICK)
    ours, nothing = (next(e for e in result["rivals"] if e["style"] == style) for style in ("restored", "bare"))
    assert len(set(ours["accuracy"])) == 1
    assert ours["consistent"] == ours["same_bits"] == 100.0
    assert nothing["accuracy"][-1] < ours["accuracy"][-1]
    assert result["rivals"][3]["passes"] == 81
    nothing["accuracy"][0] = 101.0
    shown = render(find("rivals").tables({"mnist": result}, "mnist"), "terminal")
    assert "101.00*" in shown
    assert "no restorer (unshifted" in shown


def test_a_memo_classifies_each_image_once_and_keeps_signed_zeros_apart():
    class Counting(nn.Module):
        seen = 0

        def forward(self, images):
            self.seen += len(images)
            return images.flatten(1)[:, :10]

    images, inner = torch.rand(6, 1, 4, 4), Counting()
    model = Memo(inner)
    first = model(images)
    again = model(torch.cat([images[3:], images[:3], images[:1] + 1]))
    assert inner.seen == 7
    assert torch.equal(first, images.flatten(1)[:, :10])
    assert torch.equal(again[:6], first[[3, 4, 5, 0, 1, 2]])
    model(torch.zeros(1, 1, 4, 4))
    model(-torch.zeros(1, 1, 4, 4))
    assert inner.seen == 9


# --- angles, genomes


@pytest.mark.parametrize("direction", [rivals.principal_axis, rivals.intensity_direction])
def test_the_direction_of_an_image_follows_the_rotation(direction):
    hammer = torch.zeros(1, 1, 41, 41)
    hammer[..., 20, 8:36] = 1
    hammer[..., 18:23, 30:36] = 1  # heavy at one end, so that the third moment has a sign
    still = direction(hammer)
    for angle in (30.0, 90.0, 200.0):
        error = (direction(rotate(hammer, angle)) - still - angle + 180) % 360 - 180
        assert error.abs() < 1.5


def test_the_least_rotation_is_the_same_for_every_rotation_of_both_strands():
    text = "GATTACAGATTCCA"
    outputs = set()
    for shift in range(len(text)):
        for turn in (0, 1):
            moved = oriented(text, shift, turn)
            outputs.add(oriented(moved, *genomes.least_rotation(moved)))
    both = [oriented(text, shift, turn) for shift in range(len(text)) for turn in (0, 1)]
    assert outputs == {min(both)}
