"""The site builds without a warning, shows what it does first, and asks no other host for anything."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
LIMIT = 300_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def html(site: Path, page: str) -> str:
    return (site / ("" if page == "index" else page) / "index.html").read_text(encoding="utf-8")


def test_every_page_is_in_the_menu(site: Path) -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r": (\w+)\.md$", text, re.M)) == PAGES
    for page in PAGES:
        assert "<h1" in html(site, page), page


def test_the_first_thing_on_the_first_page_is_a_picture(site: Path) -> None:
    article = html(site, "index").split("<article", 1)[1]
    assert article.index("<img") < article.index("<h1") < article.index("<p>Left")


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    for page in PAGES:
        found = re.findall(
            r'<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)="(https?:)?//[^"]*"', html(site, page)
        )
        assert not found, page


def test_links_and_pictures_lead_somewhere(site: Path) -> None:
    """Strict mode checks Markdown links; this also checks what HTML blocks, snippets and docstrings made."""
    for page in PAGES:
        here = site / ("" if page == "index" else page)
        text = html(site, page)
        for target in re.findall(r'\b(?:href|src)="([^"]*)"', text):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (here / path).resolve() if path else here / "index.html"
            file = file / "index.html" if file.is_dir() else file
            assert file.exists(), f"{page}: {target}"
            if anchor and file.suffix == ".html":
                assert f'id="{anchor}"' in file.read_text(encoding="utf-8"), f"{page}: {target}"


def test_the_reference_has_every_public_name(site: Path) -> None:
    import unshift

    text = html(site, "api")
    for name in unshift.__all__:
        assert re.search(rf'id="unshift\.(?:\w+\.)?{name}"', text), name
    assert ":func:" not in text
    assert ":class:" not in text


def test_examples_are_shown_in_full(site: Path) -> None:
    source = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    shown = set(re.findall(r'--8<-- "examples/(\w+)\.py"', source))
    assert shown == {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert "--8&lt;--" not in html(site, "examples")
    assert "docs/pictures.py" not in {str(path.relative_to(site)) for path in site.rglob("*.py")}


def test_each_answer_of_the_faq_stands_alone() -> None:
    """Nobody reads a FAQ from its top: whatever a block uses, it imports."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "faq.md").read_text(encoding="utf-8"), re.S | re.M)
    for block in blocks:
        nodes = list(ast.walk(ast.parse(block)))
        known = {alias.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}
        names = [node for node in nodes if isinstance(node, ast.Name)]
        known |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
        assert {name.id for name in names} - known <= set(dir(builtins))


def test_pictures_are_small_and_used() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size < LIMIT, picture.name
        assert f"images/{picture.name}" in pages, picture.name


@pytest.mark.slow
def test_pictures_are_what_the_script_draws() -> None:
    """Draw the quickest one again: fonts and versions may differ, its size may not."""
    code = "import sys; sys.path.insert(0, 'docs'); import pictures; sys.stdout.buffer.write(pictures.seam())"
    drawn = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout
    stored = (ROOT / "docs" / "images" / "seam.png").read_bytes()
    assert drawn[:24] == stored[:24]  # the PNG's header: width and height
