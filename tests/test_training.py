"""fit: reproducible, resumable after a kill at any moment, and clear about what it cannot use."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from samples import blobs
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import unshift
from unshift import Restorer, ShiftEstimator, apply, fit, training
from unshift.checkpoint import Checkpoint
from unshift.coordinates import Canvas, Centre, Polar, Pose, Ring, Turns
from unshift.evaluation import restoration_rates
from unshift.training_images import shifted_copies

ROOT = Path(unshift.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


@pytest.fixture(scope="module")
def images() -> Tensor:
    return blobs(60, 1, (12, 12))


@pytest.fixture(autouse=True)
def hush():
    """Such short runs do not get past guessing; one test below is about that warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "after one epoch the loss", UserWarning)
        yield


def quick(data, preset="paper", **options) -> Restorer:
    return fit(data, preset, **{"epochs": 3, "batch_size": 16, "progress": False, **options})


def assert_same(one: Restorer, other: Restorer) -> None:
    mine, theirs = one.scorer.state_dict(), other.scorer.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())
    assert one.metadata["history"] == other.metadata["history"]


def differs(one: Restorer, other: Restorer) -> bool:
    theirs = other.scorer.state_dict()
    return any(not torch.equal(tensor, theirs[name]) for name, tensor in one.scorer.state_dict().items())


# --- the same seed, the same weights ------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["paper", "dense", "seam"])
def test_the_same_seed_gives_the_same_weights_and_another_gives_others(images, preset):
    first = quick(images, preset, seed=3)
    torch.manual_seed(99)  # whatever the caller did in between
    torch.rand(7)
    assert_same(quick(images, preset, seed=3), first)
    assert differs(quick(images, preset, seed=4), first)


def test_the_callers_random_state_is_left_alone(images):
    torch.manual_seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    quick(images)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])


def test_training_learns(images):
    restorer = fit(images, "dense", epochs=20, batch_size=8, progress=False)
    losses = [epoch["loss"] for epoch in restorer.metadata["history"]]
    assert losses[-1] < losses[0] - 0.5
    assert restoration_rates(restorer, images).within_1 > 0.3  # chance: 9 of 144


# --- what images may come in --------------------------------------------------------------------------


def test_every_container_of_images_gives_the_same_weights(images):
    pixels = (255 * images).round().to(torch.uint8)
    labels = torch.arange(len(pixels))
    wanted = quick(pixels)
    assert_same(quick(pixels.float() / 255), wanted)
    assert_same(quick(pixels.numpy()), wanted)
    assert_same(quick(pixels.numpy()[:, :, ::-1][:, :, ::-1]), wanted)  # not contiguous
    assert_same(quick(TensorDataset(pixels)), wanted)
    assert_same(quick(TensorDataset(pixels, labels)), wanted)
    assert_same(quick([(image, 7) for image in pixels]), wanted)
    assert_same(quick([image.numpy() for image in pixels]), wanted)
    assert_same(quick(DataLoader(TensorDataset(pixels, labels), batch_size=7)), wanted)


@pytest.mark.parametrize("size", [(16,), (6, 7, 5)])
def test_signals_and_volumes(size):
    restorer = quick(blobs(20, 2, size), epochs=1)
    assert restorer(blobs(3, 2, size)).shape == (3, 2, *size)
    assert restorer.trained_on == {"size": list(size), "channels": 2, "range": restorer.trained_on["range"]}


def test_the_images_are_not_changed(images):
    before = images.clone()
    quick(images)
    assert torch.equal(images, before)


# --- what they must not be ----------------------------------------------------------------------------


def test_one_image_is_refused(images):
    with pytest.raises(ValueError, match="fit needs at least two images, got 1"):
        quick(images[:1])
    with pytest.raises(ValueError, match="fit needs at least two images, got 0"):
        quick(images[:0])
    with pytest.raises(ValueError, match="fit needs at least two images, got 0"):
        quick(TensorDataset(images[:0]))


def test_constant_images_are_refused_and_counted(images):
    dull = torch.cat([images[:10], torch.ones(2, 1, 12, 12), images[10:], torch.zeros(1, 1, 12, 12)])
    with pytest.raises(ValueError, match=r"3 of 63 images are constant \(the first is number 10\)"):
        quick(dull)


