"""docs/theory.md is true: its code runs, its printed comments hold, its tables point at real things."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import unshift.theory

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", DOC, flags=re.S)
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_theory_*.py"))


@pytest.mark.parametrize("block", BLOCKS)
def test_code_runs_and_prints_what_its_comments_say(block):
    pytest.importorskip("unshift.restorer")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, {})
    lines = printed.getvalue().splitlines()
    comments = re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.M)
    for line, comment in zip(lines, comments, strict=False):
        start = re.split(r" \.\.\.|: the |: depth", comment)[0].rstrip(",")
        assert line.startswith(start)
    assert len(lines) >= len(comments)


def test_the_lesson_is_twenty_lines():
    lines = [line for line in BLOCKS[0].splitlines() if line and not line.startswith(("#", "import", "from"))]
    assert len(lines) <= 20


def test_every_item_of_the_paper_is_in_the_table():
    items = [f"Definition {n}" for n in ("3.1", "3.2", "3.3", "3.5", "4.1", "4.2")]
    items += ["Theorem 3.4", "Corollary 3.6", "Lemma 4.3", "Lemma 4.4", "Theorem 4.5"]
    items += ["Lemma A.1", "Lemma B.1", "Lemma C.1", "Lemma C.2"]
    for item in items:
        assert f"| {item} |" in DOC


def test_the_tables_name_functions_and_tests_that_exist():
    for name in set(re.findall(r"`(test_\w+)`", DOC)):
        assert f"def {name}(" in TESTS
    items = DOC.split("## Where each item of the paper is")[1].split("##")[0]
    rows = [line.split("|") for line in items.strip().splitlines()[2:]]
    assert len(rows) >= 20
    for _, _, _, functions, test, _ in rows:
        assert "`test_" in test
        for name in re.findall(r"`(\w+)`", functions):
            assert name in unshift.theory.__all__


def test_the_table_of_limits_is_computed():
    for row in re.findall(r"\| ([\d,]+) \| (\d+) \| (\d+) \|", DOC):
        bits, exact, overflow = (int(cell.replace(",", "")) for cell in row)
        assert unshift.theory.float64_limits(1, bits) == (exact, overflow)
