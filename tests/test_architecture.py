"""The parts of the package: named in docs/architecture.md, none of them long, and public in what others use."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("unshift", "tests", "benchmarks", "docs", "examples")


def listed(folder: Path) -> set[str]:
    """The modules of a folder that its own catalogue lists: one line there is all that a new one takes."""
    sources = [
        path.read_text(encoding="utf-8") for path in (folder / "catalogue.py", folder / "__init__.py") if path.exists()
    ]
    found = re.search(r"^MODULES = (\[.*?\])", "\n".join(sources), re.M | re.S)
    return set(ast.literal_eval(found[1])) if found else set()


def test_the_architecture_names_every_module():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = {row[1].rstrip("/"): row[2] for row in re.finditer(r"^\| `([\w/]+)` \| (.*) \|$", text, re.M)}
    package = ROOT / "unshift"
    top = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(rows) == top - {"__init__", "__main__"}
    for folder in sorted(path.parent for path in package.glob("*/__init__.py")):
        named = set(re.findall(r"`(\w+)`", rows[folder.name]))
        modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"} - listed(folder)
        assert modules - named == set(), folder.name


def long(source: str) -> list[str]:
    """Name the functions of more than 60 lines, parameters and docstring included."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= 60]


def test_no_module_exceeds_300_lines_and_no_function_60():
    for path in sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        assert len(source.splitlines()) <= 300, path
        assert long(source) == [], path
    for path in sorted((ROOT / "unshift").rglob("*.js")):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 300, path


def test_a_long_function_is_caught():
    assert long("def f():\n" + "    x = 1\n" * 59) == []
    assert long("def f():\n" + "    x = 1\n" * 60) == ["f"]
    assert long("def f(\n" + "".join(f"    a{k},\n" for k in range(99)) + "):\n    return 1\n") == ["f"]


def test_what_is_imported_is_declared():
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = about["dependencies"] + [one for extra in about["optional-dependencies"].values() for one in extra]
    declared = {re.match(r"[\w-]+", one)[0].lower().replace("-", "_") for one in wanted}
    declared = {{"pillow": "PIL"}.get(name, name) for name in declared} | {"unshift", *sys.stdlib_module_names}
    for path in sorted((ROOT / "unshift").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        found |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
        assert {name.split(".")[0] for name in found} <= declared, path


def private(source: str) -> list[str]:
    """Names with an underscore in front that a source takes from what is not its own."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("unshift"):
            found += [alias.name for alias in node.names if re.match("_[^_]", alias.name)]
        elif isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in ("self", "cls", "sys", "os") and not ast.unparse(node).startswith("torch."):
                found.append(node.attr)
    return found


def test_what_starts_with_an_underscore_is_used_nowhere_else():
    theirs = {"_asdict", "_replace", "_version", "_buffers"}  # public in all but name: of tuples, tensors and modules
    for path in sorted((ROOT / "unshift").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        own = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert set(private(source)) - theirs - own == set(), path


def test_a_private_name_of_another_module_is_caught():
    assert private("from unshift.shifts import _axes\nturns._elements(2)\nself._own") == ["_axes", "_elements"]


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