def test_an_image_of_constant_channels_is_constant():
    colours = blobs(10, 3, (8, 8))
    colours[4] = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)
    with pytest.raises(ValueError, match=r"1 of 10 images are constant \(the first is number 4\)"):
        quick(colours)


def test_shifted_copies_are_refused_and_counted(images):
    copies = apply(images[:4], torch.tensor([[0, 1], [3, 0], [-2, 5], [11, 11]]))
    with pytest.raises(ValueError, match=r"4 of 64 images are shifted copies of others \(the first is number 60\)"):
        quick(torch.cat([images, copies]))


def test_plain_repeats_do_no_harm(images):
    assert quick(torch.cat([images, images[:5]])).metadata["train_images"] == 65 - round(6.5)


def test_unusable_images_are_dropped_when_told(images):
    copies = apply(images[:4], torch.ones(4, 2, dtype=torch.int64))
    mixed = torch.cat([images[:7], torch.ones(2, 1, 12, 12), images[7:], copies])
    assert_same(quick(mixed, drop_unusable=True), quick(images))


def test_too_few_usable_images_are_refused(images):
    nothing = torch.cat([images[:1], torch.ones(3, 1, 12, 12), apply(images[:1], torch.tensor([[1, 1]]))])
    with pytest.raises(ValueError, match="fewer than two of the 5 images are usable"):
        quick(nothing, drop_unusable=True)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_shifted_copies_against_brute_force(data):
    height, width, channels = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
    count = data.draw(st.integers(0, 8))
    values = data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count).flatmap(
        lambda _: st.lists(st.integers(0, 1), min_size=(n := count * channels * height * width), max_size=n)
    ))  # fmt: skip
    images = torch.tensor(values, dtype=torch.uint8).view(count, channels, height, width)
    wanted, firsts = [], []
    for j, image in enumerate(images):
        shifts = [image.roll((a, b), (1, 2)) for a in range(height) for b in range(width)]
        first = next((f for f in firsts if any(torch.equal(images[f], moved) for moved in shifts)), None)
        if first is None:
            firsts.append(j)
        elif not torch.equal(images[first], image):
            wanted.append(j)
    assert shifted_copies(images) == wanted
    assert shifted_copies(images.float() - 0.5) == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "cheap"}, "no preset 'cheap'; there are paper, dense, seam, or give a ShiftEstimator"),
        ({"preset": "custom"}, "no preset 'custom'"),
        ({"epochs": 0}, "must be positive, got 0, 16, 5"),
        ({"batch_size": 0}, "must be positive, got 3, 0"),
        ({"patience": 0}, "must be positive"),
        ({"learning_rate": 0.0}, "must be positive"),
        ({"learning_rate": -1.0}, "must be positive"),
        ({"learning_rate": float("nan")}, "must be positive"),
        ({"validation": 60}, "validation must leave images to train on: got 60 of 60"),
        ({"validation": 0}, "validation must leave images to train on: got 0 of 60"),
        ({"validation": -3}, "validation must leave"),
        ({"validation": 1.0}, "a share between 0 and 1, got 1.0"),
        ({"bits": 1}, "bits"),
        ({"preset": ShiftEstimator(3)}, r"wants 3 channel\(s\), got 1"),
        ({"learning_rate": 1e30}, "the loss became (nan|inf): try a lower learning rate than 1e"),
    ],
)
def test_bad_arguments(images, options, message):
    with pytest.raises(ValueError, match=message):
        quick(images, **options)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "must be a tensor, an array, a Dataset or a DataLoader, got int"),
        (torch.rand(4, 4), "1, 2 or 3 spatial axes"),
        (torch.rand(4, 1, 5, 5, dtype=torch.complex64), "must be real"),
        (torch.full((4, 1, 5, 5), torch.nan), "must be finite"),
        ([torch.rand(1, 5, 5), torch.rand(1, 5, 6)], "differ in shape"),
    ],
)
def test_bad_images(data, message):
    with pytest.raises(ValueError, match=message):
        quick(data)


# --- a network of one's own, early stopping, metadata -------------------------------------------------


