"""Modules import in one direction (pyproject.toml), and the reproduction imports public names only."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "unshift"
OUTSIDE = ("demo", "cli")
"""Parts that may import the package itself."""


def test_the_contracts_hold():
    pytest.importorskip("importlinter")
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@functools.cache
def public_names(module: str) -> set[str] | None:
    """Return the ``__all__`` of a module of the package; None if the module or its list is missing."""
    base = PACKAGE.joinpath(*module.split(".")[1:])
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        for node in ast.parse(path.read_text()).body if path.exists() else ():
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                return set(ast.literal_eval(node.value))
    return None


def imports(source: str) -> list[tuple[str, str]]:
    """Return (module, name) of each ``from unshift... import name``; ``import unshift`` has an empty name."""
    pairs = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "unshift":
            pairs += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            pairs += [(alias.name, "") for alias in node.names if alias.name == "unshift"]
    return pairs


def not_public(source: str) -> list[str]:
    """Return the names that a source imports from the package though its modules do not list them."""
    return [
        f"{module}.{name}"
        for module, name in imports(source)
        if name
        and not module.startswith("reproduction")
        and name not in (public_names(module) or ())
        and not name.startswith("__")
        and not any((PACKAGE.joinpath(*module.split(".")[1:]) / f"{name}{end}").exists() for end in (".py", ""))
    ]


def test_the_library_does_not_import_the_package_itself():
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE)
        if where.parts[0] not in OUTSIDE and where.name != "__init__.py":
            whole = [name for module, name in imports(path.read_text()) if module == "unshift"]
            modules = [name for name in whole if (PACKAGE / f"{name}.py").exists()]
            assert set(whole) <= {*modules, "__version__"}, where


def test_the_reproduction_uses_public_names_only():
    for path in sorted((ROOT / "reproduction").rglob("*.py")):
        assert not_public(path.read_text()) == [], path.name


def test_a_private_name_is_caught():
    assert not_public("from unshift.shifts import _axes") == ["unshift.shifts._axes"]
    assert not_public("from unshift import choose") == ["unshift.choose"]
    allowed = "import unshift\nfrom unshift import Restorer, data\nfrom reproduction.table2 import _own"
    assert not_public(allowed) == []
