"""Scenes: an object in a larger image is found and cut out, bit for bit the same under all shifts of the scene."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from fits import quick
from PIL import Image
from torch import nn

import unshift
from unshift import Restorer, ShiftEstimator, apply, classifiers, quantise
from unshift.coordinates import Pose, Scene, Turns
from unshift.data import dataset, prepare, to_float
from unshift.evaluation import accuracy
from unshift.shifts import all_shifts
from unshift.training import scenes

pytestmark = pytest.mark.filterwarnings("ignore:this is near guessing")

SIZE, WINDOW = (18, 22), (8, 9)


@pytest.fixture(scope="module")
def restorer() -> Restorer:
    torch.manual_seed(0)
    net = ShiftEstimator(1, channels=(4, 1), kernel_size=(5, 5), bias=True)
    return Restorer(quantise(net, torch.rand(8, 1, *SIZE)), coordinates=Scene(WINDOW)).eval()


@pytest.fixture(scope="module")
def objects() -> torch.Tensor:
    """Return bright blobs on black, each with a bright corner that shows its position."""
    generator = torch.Generator().manual_seed(0)
    blobs = (torch.rand(64, 1, *WINDOW, generator=generator) > 0.4).to(torch.uint8) * 200
    blobs[:, :, 1], blobs[:, :, :, 1] = 255, 255
    blobs[:, :, [0, -1]], blobs[:, :, :, [0, -1]] = 0, 0
    return blobs


def scene(kind: str) -> torch.Tensor:
    found = torch.rand(1, 1, *SIZE, generator=torch.Generator().manual_seed(1))
    if kind == "repeated":  # every position has others that restore to the same scene
        found = found[:, :, :6, :11].repeat(1, 1, 3, 2)
    return torch.full_like(found, 0.5) if kind == "constant" else found


class FirstOfEquals(nn.Module):
    """A scorer that is not equivariant: it prefers the first positions in memory."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (100 * images[:, 0]).long() - torch.arange(images[0, 0].numel()).view(images.shape[2:])


def mismatches(restorer: Restorer, image: torch.Tensor, top: int = 1) -> int:
    """Count the circular shifts of a scene under which its windows or confidences differ in any bit."""
    still = restorer.estimate(image, top=top)
    windows = [restorer.undo(image, estimate) for estimate in still]
    shifts = all_shifts(tuple(image.shape[2:]))
    moved = apply(image.expand(len(shifts), *image.shape[1:]), shifts)
    wrong = torch.zeros(len(shifts), dtype=torch.bool)
    for before, window, after in zip(still, windows, restorer.estimate(moved, top=top), strict=True):
        wrong |= (restorer.undo(moved, after) != window).flatten(1).any(1)
        wrong |= (after.confidence != before.confidence) | (after.tied != before.tied)
    return int(wrong.sum())


@pytest.mark.parametrize("kind", ["random", "repeated", "constant"])
@pytest.mark.parametrize("top", [1, 3])
def test_one_scene_under_all_its_shifts_is_one_window(restorer, kind, top):
    assert mismatches(restorer, scene(kind), top) == 0


def test_the_check_catches_a_scorer_that_is_not_equivariant():
    assert mismatches(Restorer(FirstOfEquals(), coordinates=Scene(WINDOW)), scene("random")) > 0


def test_verify_moves_the_whole_scene(restorer):
    result = unshift.verify(restorer, scene("random"))
    assert result.exact
    assert result.moves == SIZE[0] * SIZE[1]
    assert not unshift.verify(Restorer(FirstOfEquals(), coordinates=Scene(WINDOW)), scene("random")).exact


def test_the_window_is_cut_out_where_the_shift_says(restorer):
    image = scene("random")
    estimate = restorer.estimate(image)
    (row, column), (height, width) = estimate.shift[0].tolist(), WINDOW
    twice = image.repeat(1, 1, 2, 2)  # a window may wrap around
    assert torch.equal(restorer(image), twice[:, :, row : row + height, column : column + width])


def test_scenes_may_have_any_larger_size(restorer):
    for size in ((8, 9), (18, 22), (31, 17)):
        assert restorer(torch.rand(2, 1, *size)).shape == (2, 1, *WINDOW)
    several = [torch.rand(1, 12, 13), torch.rand(1, 20, 15)]
    assert [tuple(window.shape) for window in restorer(several)] == [(1, *WINDOW)] * 2
    assert len(restorer.estimate(several, top=2)) == 2


def test_a_window_goes_back_into_its_scene(restorer):
    image = scene("random")
    estimate = restorer.estimate(image)
    back = restorer.redo(torch.ones(1, 1, *WINDOW), estimate, size=SIZE)
    assert back.shape == image.shape
    assert torch.equal(restorer.undo(back, estimate), torch.ones(1, 1, *WINDOW))
    assert int(back.sum()) == WINDOW[0] * WINDOW[1]
    whole = apply(image, -estimate.shift)
    assert torch.equal(restorer.redo(whole, estimate), image)  # a whole scene is moved as it is


