"""fit: the same seed gives the same weights, and it tells how it went."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys

import fits
import numpy as np
import pytest
import torch
from fits import ENVIRONMENT, ROOT, assert_same, differs, quick
from memory import peak

import unshift
from unshift import ShiftEstimator, fit, training, training_run
from unshift.evaluation import restoration_rates

# --- the same seed, the same weights ---------------------------------------------------------------


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


# --- what they must not be -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "cheap"}, "no preset 'cheap'; there are paper, dense, lines, seam.*, or give a ShiftEstimator"),
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


# --- a network of one's own, early stopping, metadata ----------------------------------------------


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


def test_guessing_is_warned_of_where_fit_is_called(images):
    with pytest.warns(UserWarning, match="still that of guessing") as first:
        quick(images, learning_rate=1e-9, batch_size=1)
    with pytest.warns(UserWarning, match="this is near guessing") as second:
        quick(images, learning_rate=1e-9)
    assert {warning.filename for warning in [*first, *second]} == {fits.__file__}


# --- what it tells meanwhile -----------------------------------------------------------------------


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


# --- memory ----------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts otherwise elsewhere")
@pytest.mark.slow
@pytest.mark.parametrize("what", ["quantise", "fit", "steps"])
def test_photos_take_bounded_memory(what):
    """200 photos of 3 x 96 x 96, and a batch of 16 of 224 x 224: all maps of a layer at once would take gigabytes."""
    code = {
        "quantise": "unshift.quantise(unshift.ShiftEstimator.preset('seam', 3, (96, 96)), images)",
        "fit": "unshift.fit(images, 'seam', epochs=1, batch_size=8, validation=40, progress=False)",
        "steps": "unshift.fit(torch.rand(24, 3, 224, 224), 'seam', epochs=1, batch_size=16, validation=8)",
    }[what]
    source = f"import torch, unshift\ntorch.set_num_threads(1)\nimages = torch.rand(200, 3, 96, 96)\n{code}"
    assert peak("-c", source)[0] < 600


@pytest.mark.parametrize("preset", ["seam", "dense"])
def test_a_step_in_pieces_is_the_same_step(images, preset, monkeypatch):
    """Gradients add up: a batch of 16 that goes through the network 3 at a time, or one by one, moves it as far."""
    whole = quick(images, preset, epochs=2)
    for at_once in (3 * 8 * 144, 1):
        seen = []
        scores = training_run.Run._scores
        watched = lambda run, canvas, net: (seen.append(len(canvas)), scores(run, canvas, net))[1]  # noqa: B023, E731
        with monkeypatch.context() as patched:
            patched.setattr(training_run, "AT_ONCE", at_once)
            patched.setattr(training_run.Run, "_scores", watched)
            pieces = quick(images, preset, epochs=2)
        assert max(seen) == (1 if preset == "seam" or at_once == 1 else 3)
        for one, other in zip(whole.metadata["history"], pieces.metadata["history"], strict=True):
            assert one == pytest.approx(other, rel=1e-4)


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
