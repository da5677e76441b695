"""The first hour of a new user: photographs of mixed sizes and modes, and every command, logged to files."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from unshift import progress

SILENCE = 10.0
"""Longest time without a line in the log, in seconds."""
START = 15.0
"""Seconds that Python and PyTorch may take to start on a busy machine."""
MODES = ("RGB", "RGB", "RGB", "L", "RGBA", "P", "CMYK")


class Step(NamedTuple):
    """A command, and its time limit in seconds."""

    command: list[object]
    seconds: float


def photograph(generator: np.random.Generator, height: int, width: int) -> Image.Image:
    """Make a photograph: noise of a natural spectrum under a sky that is brighter at the top."""
    down, across = np.fft.fftfreq(2 * height)[:, None], np.fft.rfftfreq(2 * width)[None]
    amplitude = 1 / np.maximum(np.hypot(down, across), 0.5 / max(height, width)) ** 1.1
    common = generator.random(amplitude.shape)
    planes = [
        np.fft.irfft2(amplitude * np.exp(2j * np.pi * (common + 0.05 * generator.random(amplitude.shape))))
        for _ in range(3)
    ]
    pixels = np.stack(planes, -1)[:height, :width]  # a window of a periodic image, so that it has a seam
    pixels = 120 + 55 * (pixels - pixels.mean()) / pixels.std() + 60 * np.linspace(1, -1, height)[:, None, None]
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def make_photographs(folder: Path, count: int = 100, seed: int = 0) -> None:
    """Write photographs of mixed sizes, modes and formats, in two classes."""
    generator = np.random.default_rng(seed)
    for number in range(count):
        height, width = (int(side) for side in generator.integers(90, 260, 2))
        image = photograph(generator, height, width)
        mode = MODES[number % len(MODES)]
        image = image.quantize(64) if mode == "P" else image.convert(mode)
        suffix = ".jpg" if mode in ("RGB", "CMYK") else ".png"
        target = folder / ("hills" if number % 2 else "lakes") / f"{number:03}{suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        image.save(target)


def steps(folder: Path) -> dict[str, Step]:
    """Return the commands of the first hour by name."""
    photos, net = folder / "photos", folder / "net.safetensors"
    return {
        "fit": Step(["fit", photos, "--preset", "seam", "--size", "96", "--epochs", "8", "--out", net], 300),
        "restore": Step(["restore", photos, "--restorer", net, "--out", folder / "restored"], 120),
        "evaluate": Step(["evaluate", photos, "--restorer", net], 90),
        "verify": Step(["verify", photos, "--restorer", net, "--seconds", "30"], 90),
        "export": Step(["export", "--restorer", net, "--out", folder / "net.pt2"], 120),
    }


def failures(step: Step, log: Path) -> list[str]:
    """Run a command with its standard error in ``log`` and its output beside it; return what went wrong."""
    started = last = time.monotonic()
    size, silence = 0, 0.0
    with log.open("wb") as errors, log.with_suffix(".out").open("wb") as output:
        command = [sys.executable, "-m", "unshift", *map(str, step.command)]
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        while process.poll() is None and time.monotonic() - started < 2 * step.seconds:
            time.sleep(0.1)
            now = time.monotonic()
            if log.stat().st_size > size:
                size, last = log.stat().st_size, now
            silence = max(silence, now - last - (0 if size else START))
        process.kill()
        code = process.wait()
    seconds = time.monotonic() - started
    found = [f"exit code {code}: {log.read_text()[-300:]}"] if code else []
    found += [f"took {seconds:.0f} s of {step.seconds:.0f} s"] if seconds > step.seconds else []
    return found + ([f"silent for {silence:.0f} s"] if silence > SILENCE else [])


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_command_on_100_photographs_is_quick_and_never_silent(tmp_path):
    make_photographs(tmp_path / "photos")
    for name, step in steps(tmp_path).items():
        assert failures(step, tmp_path / f"{name}.log") == [], name
    assert "100 images" in (tmp_path / "restore.out").read_text()
    assert ": exact" in (tmp_path / "verify.out").read_text()


def test_a_silent_task_prints_a_sign_of_life(monkeypatch, capsys):
    """A log must never be silent for long."""
    monkeypatch.setattr(progress, "EVERY_SECONDS", -1.5)
    with progress.heartbeat("fit"):
        time.sleep(2.3)
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 3
    assert all(line.startswith("fit: ") for line in lines)
