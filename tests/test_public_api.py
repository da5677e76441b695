"""The public names are few, and importing them is light."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import unshift

PUBLIC = [
    "Chain",
    "Estimate",
    "Restorer",
    "ShiftEstimator",
    "apply",
    "export",
    "fit",
    "load",
    "quantise",
    "undo",
    "verify",
]

NOT_AT_IMPORT = ["matplotlib", "typer", "pooch", "PIL", "requests", "onnx", "unshift.experiments", "unshift.cli"]

PACKAGE = Path(unshift.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text()
)


def test_the_public_names_are_these():
    assert unshift.__all__ == PUBLIC


def test_every_public_name_is_there_and_says_what_it_is():
    for name in PUBLIC:
        assert getattr(unshift, name).__doc__, name


def test_the_version_is_the_same_everywhere():
    version = unshift.__version__
    for file, line in (
        ("pyproject.toml", f'version = "{version}"'),
        ("CITATION.cff", f"version: {version}"),
        ("README.md", f"version = {{{version}}}"),
    ):
        assert line in (PACKAGE.parent / file).read_text(), file


def test_import_is_light():
    code = f"import sys, unshift; print(*[name for name in {NOT_AT_IMPORT} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent, check=True)
    assert run.stdout.split() == []


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings_run(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
