"""The public names: few, documented, quick to import; former names raise a DeprecationWarning."""

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
    "PoseEstimator",
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

NOT_AT_IMPORT = ["torch", "matplotlib", "typer", "pooch", "PIL", "requests", "onnx", "reproduction", "unshift.cli"]

PACKAGE = Path(unshift.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text()
)


def test_the_public_names_are_these():
    assert unshift.__all__ == PUBLIC


def documented(api: str) -> dict[str, object]:
    """Return the names in docs/api.md: those after `:::`, and the members listed under a module."""
    names = {name: getattr(unshift, name) for name in re.findall(r"^::: unshift\.(\w+)$", api, re.M) if name in PUBLIC}
    for module, members in re.findall(r"^::: (unshift[.\w]+)\n.*members: \[(.*?)\]", api, re.M):
        home = importlib.import_module(module)
        assert set(members.split(", ")) <= set(home.__all__), module
        names |= {f"{module}.{name}": getattr(home, name) for name in members.split(", ")}
    return names


def test_the_documented_functions_explain_every_parameter():
    shown = documented((PACKAGE.parent / "docs" / "api.md").read_text(encoding="utf-8"))
    assert set(PUBLIC) <= set(shown)
    for path, function in shown.items():
        if inspect.isfunction(function):
            names = list(inspect.signature(function).parameters)
            explained = re.findall(r"^ +\**(\w+): ", function.__doc__.partition("Args:")[2], re.M)
            assert len(names) < 2 or set(names) <= set(explained), path


@pytest.mark.parametrize(
    ("former", "name", "home"),
    [
        ("unshift.weights", "load", "unshift.files"),
        ("unshift.estimator", "ShiftEstimator", "unshift.network"),
        ("unshift.recipes", "RECIPES", "unshift.training.recipes"),
        ("unshift.training_images", "ImageOptions", "unshift.training.images"),
    ],
)
def test_modules_that_moved_are_found_under_their_former_name(former, name, home):
    module = importlib.import_module(former)
    with pytest.warns(DeprecationWarning, match=home) as caught:
        value = getattr(module, name)
    assert value is getattr(importlib.import_module(home), name)
    assert caught[0].filename == __file__


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
