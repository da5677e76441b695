"""The package neither pickles nor unpickles."""

from __future__ import annotations

import re
from pathlib import Path

import unshift

UNSAFE = re.compile(
    r"^\s*(?:import|from) (?:c?pickle|_pickle|dill|cloudpickle|joblib|shelve|marshal)\b"
    r"|\btorch\.(?:load|save|hub)\b(?=[(.]|$)(?!\(.*weights_only=True)"
    r"|^from (?:torch|numpy) import .*\b(?:load|save)\b"
    r"|\b(?:np|numpy)\.load\((?!.*allow_pickle=False)",
    re.M,
)


def test_there_is_no_pickle_in_the_package():
    for source in ("import pickle", "from pickle import loads", "x = torch.load(y)", "np.load(x)", "f = torch.save"):
        assert UNSAFE.search(source)
    assert not UNSAFE.search("np.load(x, allow_pickle=False)\ntorch.jit.load(x)\ntorch.load(x, weights_only=True)")
    sources = sorted(Path(unshift.__file__).parent.rglob("*.py"))
    assert len(sources) > 10
    assert [path.name for path in sources if UNSAFE.search(path.read_text(encoding="utf-8"))] == []