def test_pillow_images_and_arrays_come_back_as_windows(restorer):
    pixels = (255 * scene("random")[0, 0]).to(torch.uint8).numpy()
    window = restorer(pixels)
    assert window.shape == WINDOW
    for mode in ("L", "P", "I;16", "RGB"):
        assert np.array(restorer(Image.fromarray(pixels).convert(mode))).shape[:2] == WINDOW
    assert np.array_equal(np.array(restorer(Image.fromarray(pixels))), window)


def test_the_best_positions_are_chosen_by_non_maximum_suppression():
    image = torch.zeros(1, 1, 24, 24)
    image[0, 0, 3, 4], image[0, 0, 4, 5], image[0, 0, 15, 20] = 1.0, 0.9, 0.8

    class Brightness(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return (1000 * images[:, 0]).round().long()

    found = Restorer(Brightness(), coordinates=Scene((8, 8))).estimate(image, top=2)
    assert [one.shift.tolist() for one in found] == [[[3, 4]], [[15, 20]]]  # not (4, 5), which is next to the first
    whole = Restorer(Brightness()).estimate(image, top=3)
    assert [one.shift.tolist() for one in whole][1] == [[15, 20]]  # without a window, only what touches is near


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda r: r(torch.rand(1, 1, 7, 22)), "8x9.*7x22"),
        (lambda r: r.estimate(scene("random"), top=0), "top.*got 0"),
        (lambda r: r.estimate(scene("random"), top=True), "top"),
        (lambda r: r.estimate(scene("random"), top=99), "99 positions.*18x22"),
        (lambda r: r.redo(torch.ones(1, 1, *WINDOW), r.estimate(scene("random"))), "size"),
        (lambda r: r.redo(torch.ones(1, 1, 3, 3), r.estimate(scene("random")), size=SIZE), "8x9.*3x3"),
        (lambda r: Restorer(r.scorer).redo(scene("random"), r.estimate(scene("random")), size=(9, 9)), "size"),
        (lambda r: Restorer(r.scorer, coordinates=Turns("mirror")).estimate(scene("random"), top=2), "top.*mirror"),
    ],
)
def test_wrong_calls_are_refused(restorer, wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong(restorer)


@pytest.mark.slow  # the kind "scene" of test_export.py runs the same graph in PyTorch
def test_a_graph_cuts_out_the_same_window_for_its_classifier(restorer, tmp_path):
    graphs = pytest.importorskip("graphs")  # needs onnxruntime
    classifier, images = nn.Sequential(nn.Flatten(), nn.Linear(WINDOW[0] * WINDOW[1], 2)), torch.rand(2, 1, 20, 16)
    unshift.export(restorer, tmp_path / "scenes.onnx", size=(20, 16), classifier=classifier)
    found = graphs.run(graphs.session((tmp_path / "scenes.onnx").read_bytes()), images)
    assert torch.equal(found["restored"], restorer(images))
    assert torch.equal(found["shift"], restorer.estimate(images).shift)
    assert found["logits"].shape == (2, 2)


# --- training ---


@pytest.mark.parametrize("background", ["plain", "noise", "clutter"])
def test_the_object_is_at_the_pose(objects, background):
    make = scenes.Scenes(SIZE, WINDOW, (1, *WINDOW), background, value=0.0)
    made, pose = make.posed(objects, torch.Generator().manual_seed(0))
    assert made.shape == (len(objects), 1, *SIZE)
    window = scenes.cut(made, pose.shift, WINDOW)
    assert bool((window[objects > 100] >= 200 / 255 - 1e-6).all())  # brighter than the background
    again = make(objects, torch.Generator().manual_seed(0))
    assert torch.equal(again[:, :, : WINDOW[0], : WINDOW[1]], window)  # the window is rolled to 0
    assert len({tuple(place) for place in pose.shift.tolist()}) > 30
    assert bool(again[:, :, WINDOW[0] :].any()) == (background != "plain")


def test_objects_without_a_plain_background_are_opaque(objects):
    make = scenes.Scenes(SIZE, WINDOW, (1, *WINDOW), "noise")
    found = make(objects, torch.Generator().manual_seed(0))[:, :, : WINDOW[0], : WINDOW[1]]
    assert torch.equal(found, objects.float() / 255)


def test_clutter_is_made_of_other_objects():
    marked = torch.arange(1, 5).view(4, 1, 1, 1).expand(4, 1, 8, 8) / 10
    found = scenes.clutter(marked, (16, 16), 0.0, torch.Generator().manual_seed(0), pieces=3)
    for number, behind in enumerate(found):
        shown = set(behind.unique().tolist()) - {0.0}
        assert shown
        assert float(marked[number, 0, 0, 0]) not in shown


def test_backgrounds_from_a_folder(tmp_path, objects):
    with pytest.raises(ValueError, match="no image files"):
        scenes.Scenes(SIZE, WINDOW, (1, *WINDOW), tmp_path)
    Image.fromarray(np.full((40, 12), 77, dtype=np.uint8)).save(tmp_path / "wall.png")  # narrower than the scene
    found = scenes.Scenes(SIZE, WINDOW, (1, *WINDOW), tmp_path)(objects, torch.Generator().manual_seed(0))
    assert bool(((found[:, :, WINDOW[0] :] - 77 / 255).abs() < 1e-6).all())


def test_the_plain_background_is_the_most_common_border(objects):
    assert scenes.plain_background([objects]) == 0.0
    assert scenes.plain_background([255 - objects]) == 1.0
    assert scenes.plain_background([torch.rand(16, 3, 8, 8)]) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coordinates": Scene((9, 9))}, "9x9.*8x9"),
        ({"coordinates": Scene(WINDOW), "scene": (8, 8)}, "8x9.*8x8"),
        ({"coordinates": Scene(WINDOW), "background": "stars"}, "stars"),
        ({"scene": (32, 32)}, "scene"),
    ],
)
def test_wrong_options_of_fit_are_refused(objects, options, message):
    with pytest.raises(ValueError, match=message):
        quick(objects, **options)