def test_a_custom_estimator_is_trained_on_a_copy(images):
    mine = ShiftEstimator(1, channels=(2, 1), kernel_size=(5, 5))
    before = {name: tensor.clone() for name, tensor in mine.state_dict().items()}
    first = quick(images, mine)
    assert all(torch.equal(tensor, before[name]) for name, tensor in mine.state_dict().items())
    assert mine.training
    assert all(parameter.grad is None for parameter in mine.parameters())
    assert first.metadata["preset"] == "custom"
    assert first.scorer.describe()["network"] == mine.describe()
    assert_same(quick(images, mine), first)
    with torch.no_grad():
        mine.local[0].filter.weight.mul_(2)
    assert differs(quick(images, mine), first)  # it starts from the weights given


def test_training_stops_early_and_keeps_the_best_epoch(images, monkeypatch):
    kept = []
    real = training.quantise

    def spy(estimator, sample, **options):
        kept.append(estimator)
        return real(estimator, sample, **options)

    monkeypatch.setattr(training, "quantise", spy)
    restorer = quick(images, "dense", epochs=60, learning_rate=0.05, patience=2)
    history = [epoch["validation_loss"] for epoch in restorer.metadata["history"]]
    best = min(range(len(history)), key=history.__getitem__)
    assert restorer.metadata["epochs_run"] == len(history) == best + 3 < 60
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        scores = kept[0](images[order[:6]]).flatten(1)
    loss = torch.nn.functional.cross_entropy(scores, torch.zeros(6, dtype=torch.int64))
    assert float(loss) == pytest.approx(history[best], abs=1e-5)


def test_the_metadata_tell_how_it_was_made(images):
    restorer = quick(images, data_name="dots", seed=2, validation=10)
    found = restorer.metadata
    assert json.loads(json.dumps(found)) == found
    assert (restorer.trained_on["size"], restorer.trained_on["channels"]) == ([12, 12], 1)
    wanted = {
        **{"preset": "paper", "data": "dots", "size": [12, 12], "train_images": 50, "epochs": 3, "epochs_run": 3},
        **{"batch_size": 16, "learning_rate": training.RECIPES["paper"]["learning_rate"], "patience": 5, "seed": 2},
    }
    assert {key: found[key] for key in wanted} == wanted
    assert found["validation"]["images"] == 10
    assert len(found["history"]) == 3


def test_the_rates_are_those_of_the_integers_on_images_never_trained_on(images):
    restorer = quick(images, validation=0.2)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    assert restorer.metadata["validation"] == restoration_rates(restorer, images[order[:12]]).as_dict()


def test_guessing_is_warned_of(images):
    with pytest.warns(UserWarning, match="still that of guessing"):
        quick(images, learning_rate=1e-9, batch_size=1)


# --- what it tells meanwhile --------------------------------------------------------------------------


def test_where_there_is_no_terminal_every_epoch_is_a_line(images, capfd):
    restorer = quick(images, progress=True)
    out, errors = capfd.readouterr()
    assert out == ""
    assert "\r" not in errors
    lines = errors.splitlines()
    for number, epoch in enumerate(restorer.metadata["history"], 1):
        (line,) = [line for line in lines if f"epoch {number}:" in line]
        assert re.fullmatch(
            rf"fit paper: {4 * number}/12 batches, \d+ s(, about \d+ s left)?; "
            rf"epoch {number}: loss {epoch['loss']:.3f}, held out {100 * epoch['exact']:.1f}% exact",
            line,
        )
    assert lines[-1].startswith("fit: ")


def test_lines_reach_a_file_while_the_work_goes_on(images, tmp_path):
    """As in a job's log: what was told before a kill is in the file."""
    code = (
        "import sys, os, torch, unshift\n"
        f"sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "from samples import blobs\n"
        "def die(images, generator, seen=[]):\n"
        "    seen.append(1)\n"
        "    if len(seen) == 10: os._exit(9)\n"
        "    return images\n"
        "unshift.fit(blobs(60, 1, (12, 12)), epochs=3, batch_size=16, augment=[die])\n"
    )
    with (tmp_path / "log").open("w") as log:
        run = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, stdout=log, stderr=log, check=False)
    assert run.returncode == 9
    assert [line.split(";")[1][:9] for line in (tmp_path / "log").read_text().splitlines()] == [
        " epoch 1:",
        " epoch 2:",
    ]


def test_nothing_is_told_when_told_so(images, capfd):
    quick(images, progress=False)
    assert capfd.readouterr() == ("", "")


# --- other coordinates --------------------------------------------------------------------------------

