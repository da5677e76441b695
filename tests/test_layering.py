"""Each module imports only modules above it: the order is the list below, and nothing else."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "unshift"

ORDER = [
    "shifts",
    "circular",
    "estimator",
    "exact",
    "restorer",
    "polar",
    "theory",
    "data",
    "testing",
    "evaluation",
    "weights",
    "hub",
    "checkpoint",
    "usable",
    "training",
    "graph",
    "experiments",
    "demo",
    "cli",
]
"""A module or subpackage may import those before it, and its own modules."""

ONLY = {"theory": {"shifts"}, "data": {"shifts"}}
"""These could be packages of their own, and import less than the order allows."""

DEFERRED = {("restorer", "weights")}
"""Imports against the order, inside a function: a method that only spells another module's function."""

ROOT = {"experiments", "demo", "cli"}
"""These stand outside the library and may ``import unshift`` itself."""

PUBLIC_ONLY = {"experiments"}
"""These use the public names alone: what a module lists in ``__all__``."""


@dataclass(frozen=True)
class Import:
    """``from unshift.<module> import <name>``, or ``import unshift.<module>`` with no name."""

    module: str
    name: str | None
    deferred: bool
    line: int


def imports(source: str, package: str = "unshift") -> list[Import]:
    """All imports of ``unshift`` in a source; ``package`` is where its relative imports start."""
    found = []

    def visit(node: ast.AST, deferred: bool) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top, _, rest = alias.name.partition(".")
                if top == "unshift":
                    found.append(Import(rest, None, deferred, node.lineno))
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            top, _, rest = ".".join([*base, *([node.module] if node.module else [])]).partition(".")
            if top == "unshift":
                found.extend(Import(rest, alias.name, deferred, node.lineno) for alias in node.names)
        inside = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(source), False)
    return found


def public_names(path: Path) -> set[str]:
    """The literal ``__all__`` of a source file."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def source_of(module: str) -> Path | None:
    base = PACKAGE.joinpath(*module.split(".")) if module else PACKAGE
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.exists()), None)


def violations(path: str, source: str) -> list[str]:
    """What is wrong with the imports of ``path``, relative to the package, e.g. ``theory/layers.py``."""
    parts = Path(path).with_suffix("").parts
    here = parts[0]
    if path == "__init__.py":
        return []
    if here not in ORDER:
        return [f"{path}: not in the order; add {here!r} where it belongs, with what it may import"]
    wrong = []
    for item in imports(source, ".".join(["unshift", *parts[:-1]])):
        where = f"{path}:{item.line}"
        module = item.module
        if not module and item.name in ORDER:  # from unshift import data
            module, name = item.name, None
        else:
            name = item.name
        there = module.split(".")[0]
        if not module:
            if here not in ROOT:
                wrong.append(f"{where}: imports the package itself")
            elif name and not name.startswith("__") and name not in public_names(PACKAGE / "__init__.py"):
                wrong.append(f"{where}: {name} is not a public name of unshift")
            continue
        if there == here:
            continue
        if there not in ORDER:
            wrong.append(f"{where}: imports the unknown module {there}")
        elif here in ONLY and there not in ONLY[here]:
            wrong.append(f"{where}: {here} may import {', '.join(sorted(ONLY[here]))} only, not {there}")
        elif ORDER.index(there) > ORDER.index(here) and not (item.deferred and (here, there) in DEFERRED):
            wrong.append(f"{where}: {here} stands above {there} and may not import it")
        elif here in PUBLIC_ONLY and name:
            public = source_of(module)
            submodule = source_of(f"{module}.{name}")
            if public is not None and submodule is None and name not in public_names(public):
                wrong.append(f"{where}: {name} is not a public name of unshift.{module}")
    return wrong


FILES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES)
def test_imports_follow_the_order(path):
    assert violations(path, (PACKAGE / path).read_text()) == []


@pytest.mark.parametrize(
    ("path", "source", "message"),
    [
        ("shifts.py", "from unshift.circular import CircularFilter", "shifts.py:1: shifts stands above circular"),
        ("shifts.py", "import torch\nimport unshift.exact", "shifts.py:2: shifts stands above exact"),
        ("shifts.py", "from unshift import exact", "shifts stands above exact"),
        ("shifts.py", "from . import exact", "shifts stands above exact"),
        ("shifts.py", "from .exact import choose", "shifts stands above exact"),
        ("shifts.py", "def f():\n    from unshift.weights import save", "shifts.py:2: shifts stands above weights"),
        ("restorer.py", "from unshift.weights import save", "restorer stands above weights"),  # not deferred
        ("theory/layers.py", "from unshift.circular import full_row", "theory may import shifts only"),
        ("theory/layers.py", "from ..circular import full_row", "theory may import shifts only"),
        ("data/files.py", "if True:\n    from unshift.restorer import Restorer", "data may import shifts only"),
        ("evaluation.py", "import unshift", "imports the package itself"),
        ("evaluation.py", "from unshift import Restorer", "imports the package itself"),
        ("evaluation.py", "from unshift.utils import helper", "unknown module utils"),
        ("utils.py", "", "not in the order; add 'utils'"),
        ("experiments/table1.py", "from unshift.exact import _rank", "_rank is not a public name of unshift.exact"),
        ("experiments/table1.py", "from unshift import choose", "choose is not a public name of unshift"),
        ("experiments/table1.py", "from unshift.cli import main", "experiments stands above cli"),
    ],
)
def test_the_checker_catches(path, source, message):
    found = violations(path, source)
    assert len(found) == 1
    assert message in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("exact.py", "from unshift.circular import circular_correlation\nimport torch"),
        ("restorer.py", "def save():\n    from unshift.weights import save"),
        ("theory/layers.py", "from unshift.shifts import apply\nfrom unshift.theory.matrices import delta"),
        ("data/sources.py", "from . import files\nfrom .files import root\nfrom unshift.data import arrays"),
        ("experiments/table1.py", "import unshift\nfrom unshift import Restorer, data\nfrom .table2 import _own"),
        ("cli/reproduce.py", "def run():\n    from unshift.experiments import table1"),
    ],
)
def test_the_checker_allows(path, source):
    assert violations(path, source) == []


def test_there_is_something_to_check():
    assert {"shifts.py", "circular.py", "estimator.py", "exact.py", "restorer.py", "testing.py"} <= set(FILES)
    assert any(item.module == "circular" for item in imports((PACKAGE / "exact.py").read_text()))