def test_fit_finds_objects_in_scenes_of_other_sizes(objects, tmp_path):
    net = ShiftEstimator(1, channels=(4, 1), kernel_size=(9, 9), bias=True)
    options = {"coordinates": Scene(WINDOW), "scene": SIZE, "epochs": 20, "learning_rate": 0.02}
    torch.manual_seed(0)
    restorer = quick(objects, ShiftEstimator(**net.describe()), **options)
    assert restorer.metadata["scenes"] == {"size": list(SIZE), "background": "clutter", "plain": 0.0}
    assert restorer.metadata["validation"]["within_1"] > 0.5
    make = scenes.Scenes((30, 26), WINDOW, (1, *WINDOW), "plain", value=0.0)
    larger, pose = make.posed(objects, torch.Generator().manual_seed(3))
    wrong_by = Pose(restorer.estimate(larger).shift - pose.shift)
    off = restorer.coordinates.distance(wrong_by, (30, 26))
    assert float((off <= 1).double().mean()) > 0.5
    restorer.save(tmp_path / "scenes.safetensors")
    loaded = unshift.load(tmp_path / "scenes.safetensors")
    assert loaded.coordinates.window == WINDOW
    assert torch.equal(loaded(larger), restorer(larger))


# --- the shipped restorer ---


@pytest.fixture(scope="module")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    test = dataset("mnist-10k", "test")
    return to_float(prepare(test.images[:200], {"resize": [32, 32]})), test.labels[:200]


def scenes_of(digits: torch.Tensor, size: tuple[int, int], pieces: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a scene of each digit among pieces of other digits, and the positions of the digits."""
    clutter = functools.partial(scenes.clutter, pieces=pieces)
    made, pose = scenes.Scenes(size, (32, 32), (1, 32, 32), clutter, value=0.0).posed(
        digits, torch.Generator().manual_seed(0)
    )
    return made, pose.shift


@pytest.mark.parametrize("count", [48, pytest.param(4096, marks=pytest.mark.slow)])
def test_a_digit_in_a_scene_is_one_window_under_its_shifts(digits, count):
    """Check all 4,096 circular shifts of a 64x64 scene, or a random sample."""
    restorer, (made, _) = unshift.load("mnist-scene"), scenes_of(digits[0][:20], (64, 64), 6)
    order = torch.randperm(4096, generator=torch.Generator().manual_seed(0))[:count]
    window = restorer(made[:1])
    for shifts in all_shifts((64, 64))[order].split(256):
        moved = apply(made[:1].expand(len(shifts), 1, 64, 64), shifts)
        assert torch.equal(restorer(moved), window.expand(len(shifts), 1, 32, 32))


@pytest.mark.parametrize(("size", "pieces", "count"), [((64, 64), 6, 200), ((64, 64), 0, 200), ((96, 160), 6, 60)])
def test_a_frozen_classifier_reads_digits_in_scenes(digits, size, pieces, count):
    images, labels = digits[0][:count], digits[1][:count]
    made, place = scenes_of(images, size, pieces)
    restorer, classifier = unshift.load("mnist-scene"), classifiers.load("lenet5-mnist")
    best = accuracy(classifier, scenes.cut(made, place, (32, 32)), labels)
    assert accuracy(lambda x: classifier(restorer(x)), made, labels) > best - 0.05
