"""Run commands, and check their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import unshift
from unshift.cli import app

ROOT = Path(unshift.__file__).parents[1]
SETTINGS = {"epochs": 2, "batch_size": 8, "learning_rate": 0.03, "progress": False}
QUICK = ("--epochs", 2, "--batch-size", 8, "--learning-rate", 0.03)


def run(*args: object):
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)  # a line on stderr, as for a user
        return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="unshift")


def good(*args: object):
    result = run(*args)
    assert result.exit_code == 0, result.stderr
    return result


def good_json(*args: object):
    """Return the JSON on stdout: there must be nothing else."""
    return json.loads(good(*args, "--json").stdout)


def bad(*args: object, code: int = 2) -> str:
    """Return the message: one line on stderr after any lines of progress, nothing on stdout."""
    result = run(*args)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.startswith(("fit", "rates", "verify"))]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("unshift: error: ")
    return lines[0].removeprefix("unshift: error: ")


def child(*args: object, before: str = "", environment: dict[str, str] | None = None) -> subprocess.Popen:
    """Start the command as a process, after the statements ``before``."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(environment or {})}
    code = f"{before}\nfrom unshift.__main__ import main\nmain()"
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def read_image(path: object) -> Image.Image:
    """Read an image and close its file."""
    with Image.open(Path(str(path))) as image:
        return image.copy()


def save(name: str, images: torch.Tensor) -> str:
    np.save(name, images.numpy())
    return name


class Rows(nn.Module):
    """A classifier by the brightness of three bands of rows, which depends on shifts."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(images.mean(1, keepdim=True), (3, 1)).flatten(1)


def classify(made: Path, spec: object, *options: object) -> tuple[object, ...]:
    """Return the command that evaluates a classifier on the images in ``made``."""
    data, restorer = made / "labelled.npz", made / "paper.safetensors"
    return ("evaluate", data, "--restorer", restorer, "--classifier", spec, "--scope", "0,3", *options)
