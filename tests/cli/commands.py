"""What the tests of the command line share: how a command is run, and what is expected of its output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from typer.testing import CliRunner

import unshift
from unshift.cli import app

ROOT = Path(unshift.__file__).parents[1]
SETTINGS = {"epochs": 2, "batch_size": 8, "learning_rate": 0.03, "progress": False}
QUICK = ("--epochs", 2, "--batch-size", 8, "--learning-rate", 0.03)


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="unshift")


def good(*args: object):
    result = run(*args)
    assert result.exit_code == 0, result.stderr
    return result


def good_json(*args: object):
    """Stdout must be JSON and nothing else."""
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


def child(*args: object, **options) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "unshift.cli", *map(str, args)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def save(name: str, images: torch.Tensor) -> str:
    np.save(name, images.numpy())
    return name
