"""fit: reproducible weights, recipes, augmentations, all kinds of coordinates, metadata, progress and memory."""

from __future__ import annotations

import json
import logging
import random
import re
import signal
import subprocess
import sys
import threading
import warnings

import fits
import numpy as np
import pytest
import torch
from fits import ENVIRONMENT, assert_same, differs, moved_at_random, peak, quick
from samples import blobs

import unshift
from unshift import ShiftEstimator, fit
from unshift.coordinates import Centre, Padded, Polar, Ring, Turns
from unshift.evaluation import restoration_rates
from unshift.training import fitting, run
from unshift.training.recipes import RECIPES
from unshift.training.start import dequantise

# --- reproducibility, and no effects on the caller's process ---------------------------------------


@pytest.mark.parametrize("preset", ["paper", "seam"])
def test_the_seed_determines_the_weights(images, preset):
    first = quick(images, preset, seed=3, epochs=1)
    torch.manual_seed(99)
    torch.rand(7)
    assert_same(quick(images, preset, seed=3, epochs=1), first)
    assert differs(quick(images, preset, seed=4, epochs=1), first)


def test_fit_leaves_the_process_as_it_was(images):
    def process():
        yield threading.enumerate()
        yield torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()
        yield torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
        yield torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()
        yield sys.stdout, sys.stderr, sys.excepthook, signal.getsignal(signal.SIGINT)
        yield logging.root.level, [*logging.root.handlers], logging.root.manager.disable
        yield [*warnings.filters], warnings.showwarning

    before, content = [*process()], images.clone()
    quick(images, progress=True)
    quick(images, "dense", aligned=False, epochs=1, progress=True, drop_unusable=True)
    assert [*process()] == before
    assert torch.equal(images, content)


def test_a_bar_on_a_terminal_starts_no_thread(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    before = threading.enumerate()
    with unshift.progress.Progress("fit", 3, "steps") as bar:
        bar.update()
        assert threading.enumerate() == before


def test_training_learns(images):
    restorer = fit(images, "dense", epochs=20, batch_size=8, progress=False)
    losses = [epoch["loss"] for epoch in restorer.metadata["history"]]
    assert losses[-1] < losses[0] - 0.5
    assert restoration_rates(restorer, images).within_1 > 0.3  # chance: 9 of 144


# --- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "cheap"}, "'cheap'; there are paper, dense, lines, seam"),
        ({"preset": "custom"}, "'custom'"),
        ({"epoch": 3}, "'epoch'"),
        ({"epochs": 0}, "positive, got 0, 16, 5"),
        ({"batch_size": 0}, "positive, got 3, 0"),
        ({"patience": 0}, "positive"),
        ({"learning_rate": -1.0}, "positive"),
        ({"learning_rate": float("nan")}, "positive"),
        ({"validation": 60}, "got 60 of 60"),
        ({"validation": 0}, "got 0 of 60"),
        ({"validation": -3}, "got -3 of 60"),
        *[({"validation": share}, "share") for share in (-0.5, 0.0, 1.0, float("nan"), float("inf"))],
        ({"bits": 1}, "bits .* got 1"),
        ({"bits": 30}, "bits .* got 30"),
        ({"preset": ShiftEstimator(3)}, r"3 channel\(s\), got 1"),
        ({"learning_rate": 1e30}, "(nan|inf): .* 1e"),
        ({"optimizer": "sgd"}, "'sgd'"),
        *[({"average": decay}, "average") for decay in (0.0, 1.0, -0.5, 2, float("nan"))],
        ({"standardise": True}, "bias=True"),
        ({"augment": ["upside-down"]}, "'upside-down'; there are mirror, windows, colour"),
        ({"augment": [moved_at_random, lambda *args: moved_at_random(*args)]}, "one augmentation"),
        ({"preset": "dense", "augment": ["windows"]}, r"\(12, 12\)"),
    ],
)
def test_invalid_arguments(images, options, message):
    with pytest.raises(TypeError if "epoch" in options else ValueError, match=message):
        quick(images, **options)


