"""The public names are few, and importing them is light."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
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


def documented(api: str) -> list[object]:
    """What docs/api.md shows: names after `:::`, and the members listed under a module."""
    found = [getattr(unshift, name) for name in re.findall(r"^::: unshift\.(\w+)$", api, re.M) if name in PUBLIC]
    for module, members in re.findall(r"^::: (unshift\.\w+)\n.*members: \[(.*?)\]", api, re.M):
        found += [getattr(importlib.import_module(module), name) for name in members.split(", ")]
    return found


def test_every_parameter_of_the_documented_functions_is_explained():
    shown = documented((PACKAGE.parent / "docs" / "api.md").read_text(encoding="utf-8"))
    functions = [each for each in shown if inspect.isfunction(each)]
    assert len(functions) > 20
    for function in functions:
        names = list(inspect.signature(function).parameters)
        explained = re.findall(r"^ +\**(\w+): ", function.__doc__.partition("Args:")[2], re.M)
        assert len(names) < 2 or set(names) <= set(explained), function.__qualname__


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
