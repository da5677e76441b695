"""The site builds without a warning, its links lead somewhere, and its pictures and tables are current."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
LIMIT = 300_000


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def html(site, page):
    return (site / ("" if page == "index" else page) / "index.html").read_text(encoding="utf-8")


def test_every_page_is_in_the_menu(site):
    assert sorted(re.findall(r": (\w+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)) == PAGES
    assert all("<h1" in html(site, page) for page in PAGES)


def test_nothing_is_fetched_from_another_host(site):
    for page in PAGES:
        tags = r'<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)="(https?:)?//[^"]*"'
        assert not re.findall(tags, html(site, page)), page


def test_links_and_pictures_lead_somewhere(site):
    """Strict mode checks Markdown links; this also checks HTML blocks, snippets and docstrings."""
    for page in PAGES:
        here = site / ("" if page == "index" else page)
        for target in re.findall(r'\b(?:href|src)="([^"]*)"', html(site, page)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (here / path).resolve() if path else here / "index.html"
            file = file / "index.html" if file.is_dir() else file
            assert file.exists(), f"{page}: {target}"
            if anchor and file.suffix == ".html":
                assert f'id="{anchor}"' in file.read_text(encoding="utf-8"), f"{page}: {target}"


def test_the_reference_has_every_public_name(site):
    import unshift

    text = html(site, "api")
    for name in unshift.__all__:
        assert re.search(rf'id="unshift\.(?:\w+\.)?{name}"', text), name
    assert not re.search(":(func|class):", text)


def test_examples_are_shown_in_full(site):
    source = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    shown = set(re.findall(r'--8<-- "examples/(\w+)\.py"', source))
    assert shown == {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert "--8&lt;--" not in html(site, "examples")
    assert not list(site.rglob("*.py"))


def test_each_answer_of_the_faq_stands_alone():
    """Every block of code imports what it uses."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "faq.md").read_text(encoding="utf-8"), re.S | re.M)
    for block in blocks:
        nodes = list(ast.walk(ast.parse(block)))
        known = {alias.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}
        names = [node for node in nodes if isinstance(node, ast.Name)]
        known |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
        assert {name.id for name in names} - known <= set(dir(builtins))


def test_pictures_are_small_and_used():
    pages = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size < LIMIT, picture.name
        assert f"images/{picture.name}" in pages, picture.name


def test_tables_are_those_of_the_records():
    command = [sys.executable, "docs/render.py", "--check"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_pictures_are_those_that_the_script_draws():
    """Draw the fastest one again. Fonts and versions may differ, but not its size."""
    code = "import sys; sys.path.insert(0, 'docs'); import pictures; sys.stdout.buffer.write(pictures.seam())"
    drawn = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout
    assert drawn[:24] == (ROOT / "docs" / "images" / "seam.png").read_bytes()[:24]  # the PNG's width and height