def test_a_custom_estimator_is_trained_on_a_copy(images):
    network = ShiftEstimator(1, channels=(2, 1), kernel_size=(5, 5))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    first = quick(images, network)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert network.training
    assert all(parameter.grad is None for parameter in network.parameters())
    assert first.scorer.describe()["network"] == network.describe()
    assert_same(quick(images, network), first)
    with torch.no_grad():
        network.local[0].weight.mul_(2)
    assert differs(quick(images, network), first)  # training starts from the weights given


# --- patience, and what the metadata record --------------------------------------------------------


def test_early_stopping_uses_the_best_epoch_and_reports_it(images, monkeypatch, capfd):
    quantised = []
    quantise = fitting.quantise
    monkeypatch.setattr(
        fitting, "quantise", lambda net, *args, **how: quantised.append(net) or quantise(net, *args, **how)
    )
    restorer = quick(images, "dense", epochs=40, learning_rate=0.05, patience=2, progress=True)
    metadata = restorer.metadata
    losses = [epoch["validation_loss"] for epoch in metadata["history"]]
    best = losses.index(min(losses))
    assert metadata["epochs_run"] == len(losses) < 40
    assert metadata["stopped_early"] is True
    assert metadata["best_epoch"] == best + 1
    lines = capfd.readouterr().err.splitlines()
    assert any(re.search(rf"early after epoch {len(losses)} of 40; .* epoch {best + 1}$", line) for line in lines)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        scores = quantised[0](images[order[:6]]).flatten(1)
    loss = torch.nn.functional.cross_entropy(scores, torch.zeros(6, dtype=torch.int64))
    assert float(loss) == pytest.approx(losses[best], abs=1e-5)


def test_patience_counts_only_the_second_half_of_the_schedule(images):
    """The loss varies while the learning rate is high: such epochs must not end the run."""
    metadata = quick(images, "dense", epochs=20, learning_rate=0.05, patience=2).metadata
    losses = [epoch["validation_loss"] for epoch in metadata["history"]]
    running_best = np.minimum.accumulate(losses)
    worse = [loss > best for loss, best in zip(losses, running_best, strict=True)]
    assert any(all(worse[at : at + 2]) for at in range(9)), "the loss never wandered, so this tests nothing"
    assert metadata["epochs_run"] > 10 + 1


def test_the_metadata_record_the_run(images):
    restorer = quick(images, data_name="dots", seed=2, validation=10)
    metadata = restorer.metadata
    assert json.loads(json.dumps(metadata)) == metadata
    assert (restorer.trained_on["size"], restorer.trained_on["channels"]) == ([12, 12], 1)
    wanted = {
        **{"preset": "paper", "data": "dots", "size": [12, 12], "train_images": 50, "epochs": 3, "epochs_run": 3},
        **{"batch_size": 16, "learning_rate": RECIPES["paper"]["learning_rate"], "patience": 5, "seed": 2},
        "stopped_early": False,
    }
    assert {key: metadata[key] for key in wanted} == wanted
    assert metadata["validation"]["images"] == 10
    assert len(metadata["history"]) == 3
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(2))
    assert metadata["validation"] == restoration_rates(restorer, images[order[:10]]).as_dict()


def test_guessing_is_warned_of_at_the_call(images):
    with pytest.warns(UserWarning, match="after one epoch") as first:
        quick(images, learning_rate=1e-9, batch_size=1, epochs=1)
    with pytest.warns(UserWarning, match="near guessing") as second:
        quick(images, learning_rate=1e-9, epochs=1)
    assert {warning.filename for warning in [*first, *second]} == {fits.__file__}


# --- progress --------------------------------------------------------------------------------------


