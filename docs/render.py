"""Render the tables and figures of README and the docs from ``reproduction/results/``: ``python docs/render.py``.

A page has a part for each case of an item, between ``<!-- ITEM-CASE:begin -->`` and ``<!-- ITEM-CASE:end -->``, and a
few parts that are named in :func:`parts`. ``--check`` only tests whether a page is stale.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from reproduction import records
from reproduction.items import ITEMS, find
from reproduction.tables import Block, Picture, Row, Table, render
from unshift import classifiers
from unshift.files import describe_size, load, pretrained, read_header

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
NAMES = ("index", "results", "comparison", "sequences", "scenes", "scaling", "pages")
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in NAMES))


def source(name: str, run: dict[str, Any]) -> str:
    """Return the command behind a record, its commit and time. The record has the versions and the machine."""
    command = run["command"] or f"python -m reproduction {name}"
    commit = f"commit {run['commit']}, " if run["commit"] else ""
    changed = "uncommitted changes, " if run.get("dirty") else ""
    threads = f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}"
    return f"<sub>`{command}`: {commit}{changed}{threads}, {run['seconds']:.0f} s.</sub>"


def parts() -> dict[str, list[Block]]:
    """Return the generated parts of the pages by their markers."""
    made: dict[str, list[Block]] = {"models": [models()], "four": [four()], "lost": [lost()]}
    for name in ITEMS:
        item, cases = find(name), records.read(name)
        results = {case: record["result"] for case, record in cases.items()}
        if hasattr(item, "summary") and cases:
            runs = [source(name, record["run"]).replace("<sub>", f"<sub>{case}: ") for case, record in cases.items()]
            made[name] = [*item.summary(results), *runs]
        for case, record in cases.items():
            if case in item.CASES:
                made[f"{name}-{case}"] = [*item.tables(results, case), source(name, record["run"])]
    main = made["table1-mnist"][0]
    assert isinstance(main, Table)
    rows = [row for row in main.rows if row.style in ("bare", "restored") and "paper" not in row.label]
    made["headline"] = [replace(main, rows=rows, notes=main.notes[:1])]
    return made


def four() -> Table:
    """Return accuracies of four frozen models, not shifted, shifted, and restored."""
    rows = []
    for item, case, images, shift in (
        ("table1", "mnist", "MNIST", "up to 8 of 32 pixels"),
        ("seam", "cifar10-plain", "CIFAR-10", "any"),
        ("seam", "cifar10-resnet18-plain", "CIFAR-10", "any"),
        ("imagenet", "photos", "", "any"),
    ):
        result = records.read(item)[case]["result"]
        name, entry = next(iter(result["restored"].items()))
        on_all = entry.get("all") or {"without": result["without"][0], "accuracy": entry["accuracy"]}
        n = f"{result['images']:,}" + (
            f" (shifted, alone: {result['bare_images']:,})" if result["bare_images"] < result["images"] else ""
        )
        images = images or f"{result['data'].partition(',')[0]}, same class as not shifted"
        values = [images, n, shift, on_all["without"], result["without"][-1], on_all["accuracy"][-1], f"`{name}`"]
        rows.append(Row(result["classifier"], values))
    columns = ["images", "n", "shift", "not shifted (%)", "shifted, alone (%)", "shifted, restored (%)", "restorer"]
    return Table("frozen model", columns, rows, left=3)


def lost() -> str:
    """Return the accuracies under shifts that lose pixels, without and with a restorer."""
    record = records.read("moves").get("zero-filled")
    if record is None:
        return "*not measured yet*"
    alone, restored = (", ".join(f"{value:.2f}" for value in record["result"][key]) for key in ("bare", "restored"))
    return f"{alone}% alone and {restored}% behind `cifar10-seam` (n = {record['result']['images']:,})"


def models() -> Table:
    """Return the shipped restorers as a table, from the metadata of their files."""
    rows = []
    for name, path in pretrained().items():
        facts, restorer = read_header(path)["metadata"], load(name)
        undoes = restorer.coordinates.labels.undoes.removesuffix(", exactly")
        images, test = f"{facts['data']}, {describe_size(restorer)}", facts["test"]
        values = [undoes, facts["preset"], images, f"{test['images']:,}", test["exact"], test["within_1"]]
        forms = ["{}", "{}", "{}", "{}", "{:.2%}", "{:.2%}", "{:.0f} kB"]
        rows.append(Row(f"`{name}`", [*values, path.stat().st_size / 1000], form=forms))
    columns = ["undoes", "preset", "images", "n", "to the pixel (test)", "within 1", "file"]
    note = (
        "to the pixel: share of n test images that are restored upright (for a rotation: to the step of the angle "
        "grid); within 1: to one pixel or step. `unshift models NAME` shows the recipe of a file; "
        "`reproduction/train/` has the script "
        f"that makes it. Frozen classifiers: {', '.join(f'`{name}`' for name in classifiers.names())}."
    )
    return Table("name", columns, rows, [note], left=3)


def rendered(text: str, made: dict[str, list[Block]], link: Callable[[Picture], str]) -> str:
    """Return a page with the parts between its markers replaced; a part on one line stays on it."""
    for name in re.findall("<!-- (.*?):begin -->", text):
        part = render(made[name], "markdown", link) if name in made else "*Not measured yet.*"
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"

        def filled(old: re.Match[str], part: str = part, begin: str = begin, end: str = end) -> str:
            return ("\n" if "\n" in old[0] else "").join([begin, part, end])

        text = re.sub(f"{begin}.*?{end}", filled, text, flags=re.S)
    return text


def main() -> None:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is stale")
    check = parser.parse_args().check
    for path in () if check else records.RESULTS.glob("*.png"):  # pictures of pixels, which records do not hold
        Image.open(path).convert("RGB").quantize(256).save(IMAGES / path.name, optimize=True)
        path.unlink()

    def link(picture: Picture) -> str:
        path = IMAGES / f"{picture.name}.png"
        if picture.draw and not check:
            path.write_bytes(picture.draw())
        return f"images/{path.name}" if path.exists() else ""

    made, stale = parts(), []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (new := rendered(text, made, link)) != text:
            stale.append(page.name)
            if not check:
                page.write_text(new, encoding="utf-8")
    sys.exit(f"stale: {', '.join(stale)}; python docs/render.py renders them" if check and stale else 0)


if __name__ == "__main__":
    main()
