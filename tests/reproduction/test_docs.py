"""The site builds without a warning, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


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