KINDS = {
    "margin": (Canvas(1, 0.25), 1, (8, 8), "paper"),
    "ring": (Ring(), 1, (3, 12), "paper"),
    "ring, local filters": (Ring(0), 2, (12, 5), "seam"),
    "mirror": (Turns("mirror"), 1, (7, 9), "seam"),
    "half": (Turns("half"), 1, (7, 9), "paper"),
    "quarter": (Turns("quarter"), 2, (9, 9), "dense"),
    "flips": (Turns("flips"), 1, (9, 9), "paper"),
    "strand": (Turns("strand"), 4, (14,), "paper"),
    "cube": (Turns("cube"), 1, (4, 4, 4), "paper"),
    "centre, corners": (Centre(), 1, (10, 10), "paper"),
    "centre, pixels": (Centre(), 1, (9, 9), "dense"),
    "polar": (Polar(12, angles=8, radii=4), 1, (12, 12), "dense"),
    "smaller canvases": (Polar(12, angles=4, radii=2), 1, (12, 12), "paper"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_coordinates_is_learnt_and_exact(kind):
    coordinates, channels, size, preset = KINDS[kind]
    images = blobs(40, channels, size) + 0.01 * torch.rand(40, channels, *size)
    restorer = quick(images, preset, coordinates=coordinates, epochs=2)
    assert restorer.trained_on["size"] == list(size)
    assert restorer.trained_on["channels"] == channels
    assert restorer.metadata["coordinates"] == coordinates.describe()
    low, high = restorer.trained_on["range"]
    assert 0 <= low < high <= 0.6
    assert unshift.verify(restorer, images[:2], brute_force=True).exact
    assert_same(quick(images, preset, coordinates=coordinates, epochs=2), restorer)


def test_turns_are_learnt():
    """Upright letters, turned at random: most are turned back, by chance a quarter were."""
    torch.manual_seed(1)
    shape = torch.zeros(10, 10)
    shape[2:8, 3], shape[2, 3:7], shape[4, 3:6] = 1, 1, 1  # an F
    letters = (shape + 0.3 * torch.rand(120, 1, 10, 10)).clamp(0, 1)
    restorer = fit(letters, "dense", coordinates=Turns("quarter"), epochs=12, batch_size=8, progress=False)
    pose = restorer.coordinates.draw((10, 10), 120, None, torch.Generator().manual_seed(0))
    found = restorer.estimate(restorer.coordinates.move(letters, pose))
    assert ((found.turn == pose.turn) & (found.shift == pose.shift % 10).all(1)).float().mean() > 0.9


# --- augmentations and averages -----------------------------------------------------------------------


def moved_for_real(images, generator):
    """A move that an augmentation does itself: the target is then its pose."""
    pose = Pose(torch.randint(12, (len(images), 2), generator=generator))
    return apply(images, pose.shift), pose


def brightened(images, generator):
    return images * (0.5 + torch.rand(len(images), 1, 1, 1, generator=generator))


def test_augmentations_follow_from_the_seed(images):
    first = quick(images, augment=["mirror", brightened])
    assert first.metadata["augment"] == ["mirror", "brightened"]
    assert_same(quick(images, augment=["mirror", brightened]), first)
    assert differs(quick(images, augment=["mirror", brightened], seed=1), first)
    assert differs(quick(images, augment=["mirror"]), first)
    assert differs(quick(images), first)


def test_a_move_done_for_real_is_the_same_example(images):
    """Equivariance: whether the images are moved and the target with them, or neither, the losses are the same."""
    still, moved = quick(images, "dense"), quick(images, "dense", augment=[moved_for_real])
    for one, other in zip(still.metadata["history"], moved.metadata["history"], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-3)
    blind = quick(images, "dense", augment=[lambda images, generator: moved_for_real(images, generator)[0]])
    assert blind.metadata["history"][-1]["loss"] > still.metadata["history"][-1]["loss"]  # the pose is what tells


def test_rotations_by_any_angle_are_learnt_from(images):
    polar = Polar(12, angles=8, radii=4)

    def turned(images, generator):
        pose = polar.draw((12, 12), len(images), None, generator)
        return polar.move(images, pose), pose

    restorer = quick(images, "dense", coordinates=polar, augment=[turned])
    assert unshift.verify(restorer, images[:3], brute_force=True).exact


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (["upside-down"], "no augmentation named 'upside-down'; there are mirror, windows, colour, or give a function"),
        ([moved_for_real, lambda *args: moved_for_real(*args)], "only one augmentation may move the images"),
    ],
)
def test_augmentations_that_make_no_sense(images, augment, message):
    with pytest.raises(ValueError, match=message):
        quick(images, augment=augment)


