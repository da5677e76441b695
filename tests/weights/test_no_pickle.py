"""The package neither pickles nor unpickles."""

from __future__ import annotations

import ast
from pathlib import Path

import unshift

PACKAGE = Path(unshift.__file__).parent


UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def dotted(node: ast.AST) -> str:
    """Return the dotted name of an attribute of a name, e.g. ``torch.load``; an empty string for other nodes."""
    return (
        f"{node.value.id}.{node.attr}" if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
    )


def unsafe(source: str) -> list[str]:
    """Return the imports and calls in a source that could unpickle. ``torch.load(..., weights_only=True)`` cannot."""
    found = []
    nodes = list(ast.walk(ast.parse(source)))
    tensors = [node.func for node in nodes if isinstance(node, ast.Call) and "weights_only=True" in
               map(ast.unparse, node.keywords)]  # fmt: skip
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = {name.name for name in node.names}
            if str(node.module).split(".")[0] in UNSAFE_MODULES or (
                node.module in ("torch", "numpy") and names & {"load", "save"}
            ):
                found.append(f"from {node.module}")
        elif dotted(node) in ("torch.load", "torch.save", "torch.hub") and node not in tensors:
            found.append(dotted(node))
        elif isinstance(node, ast.Call) and dotted(node.func) in ("np.load", "numpy.load"):
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if options.get("allow_pickle") != "False":
                found.append(ast.unparse(node))
    return found


def test_the_search_for_pickle_finds_it():
    for source in ("import pickle", "from pickle import loads", "import torch\ntorch.load(x)", "np.load(x)",
                   "from torch import load", "f = torch.save", "np.load(x, allow_pickle=True)",
                   "torch.load(x, weights_only=False)"):  # fmt: skip
        assert unsafe(source)
    assert not unsafe("np.load(x, allow_pickle=False)\ntorch.jit.load(x)\ntorch.load(x, weights_only=True)")


def test_there_is_no_pickle_in_the_package():
    sources = sorted(PACKAGE.rglob("*.py"))
    assert len(sources) > 10
    assert {str(path.relative_to(PACKAGE)): found for path in sources if (found := unsafe(path.read_text()))} == {}
