"""The rivals of a restorer do what their names say, so that the comparison is fair."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from unshift import apply
from unshift.checkpoint import Checkpoint
from unshift.data import dataset, resize, to_float
from unshift.experiments import find, spatial_transformer
from unshift.experiments.architectures import ARCHITECTURES
from unshift.experiments.classifiers import RECIPES as CLASSIFIERS
from unshift.experiments.classifiers import shipped
from unshift.experiments.invariant_nets import blurred, polyphase
from unshift.experiments.record import Options
from unshift.experiments.renderers import terminal
from unshift.experiments.rival_methods import Rival, centred, correlated, shifted_copies
from unshift.experiments.spatial_transformer import RECIPES, SpatialTransformer, shift_smoothly, trained_transformer

SHIFTS = torch.tensor([[3, 30], [0, 0], [17, 5], [-1, 1]])


@pytest.fixture(scope="module")
def digits():
    return resize(to_float(dataset("mnist-10k", "test").images[:4]), (32, 32))


def logits(images):
    """A classifier that cares where things are."""
    return images.flatten(1)[:, ::100] * 5


def test_nothing_is_the_classifier_itself(digits):
    assert torch.equal(Rival("nothing", logits)(digits), logits(digits).softmax(1))


def test_test_time_augmentation_is_the_mean_over_shifted_copies(digits):
    copies = [torch.roll(digits, (i, j), (2, 3)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    wanted = torch.stack([logits(copy).softmax(1) for copy in copies]).mean(0)
    torch.testing.assert_close(Rival("9", logits, shifted_copies(1), 9)(digits), wanted)
    assert len(list(shifted_copies(4)(digits))) == 81


@pytest.mark.parametrize(
    "views", [centred, lambda mean: correlated(mean, "cross"), lambda mean: correlated(mean, "phase")]
)
def test_what_puts_an_image_back_puts_every_shift_of_it_in_one_place(digits, views):
    mean = digits.mean(0)
    (there,), (back,) = views(mean)(digits), views(mean)(apply(digits, SHIFTS))
    assert torch.equal(there, back)
    (own,) = views(digits[0])(apply(digits[:1], SHIFTS[:1]))
    assert torch.equal(own, digits[:1])  # an image like the mean one is put where that is


def test_phase_correlation_is_that_of_scikit_image(digits):
    registration = pytest.importorskip("skimage.registration")
    mean = digits.mean(0)
    for image in apply(digits, SHIFTS):
        found, _, _ = registration.phase_cross_correlation(mean[0].double().numpy(), image[0].double().numpy())
        (back,) = correlated(mean, "phase")(image[None])
        assert torch.equal(back[0], torch.roll(image, tuple(int(step) for step in found), (1, 2)))


def test_polyphase_sampling_moves_with_the_image_and_a_stride_does_not():
    torch.manual_seed(0)
    maps, short = torch.rand(4, 2, 8, 8), torch.rand(4, 3, 8, 8)
    kept, also = polyphase(maps, short)
    moved, along = polyphase(*(apply(x, SHIFTS) for x in (maps, short)))
    for row in range(4):
        grids = [torch.roll(kept[row], (i, j), (1, 2)) for i in range(4) for j in range(4)]
        assert any(torch.equal(moved[row], grid) for grid in grids)
        assert {float(x) for x in also[row].flatten()} == {float(x) for x in along[row].flatten()}
    assert not torch.equal(maps[..., ::2, ::2].sort(-1)[0], apply(maps, SHIFTS)[..., ::2, ::2].sort(-1)[0])


def test_blurring_keeps_the_mean_and_halves_the_size():
    maps = torch.rand(2, 3, 8, 8)
    kept, _ = blurred(maps, maps)
    assert kept.shape == (2, 3, 4, 4)
    weights = torch.tensor([1.0, 2.0, 1.0]).outer(torch.tensor([1.0, 2.0, 1.0])) / 16
    around = F.pad(maps, (1, 1, 1, 1), mode="circular")
    torch.testing.assert_close(kept[0, 0, 1, 2], (around[0, 0, 2:5, 4:7] * weights).sum())


def test_a_polyphase_net_gives_the_same_answer_for_every_shift_and_a_plain_one_does_not():
    torch.manual_seed(0)
    photos = torch.rand(4, 3, 32, 32)
    moved = apply(photos, SHIFTS)
    nets = {name: ARCHITECTURES[name]().eval() for name in ("resnet20", "resnet20-polyphase")}
    with torch.no_grad():
        apart = {name: float((net(photos) - net(moved)).abs().max()) for name, net in nets.items()}
    assert apart["resnet20-polyphase"] < 1e-5 < 1e-3 < apart["resnet20"]


def test_a_smooth_shift_is_an_undo_for_whole_pixels_and_has_a_gradient_between_them(digits):
    back = shift_smoothly(apply(digits, SHIFTS), SHIFTS.float())
    assert torch.equal(back, digits)
    shift = torch.full((4, 2), 0.5, requires_grad=True)
    halfway = shift_smoothly(digits, shift)
    torch.testing.assert_close(halfway[0, 0, 10, 10], digits[0, 0, 10:12, 10:12].mean())
    (halfway * torch.rand(32)).sum().backward()
    assert (shift.grad != 0).any()


def test_a_spatial_transformer_starts_from_no_shift(digits):
    torch.testing.assert_close(SpatialTransformer()(digits), digits)


class Killed(nn.Module):
    """Hands images on, until it is killed."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def forward(self, images):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return images