def test_an_average_of_the_weights_is_used_and_saved(images):
    plain, averaged = quick(images, "dense", epochs=6), quick(images, "dense", epochs=6, average=0.5)
    assert averaged.metadata["average"] == 0.5
    assert plain.metadata["average"] is None
    assert differs(averaged, plain)
    # The same steps were taken: only what was kept of them differs.
    for one, other in zip(averaged.metadata["history"], plain.metadata["history"], strict=True):
        assert one["loss"] == other["loss"]
    assert averaged.metadata["history"] != plain.metadata["history"]
    assert_same(quick(images, "dense", epochs=6, average=0.5), averaged)


@pytest.mark.parametrize("average", [0.0, 1.0, -0.5, 2, float("nan")])
def test_an_average_that_is_none_is_refused(images, average):
    with pytest.raises(ValueError, match="average must lie between 0 and 1"):
        quick(images, average=average)


# --- memory -------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts otherwise elsewhere")
@pytest.mark.slow
@pytest.mark.parametrize("what", ["quantise", "fit"])
def test_photos_take_bounded_memory(what):
    """200 photos of 3 x 96 x 96: all maps of a layer at once would take gigabytes."""
    code = {
        "quantise": "unshift.quantise(unshift.ShiftEstimator.preset('seam', 3, (96, 96)), images)",
        "fit": "unshift.fit(images, 'seam', epochs=1, batch_size=8, validation=40, progress=False)",
    }[what]
    source = (
        "import resource, torch, unshift\n"
        "torch.set_num_threads(1)\n"
        "images = torch.rand(200, 3, 96, 96)\n"
        f"{code}\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    run = subprocess.run([sys.executable, "-c", source], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert int(run.stdout) < 600


# --- checkpoints --------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of the process."""


class Mortal(Checkpoint):
    """A checkpoint after every step; the process dies after (or in) save number ``life``."""

    life, in_save = 0, False

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options, every_seconds=0.0)
        self.saves = 0

    def save(self, run) -> None:
        self.saves += 1
        if self.saves == self.life and self.in_save:
            raise Killed
        super().save(run)
        if self.saves == self.life:
            raise Killed


