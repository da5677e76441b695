"""The first hour of a new user, and the script that lives it: ``tests/first_hour.py``."""

from __future__ import annotations

import sys
import time

import first_hour
import pytest
import torch
from PIL import Image
from samples import bits, make_estimator

import unshift
from unshift import Restorer, progress, quantise
from unshift.restorer import Estimate


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_first_hour(tmp_path, capsys):
    """Every command on 100 photographs, with its log in a file: each within its time, none silent for 10 s."""
    code = first_hour.main(tmp_path)
    told = capsys.readouterr().out
    assert code == 0, told
    assert "100 images restored, " in told
    assert ": exact" in told


def test_the_photographs_are_of_mixed_sizes_and_modes(tmp_path):
    first_hour.make_photographs(tmp_path, 14)
    found = [Image.open(path) for path in sorted(tmp_path.rglob("*.*"))]
    assert {image.mode for image in found} == {"RGB", "L", "RGBA", "P", "CMYK"}
    assert len({image.size for image in found}) == 14


@pytest.mark.parametrize("script", ["import time; time.sleep(3)", "raise SystemExit(3)"], ids=["silent", "failing"])
def test_silence_and_failure_are_caught(script, tmp_path, monkeypatch):
    monkeypatch.setattr(first_hour, "SILENCE", 1.0)
    monkeypatch.setattr(first_hour, "START", 0.0)
    monkeypatch.setattr(sys, "executable", _python(tmp_path, script))
    step = first_hour.Step([], 60)
    assert first_hour.follow(step, tmp_path / "x.log").fails(step)


def _python(folder, script: str) -> str:
    file = folder / "python"
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{script}"\n')
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize("size", [(9, 9), (9, 40), (13, 17), (24, 24), (25, 23), (31, 64), (64, 31), (70, 9)], ids=str)
def test_a_line_net_is_exact_at_any_size(size):
    """Its divisors follow from the size by a rule: it was once bound to the size it was calibrated at."""
    torch.manual_seed(0)
    calibrated = make_estimator("seam", 3, (24, 24))
    restorer = Restorer(quantise(calibrated, torch.rand(4, 3, 24, 24)))
    image = torch.rand(1, 3, *size)
    wanted, still = restorer(image), restorer.estimate(image)
    down, right = (torch.randint(n, (40,)) for n in size)
    moved = unshift.apply(image.expand(40, -1, -1, -1), torch.stack([down, right], 1))
    found: Estimate = restorer.estimate(moved)
    restored = restorer.undo(moved, found)
    assert torch.equal(bits(restored), bits(wanted).expand_as(restored))
    assert torch.equal(found.confidence, still.confidence.expand_as(found.confidence))


@pytest.mark.slow
def test_a_batch_costs_no_more_an_image_than_one():
    """``cifar10`` at 512x512 took 0.14 s for one image and 0.24 s each for 64."""
    restorer = unshift.load("cifar10")
    images = torch.rand(16, 3, 512, 512)

    def seconds(batch: torch.Tensor) -> float:
        restorer.estimate(batch)
        taken = []
        for _ in range(3):
            started = time.perf_counter()
            restorer.estimate(batch)
            taken.append(time.perf_counter() - started)
        return min(taken) / len(batch)

    assert seconds(images) < 1.25 * seconds(images[:1])


def test_work_that_tells_nothing_is_told_of(monkeypatch, capsys):
    """A log file never stays silent: a fit of 48 s once wrote nothing."""
    monkeypatch.setattr(progress, "EVERY_SECONDS", -1.5)
    with progress.never_silent(lambda: "fit"):
        time.sleep(2.3)
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 3
    assert all(line.startswith("fit: at work, ") for line in lines)
    with progress.never_silent(lambda: None):
        time.sleep(1.5)
    assert capsys.readouterr().err == ""
