"""docs/theory.md: its code runs, its tables name functions and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import unshift.theory

DOC = (Path(__file__).parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_theory_*.py"))


def test_the_tables_name_functions_and_tests_that_exist():
    for name in set(re.findall(r"`(test_\w+)`", DOC)):
        assert f"def {name}(" in TESTS
    rows = re.findall(r"^\| (?:Definition|Theorem|Corollary|Lemma|Equation)[^|]*\|([^|]*)\|[^|]*\|$", DOC, flags=re.M)
    assert len(rows) >= 15
    for functions in rows:
        assert {*re.findall(r"`(\w+)`", functions)} <= {*unshift.theory.__all__}