def test_a_transformer_learns_from_labels_and_goes_on_after_a_kill(digits, monkeypatch, tmp_path):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    small = replace(RECIPES["mnist"], data="mnist-10k", images=64, epochs=1, batch_size=16)
    monkeypatch.setitem(RECIPES, "mnist", small)
    monkeypatch.setattr(Checkpoint, "save_sometimes", Checkpoint.save)
    classifier = shipped()["lenet5-mnist"]()
    frozen = copy.deepcopy(classifier.state_dict())
    monkeypatch.setattr(spatial_transformer, "shipped", lambda: {"lenet5-mnist": lambda: classifier})
    whole = trained_transformer("mnist", progress=False)
    assert not torch.allclose(whole(digits), digits)  # it has left its start
    assert all(torch.equal(frozen[key], tensor) for key, tensor in classifier.state_dict().items())
    (kept,) = (tmp_path / "rivals").iterdir()  # no checkpoint is left
    kept.unlink()
    dying = nn.Sequential(Killed(after=2), classifier)
    monkeypatch.setattr(spatial_transformer, "shipped", lambda: {"lenet5-mnist": lambda: dying})
    with pytest.raises(KeyboardInterrupt):
        trained_transformer("mnist", progress=False)
    monkeypatch.setattr(spatial_transformer, "shipped", lambda: {"lenet5-mnist": lambda: classifier})
    assert torch.equal(trained_transformer("mnist", progress=False)(digits), whole(digits))


@pytest.mark.parametrize("kind", ["shifts", "polyphase", "blurred"])
def test_what_has_to_be_trained_is_trained_like_the_plain_net(kind):
    plain, recipe = CLASSIFIERS["resnet20-cifar10-plain"], CLASSIFIERS[f"resnet20-cifar10-{kind}"]
    assert replace(recipe, architecture=plain.architecture, scope=0) == plain
    assert recipe != plain


def test_the_table_says_where_a_rival_is_better():
    rivals = find("rivals")
    case = next(case for case in rivals.cases if case.name == "mnist")
    result = rivals.measure(case.load(Options(quick=True, progress=False)))
    ours, nothing = (next(e for e in result["rivals"] if e["style"] == style) for style in ("restored", "bare"))
    assert len(set(ours["accuracy"])) == 1
    assert ours["consistent"] == ours["same_bits"] == 100.0
    assert nothing["accuracy"][-1] < ours["accuracy"][-1]
    assert result["rivals"][3]["passes"] == 81
    nothing["accuracy"][0] = 101.0
    shown = terminal(rivals.show("mnist", {"mnist": result}))
    assert "101.00*" in shown
    assert "Better than unshift (mnist): nothing (unshifted" in shown
