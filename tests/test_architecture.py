"""The parts of the package: docs/architecture.md names them all, and they use only what is public in each other."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_architecture_names_every_module():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = {row[1].rstrip("/"): row[2] for row in re.finditer(r"^\| `([\w/]+)` \| (.*) \|$", text, re.M)}
    package = ROOT / "unshift"
    top = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(rows) == top - {"__init__"}
    for folder in sorted(path.parent for path in package.glob("*/__init__.py")):
        named = set(re.findall(r"`(\w+)`", rows[folder.name]))
        assert {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"} - named == set(), folder.name


def public_names(module: str) -> set[str]:
    """The ``__all__`` of a module of ours, and the modules in it if it is a folder."""
    base = ROOT.joinpath(*module.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    listed = re.search(r"^__all__ = (\[.*?\])", path.read_text(encoding="utf-8"), re.M | re.S)
    return set(ast.literal_eval(listed[1]) if listed else ()) | {inner.stem for inner in base.glob("*.py")}


def hidden(source: str, home: str) -> list[str]:
    """Names that a module of the part ``home`` imports from another part that does not list them."""
    return [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("unshift.")
        if str(node.module).split(".")[1] != home
        for alias in node.names
        if alias.name not in public_names(str(node.module))
    ]


def test_what_another_part_of_the_package_uses_is_public():
    for path in sorted((ROOT / "unshift").rglob("*.py")):
        home = path.relative_to(ROOT / "unshift").parts[0].removesuffix(".py")
        assert hidden(path.read_text(encoding="utf-8"), home) == [], path


def test_a_name_that_is_not_public_is_caught():
    assert hidden("from unshift.shifts import apply, _NO_GATHER", "data") == ["unshift.shifts._NO_GATHER"]
    assert hidden("from unshift.data.files import root", "cli") == []


def test_every_name_in_all_is_there():
    for path in sorted((ROOT / "unshift").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        listed = re.search(r"^__all__ = \[", path.read_text(encoding="utf-8"), re.M)
        if listed and module != "unshift":
            found = importlib.import_module(module)
            assert [name for name in found.__all__ if not hasattr(found, name)] == [], module