def test_without_a_terminal_every_epoch_is_a_line(images, capfd):
    restorer = quick(images, progress=True)
    out, errors = capfd.readouterr()
    assert out == ""
    assert "\r" not in errors
    lines = errors.splitlines()
    for number, epoch in enumerate(restorer.metadata["history"], 1):
        (line,) = [line for line in lines if f"epoch {number}:" in line]
        assert line.startswith(f"fit paper: {4 * number}/12 batches, ")
        assert f"{epoch['loss']:.3f}" in line
    assert lines[-1].startswith("fit: ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quick(images, progress=False)
    assert capfd.readouterr() == ("", "")


# --- memory ----------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs elsewhere")
@pytest.mark.slow
@pytest.mark.parametrize("task", ["quantise", "fit", "steps"])
def test_photos_take_bounded_memory(task):
    """200 photos of 3 x 96 x 96, and a batch of 16 of 224 x 224: all maps of a layer at once would take gigabytes."""
    code = {
        "quantise": "unshift.quantise(unshift.ShiftEstimator.preset('seam', 3, (96, 96)), images)",
        "fit": "unshift.fit(images, 'seam', epochs=1, batch_size=8, validation=40, progress=False)",
        "steps": "unshift.fit(torch.rand(24, 3, 224, 224), 'seam', epochs=1, batch_size=16, validation=8)",
    }[task]
    source = f"import torch, unshift\ntorch.set_num_threads(1)\nimages = torch.rand(200, 3, 96, 96)\n{code}"
    assert peak("-c", source)[0] < 600


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator, and Linux's counts of faults")
def test_training_on_long_sequences_faults_few_pages():
    """With the command's allocator, a step on a genome of 16,000 bases reuses its memory: few of its pages fault."""
    source = (
        "import resource, torch\n"
        "from unshift.cli.allocator import raise_mmap_threshold\n"
        "from unshift.network import ShiftEstimator\n"
        "raise_mmap_threshold()\n"
        "torch.set_num_threads(1)\n"
        "network = ShiftEstimator.preset('sequence', 4, (16000,))\n"
        "faults = []\n"
        "for length in range(16000, 16400, 100):\n"
        "    network(torch.rand(2, 4, length)).logsumexp(1).sum().backward()\n"
        "    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)\n"
        "print(faults[-1] - faults[2])\n"
    )
    run = subprocess.run([sys.executable, "-c", source], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert int(run.stdout) < 4000  # without strips: 9,000 to 27,000


@pytest.mark.parametrize("preset", ["seam", "dense"])
def test_a_step_in_pieces_is_the_same_step(images, preset, monkeypatch):
    """Gradients accumulate: a batch of 16 that passes 3 at a time, or one by one, gives the same step."""
    whole = quick(images, preset, epochs=1)
    for values in (3 * 8 * 144, 1):
        sizes, scores = [], run.Run._scores
        with monkeypatch.context() as patch:
            patch.setattr(run, "MAP_VALUES", values)
            patch.setattr(run.Run, "_scores", lambda *args: sizes.append(len(args[1][0])) or scores(*args))  # noqa: B023
            pieces = quick(images, preset, epochs=1)
        assert max(sizes) == (1 if preset == "seam" or values == 1 else 3)
        for one, other in zip(whole.metadata["history"], pieces.metadata["history"], strict=True):
            assert one == pytest.approx(other, rel=1e-4)


# --- coordinates -----------------------------------------------------------------------------------

KINDS = {
    "margin": (Padded(1, 0.25), 1, (8, 8), "paper"),
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


@pytest.mark.filterwarnings("ignore:this restorer may be wrong")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_coordinates_is_learnt_and_exact(kind):
    coordinates, channels, size, preset = KINDS[kind]
    images = blobs(40, channels, size) + 0.01 * torch.rand(40, channels, *size)
    restorer = quick(images, preset, coordinates=coordinates, epochs=1)
    assert restorer.trained_on["size"] == list(size)
    assert restorer.trained_on["channels"] == channels
    assert restorer.metadata["coordinates"] == coordinates.describe()
    low, high = restorer.trained_on["range"]
    assert 0 <= low < high <= 0.6
    checked = unshift.verify(restorer, images[:2])
    assert checked.exact
    assert checked.complete


# --- augmentations and averages --------------------------------------------------------------------


def brightened(images, generator):
    return images * (0.5 + torch.rand(len(images), 1, 1, 1, generator=generator))


def test_augmentations_follow_the_seed(images):
    first = quick(images, augment=["mirror", brightened], epochs=1)
    assert first.metadata["augment"] == ["mirror", "brightened"]
    assert_same(quick(images, augment=["mirror", brightened], epochs=1), first)
    assert differs(quick(images, augment=["mirror"], epochs=1), first)
    quick(images[..., :9, :9], augment=["windows"], epochs=1, batch_size=4, drop_unusable=True)  # 9: a kernel's size


def test_a_moved_image_is_the_same_example(images):
    """Equivariance: moving the images and their targets alike does not change the losses."""
    still, moved = quick(images, "dense"), quick(images, "dense", augment=[moved_at_random])
    for one, other in zip(still.metadata["history"], moved.metadata["history"], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-3)
    blind = quick(images, "dense", augment=[lambda images, generator: moved_at_random(images, generator)[0]])
    assert blind.metadata["history"][-1]["loss"] > still.metadata["history"][-1]["loss"]


def test_an_augmentation_may_rotate_by_any_angle(images):
    polar = Polar(12, angles=8, radii=4)

    def rotated(images, generator):
        pose = polar.draw((12, 12), len(images), None, generator)
        return polar.redo(images, pose), pose

    restorer = quick(images, "dense", coordinates=polar, augment=[rotated])
    assert unshift.verify(restorer, images[:3]).exact


def test_averaged_weights_are_used(images):
    plain, averaged = quick(images, "dense"), quick(images, "dense", average=0.5)
    assert (plain.metadata["average"], averaged.metadata["average"]) == (None, 0.5)
    assert differs(averaged, plain)
    for one, other in zip(averaged.metadata["history"], plain.metadata["history"], strict=True):
        assert one["loss"] == other["loss"]  # the same steps
    assert averaged.metadata["history"] != plain.metadata["history"]


# --- starting from a restorer -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mnist", "cifar10-paper", "cifar10-seam"])
def test_a_network_is_recovered_from_its_integers(name):
    scorer = unshift.load(name).scorer
    size = scorer.size or scorer.calibrated or (48, 48)
    images = blobs(20, scorer.in_channels, tuple(size))
    with torch.no_grad():
        floats = dequantise(scorer)(images)
    integers = scorer(images) * scorer.score_unit
    assert float((floats - integers).abs().mean()) < 0.1 * float(integers.std())  # rounded down, and clamped
    again = unshift.quantise(dequantise(scorer), images)(images).flatten(1)
    regret = integers.flatten(1).amax(1) - integers.flatten(1).gather(1, again.argmax(1, keepdim=True))[:, 0]
    assert float(regret.mean()) < 0.1 * float(integers.std())


def test_training_on_is_never_worse_than_its_start(images):
    start = quick(images, "seam", epochs=3)
    held = {"validation": 40, "epochs": 2, "seed": 5, "progress": False}
    further = fit(images, start=start, **held)
    ruined = fit(images, start=start, learning_rate=50.0, **held)
    assert ruined.metadata["best_epoch"] == 0
    shifted = unshift.apply(images[:8], torch.tensor([[3, 5]] * 8))
    for restorer in (further, ruined):
        assert torch.equal(restorer(shifted), restorer(images[:8]))
    same = (ruined.estimate(images).shift == start.estimate(images).shift).all(1)  # but for new roundings
    assert same.double().mean() > 0.9
    assert further.metadata["preset"] == "start"
    with pytest.raises(ValueError, match="Chain"):
        fit(images, start=unshift.load("mnist-pose"), **held)
