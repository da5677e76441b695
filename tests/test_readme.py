"""README and the docs: their code runs, their commands parse, their tables are rendered, their links resolve."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from unshift.cli import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = {
    page.name: re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M) for page in PAGES
}


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_commands_have_the_options_that_a_page_names(page: str) -> None:
    """Every ``unshift COMMAND --option`` in an indented block or in backticks."""
    text = next(path for path in PAGES if path.name == page).read_text(encoding="utf-8").replace("\\\n", " ")
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for line in re.findall(r"^    (?:.*-m )?unshift ([^#\n]+)|`unshift ([^`]+)`", text, re.M):
        name, *words = " ".join(line).split()
        if name in commands:
            known = {option for param in commands[name].params for option in param.opts + param.secondary_opts}
            unknown = {word.partition("=")[0] for word in words if word.startswith("-")} - known - {"--help"}
            assert not unknown, f"{page}: unshift {name} {unknown}"
        else:
            assert name.startswith("-") or name in ("data", "COMMAND"), f"{page}: unshift {name}"


@pytest.mark.parametrize("page", [name for name, blocks in CODE.items() if blocks or name == "README.md"])
def test_code_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a page's blocks one after another, as its reader would: later ones may use earlier names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    names: dict[str, object] = {"__name__": "__main__"}
    assert CODE[page]
    for number, block in enumerate(CODE[page]):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_ci_runs_the_test_command() -> None:
    commands = re.findall(r"^    (python3 -m venv .*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    assert len(commands) == 2
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines[-1] == commands[1]
    assert ".ci/browser" in lines  # what the browser tests need: they install nothing themselves
    assert commands[1] in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_tables_are_rendered_from_results() -> None:
    subprocess.run([sys.executable, str(ROOT / "docs" / "render.py"), "--check"], check=True)


def test_links_resolve() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