HOW = {
    "paper": {},
    "seam": {"preset": "seam"},
    "average": {"preset": "dense", "average": 0.5},
    "augmented": {"augment": ["mirror", moved_for_real], "average": 0.9},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("in_save", [False, True])
def test_a_run_stopped_at_any_save_goes_on_to_the_same_weights(images, how, in_save, tmp_path, monkeypatch):
    options = {"epochs": 2, **HOW[how]}
    wanted = quick(images, **options)  # 4 steps an epoch: 8 saves
    path = tmp_path / "state"
    for life in range(1, 9):
        with monkeypatch.context() as patch:
            patch.setattr(training, "Checkpoint", Mortal)
            patch.setattr(Mortal, "life", life)
            patch.setattr(Mortal, "in_save", in_save)
            with pytest.raises(Killed):
                quick(images, **options, checkpoint=path)
        assert path.exists() == (life > 1 or not in_save)
        assert_same(quick(images, **options, checkpoint=path, resume=True), wanted)
        assert not path.exists()


def test_a_run_stopped_again_and_again_gets_there(images, tmp_path, monkeypatch):
    wanted = quick(images, epochs=2)
    monkeypatch.setattr(training, "Checkpoint", Mortal)
    monkeypatch.setattr(Mortal, "life", 1)
    stops = 0
    while True:
        try:
            found = quick(images, epochs=2, checkpoint=tmp_path / "state", resume=True)
            break
        except Killed:
            stops += 1
    assert stops == 8
    assert_same(found, wanted)


def test_a_checkpoint_changes_nothing(images, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "Checkpoint", functools.partial(Checkpoint, every_seconds=0.0))
    assert_same(quick(images, checkpoint=tmp_path / "deep" / "state"), quick(images))
    assert list((tmp_path / "deep").iterdir()) == []


def stopped(images: Tensor, path: Path, monkeypatch, **options) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(training, "Checkpoint", Mortal)
        patch.setattr(Mortal, "life", 2)
        with pytest.raises(Killed):
            quick(images, checkpoint=path, **options)


def test_a_write_that_fails_leaves_the_checkpoint_before_it(images, tmp_path, monkeypatch):
    path = tmp_path / "state"
    stopped(images, path, monkeypatch)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            quick(images, checkpoint=path, resume=True)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert_same(quick(images, checkpoint=path, resume=True), quick(images))


def test_without_resume_a_checkpoint_is_overwritten(images, tmp_path, monkeypatch):
    stopped(images, tmp_path / "state", monkeypatch, seed=7)
    assert_same(quick(images, checkpoint=tmp_path / "state"), quick(images))


def test_to_resume_without_a_checkpoint_is_to_start(images, tmp_path):
    assert_same(quick(images, checkpoint=tmp_path / "state", resume=True), quick(images))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"epochs": 4}, "epochs"),
        ({"batch_size": 8}, "batch_size"),
        ({"learning_rate": 0.5}, "learning_rate"),
        ({"patience": 2}, "patience"),
        ({"data_name": "other"}, "data"),
        ({"validation": 9}, "train_images"),
        ({"preset": "dense"}, "learning_rate, network, preset"),
        ({"average": 0.9}, "average"),
        ({"augment": ["mirror"]}, "augment"),
        ({"coordinates": Turns("half")}, "coordinates"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(images, changes, named, tmp_path, monkeypatch):
    stopped(images, tmp_path / "state", monkeypatch)
    with pytest.raises(ValueError, match=rf"state: a checkpoint of another run \([\w, ]*{named}[\w, ]* differ\)"):
        quick(images, **changes, checkpoint=tmp_path / "state", resume=True)


def test_a_checkpoint_of_other_images_is_refused(images, tmp_path, monkeypatch):
    stopped(images, tmp_path / "state", monkeypatch)
    with pytest.raises(ValueError, match="a checkpoint of another run"):
        quick(images.flip(3), checkpoint=tmp_path / "state", resume=True)


@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "foreign", "folder"])
def test_a_damaged_checkpoint_is_refused_by_name(images, damage, tmp_path, monkeypatch):
    path = tmp_path / "state"
    stopped(images, path, monkeypatch)
    data = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "foreign":
        quick(images).save(path)
    else:
        path.write_bytes({"cut": data[:-9], "noise": b"noise" * 99, "empty": b""}[damage])
    with pytest.raises(ValueError, match=r"state: not a readable checkpoint .*; delete it to start over"):
        quick(images, checkpoint=path, resume=True)


@pytest.mark.parametrize("part", ["weights.", "best.", "optimizer.", "averaged."])
def test_a_checkpoint_without_a_part_of_its_state_is_refused(images, part, tmp_path, monkeypatch):
    """Above all the optimiser's moments: without them the run would go on, to other weights."""
    path = tmp_path / "state"
    stopped(images, path, monkeypatch, average=0.9)
    with safe_open(str(path), framework="pt") as file:
        kept = {name: file.get_tensor(name) for name in file.keys() if not name.startswith(part)}  # noqa: SIM118
        save_file(kept, tmp_path / "less", file.metadata())
    (tmp_path / "less").replace(path)
    with pytest.raises(ValueError, match=r"state: not a readable checkpoint .*; delete it to start over"):
        quick(images, checkpoint=path, resume=True, average=0.9)


# --- killed, really -----------------------------------------------------------------------------------

