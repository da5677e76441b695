"""The first hour of a new user: a folder of photographs of mixed sizes and modes, every command, logs in files.

    python tests/first_hour.py [FOLDER]

Makes 100 photographs in FOLDER (default: a temporary one), then runs fit, restore, evaluate, verify and export on them,
each with its standard error in a file. Each must end well, within its time, and say where it is at least every 10 s.
Exits with 1 if one does not. ``pytest -m slow tests/test_first_hour.py`` runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

SILENCE = 10.0
START = 15.0
"""Seconds that Python and PyTorch may take to start, on a busy machine, before the first word."""
MODES = ("RGB", "RGB", "RGB", "L", "RGBA", "P", "CMYK")


@dataclass
class Step:
    """A command, and the seconds it may take."""

    command: list[str]
    seconds: float


@dataclass
class Report:
    """How a command went."""

    code: int
    seconds: float
    silence: float
    """the longest time without a new line in its log, after its start"""
    lines: int
    output: str
    log: str

    def fails(self, step: Step) -> list[str]:
        """Return what is wrong, if anything."""
        found = [f"exit code {self.code}: {self.log[-300:]}"] if self.code else []
        found += [f"took {self.seconds:.0f} s of {step.seconds:.0f} s"] if self.seconds > step.seconds else []
        return found + ([f"silent for {self.silence:.0f} s"] if self.silence > SILENCE else [])


def photograph(generator: np.random.Generator, height: int, width: int) -> Image.Image:
    """Make a photograph: noise of a natural spectrum under a sky that is brighter at the top."""
    down, across = np.fft.fftfreq(2 * height)[:, None], np.fft.rfftfreq(2 * width)[None]
    amplitude = 1 / np.maximum(np.hypot(down, across), 0.5 / max(height, width)) ** 1.1
    common = generator.random(amplitude.shape)
    planes = [
        np.fft.irfft2(amplitude * np.exp(2j * np.pi * (common + 0.05 * generator.random(amplitude.shape))))
        for _ in range(3)
    ]
    pixels = np.stack(planes, -1)[:height, :width]  # a window of what goes round, so that it has a seam
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
    """Return the commands of the first hour."""
    photos, net = str(folder / "photos"), str(folder / "net.safetensors")
    return {
        "fit": Step(["fit", photos, "--preset", "seam", "--size", "96", "--epochs", "8", "--out", net], 300),
        "restore": Step(["restore", photos, "--restorer", net, "--out", str(folder / "restored")], 120),
        "evaluate": Step(["evaluate", "--data", photos, "--restorer", net], 90),
        "verify": Step(["verify", "--data", photos, "--restorer", net, "--seconds", "30"], 90),
        "export": Step(["export", "--restorer", net, "--out", str(folder / "net.pt2")], 120),
    }


def follow(step: Step, log: Path) -> Report:
    """Run a command with its standard error in a file, and watch the file grow."""
    command = [sys.executable, "-m", "unshift.cli", *step.command]
    started = last = time.monotonic()
    size, silence = 0, 0.0
    with log.open("wb") as errors, log.with_suffix(".out").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env={**os.environ})
        while process.poll() is None and time.monotonic() - started < 2 * step.seconds:
            time.sleep(0.1)
            now = time.monotonic()
            if log.stat().st_size > size:
                size, last = log.stat().st_size, now
            silence = max(silence, now - last - (0 if size else START))
        if process.poll() is None:
            process.kill()
        code = process.wait()
    text = log.read_text()
    return Report(code, time.monotonic() - started, silence, len(text.splitlines()), output_of(log), text)


def output_of(log: Path) -> str:
    """Return what the command that wrote ``log`` printed."""
    return log.with_suffix(".out").read_text().strip()


def main(folder: Path) -> int:
    """Run all commands; return 1 if one of them did not do as it must."""
    if not (folder / "photos").exists():
        make_photographs(folder / "photos")
    wrong = 0
    for name, step in steps(folder).items():
        report = follow(step, folder / f"{name}.log")
        fails = report.fails(step)
        wrong += bool(fails)
        print(
            f"{name:<9} {report.seconds:5.0f} s of {step.seconds:.0f}, {report.lines} lines, "
            f"longest silence {max(0.0, report.silence):.0f} s: {'; '.join(fails) or 'well'}",
            flush=True,
        )
        print("".join(f"    {line}\n" for line in report.output.splitlines()), end="", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as made:
        sys.exit(main(Path(made)))