# One process that has imported everything; each line it reads is a command line of `unshift`, run in a
# fork of it, so that a kill does not cost a start. It trains nothing itself: autograd dislikes forks.
NURSERY = """
import json, os, sys
import torch
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.zeros(2))
weight.grad = torch.zeros(2)
torch.optim.Adam([weight]).step()  # its first step imports a great deal
import unshift.cli, unshift.data.sources
from unshift.checkpoint import Checkpoint
Checkpoint.__init__.__defaults__ = (0.0,)  # a checkpoint after every step, so that kills land in saves
for line in sys.stdin:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        unshift.cli.app(json.loads(line), prog_name="unshift")
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def assert_all_files_load(folder: Path) -> None:
    """A kill may leave a hidden half file behind; what bears a name is whole."""
    for path in folder.iterdir():
        if path.name == "out.safetensors":
            unshift.load(path)
        elif path.name == "out.safetensors.checkpoint":
            with safe_open(str(path), framework="pt") as file:
                assert all(len(file.get_tensor(name).shape) < 9 for name in file.keys())  # noqa: SIM118
                json.loads(file.metadata()["unshift-checkpoint"])
        else:
            assert path.name.startswith(".out.safetensors."), path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.slow
def test_twenty_kills_at_random_moments_and_the_same_weights(tmp_path, threads):
    """3 kills of `python -m unshift.cli fit`, 17 of forks that run the same command."""
    dice = random.Random(0)
    source, folder = tmp_path / "blobs.npy", tmp_path / "run"
    pixels = (400 * blobs(200, 1, (12, 12))).round().to(torch.uint8)
    np.save(source, pixels.numpy())
    folder.mkdir()
    out, state = folder / "out.safetensors", folder / "out.safetensors.checkpoint"
    threads(1)
    wanted = fit(pixels, epochs=30, patience=30, batch_size=16, progress=False)
    command = ["fit", str(source), "--epochs", "30", "--patience", "30", "--batch-size", "16", "--threads", "1"]
    cli = [sys.executable, "-m", "unshift.cli"]
    resume = [*command, "--out", str(out), "--resume"]

    kills = 0
    while kills < 3:
        before = state.stat().st_mtime_ns if state.exists() else 0
        process = subprocess.Popen([*cli, *resume], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None and (not state.exists() or state.stat().st_mtime_ns == before):
            time.sleep(0.01)  # until it trains: a kill during the start is no test
        time.sleep(dice.uniform(0, 0.15))
        process.kill()
        _, errors = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), errors.decode()
        kills += process.returncode != 0
        assert_all_files_load(folder)
        if process.returncode == 0:
            assert_same(unshift.load(out), wanted)
            out.unlink()

    finished = 0
    nursery = subprocess.Popen(
        [sys.executable, "-c", NURSERY], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with nursery:
        while kills < 20 or not finished:
            print(json.dumps(resume), file=nursery.stdin, flush=True)
            child = int(nursery.stdout.readline())
            if kills < 20:
                time.sleep(dice.uniform(0.05, 0.8))
                with contextlib.suppress(ProcessLookupError):  # it may have finished
                    os.kill(child, signal.SIGKILL)
            code = int(nursery.stdout.readline())
            assert code in (0, -signal.SIGKILL)
            kills += code != 0
            assert_all_files_load(folder)
            if code == 0:
                finished += 1
                assert not state.exists()
                assert_same(unshift.load(out), wanted)
                out.unlink()
        nursery.stdin.close()


def test_windows_leave_room_for_the_kernel():
    restorer = unshift.fit(torch.rand(40, 1, 9, 9), augment=["windows"], epochs=2, batch_size=4, progress=False)
    assert restorer.metadata["augment"] == ["windows"]


def test_windows_are_not_for_nets_of_one_size():
    with pytest.raises(ValueError, match=r"nets that take images of any size; this one takes \(9, 9\)"):
        unshift.fit(torch.rand(40, 1, 9, 9), "dense", augment=["windows"])


@pytest.mark.parametrize("validation", [-0.5, 0.0, 1.0, float("nan"), float("inf")])
def test_a_share_is_a_share(validation):
    with pytest.raises(ValueError, match="a share between 0 and 1"):
        unshift.fit(torch.rand(40, 1, 9, 9), validation=validation)


def test_bits_are_checked_before_training():
    with pytest.raises(ValueError, match="bits must be a whole number from 2 to 21, got 30"):
        unshift.fit(torch.rand(40, 1, 9, 9), bits=30)


def test_standardised_photos_are_folded_into_the_net():
    """A seam net trained on standardised pixels takes raw ones: its rates there are those of training."""
    torch.manual_seed(3)
    photos = 0.4 + 0.3 * torch.rand(60, 3, 12, 12).cumsum(2) / 12
    restorer = unshift.fit(photos, "seam", epochs=3, progress=False, seed=1)
    trained = restorer.metadata["history"][-1]["exact"]
    assert abs(restorer.metadata["validation"]["exact"] - trained) <= 0.2
