"""Render the tables and figures of README and the docs from results/: ``python docs/render.py``.

``--check`` only says if a table is stale. Each file of results/ is the ``results.json`` of one command, put there,
with the pictures that numbers do not draw, by ``python docs/render.py --take report NAME``:

unshift reproduce                                        main.json
unshift reproduce table1 fig1 fig3 fig4 --data mnist     mnist.json, and so for fashion-mnist
unshift reproduce table1 fig1 fig3 table2 fig4 --data cifar10    cifar10.json
unshift reproduce seam --train                           seam.json
unshift reproduce poses --data mnist                     poses.json
unshift reproduce poses --data cifar10                   photo-turns.json
unshift reproduce volumes                                volumes.json, and so for all others

A page has a part for each case, between ``<!-- NAME-CASE:begin -->`` and ``<!-- NAME-CASE:end -->``.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from PIL import Image

from unshift.experiments import experiments, find
from unshift.experiments.classifiers import shipped
from unshift.experiments.record import Block, Picture, Result, Results, Row, Table, Text
from unshift.experiments.renderers import markdown
from unshift.weights import load, pretrained, read_header, sizes_of

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PAGES = (
    ROOT / "README.md",
    *(ROOT / "docs" / f"{page}.md" for page in ("index", "results", "comparison", "sequences", "scenes", "scaling")),
)


def stored(file: str) -> dict[str, Results]:
    """Return what one command measured."""
    return json.loads((ROOT / "results" / f"{file}.json").read_text(encoding="utf-8"))


def measured(name: str) -> Results:
    """Return an experiment's results by case, from all files but those of the main job and of the benchmarks."""
    cases: Results = {}
    for path in sorted((ROOT / "results").glob("*.json")):
        found = stored(path.stem).get(name, {}) if path.stem not in ("main", "benchmarks") else {}
        if twice := cases.keys() & found.keys():
            raise ValueError(f"{path}: {name} of {', '.join(twice)} is in another file too")
        cases |= found
    return cases


def source(command: str, result: Result) -> Text:
    """Return the command, versions, commit and time behind a result."""
    made, seconds = result["provenance"], result["seconds"]
    return Text(f"<sub>`{command}`: torch {made['torch']}, commit {made['commit']}, {seconds:.0f} s.</sub>")


def parts() -> dict[str, list[Block]]:
    """Return each generated part of the pages by its marker."""
    digits = stored("main")["table1"]
    table, *_ = find("table1").show("mnist", digits)
    assert isinstance(table, Table)
    headline = replace(table, notes=table.notes[:1])
    made: dict[str, list[Block]] = {
        "headline": [headline, source("unshift reproduce", digits["mnist"])],
        "models": [models()],
    }
    for experiment in experiments():
        cases = measured(experiment.name)
        if experiment.summary and cases:
            made[experiment.name] = experiment.summary(cases)
        for case, result in cases.items():
            command = f"unshift reproduce {experiment.name}"
            made[f"{experiment.name}-{case}"] = [*experiment.show(case, cases), source(command, result)]
    if borrowed := measured("seam").get("cifar10-resnet18-plain"):
        made["resnet18"] = [in_one_line(borrowed)]
    for block in made["rotation-mnist-rotation"]:
        if isinstance(block, Table):
            made["baselines"] = [block.select("accuracy", "passes", "ms/digit")]
    return made


def in_one_line(result: Result) -> Text:
    """Say what a classifier does at any shift, bare and restored."""
    ((name, entry),) = result["restored"].items()
    every = entry["all"]
    return Text(
        f"A {result['classifier'].split(' (')[0]} that others trained to {every['without']:.2f}% on CIFAR-10, photos "
        f"rolled by any shift and without a margin: {result['without'][-1]:.2f}% bare (n = {result['bare_images']:,}), "
        f"**{every['accuracy'][-1]:.2f}%** behind `{name}` (n = {every['images']:,})."
    )


def models() -> Table:
    """Return the shipped restorers as a table, from the files' own metadata."""
    rows = []
    for name, path in pretrained().items():
        header = read_header(path)
        meta, restorer = header["metadata"], load(name)
        undoes = restorer.coordinates.undoes.removesuffix(", exactly")
        images = f"{meta['data']}, {sizes_of(restorer)}"
        test = meta["test"]
        values = [undoes, meta["preset"], images, test["exact"], test["within_1"]]
        forms = ["{}", "{}", "{}", "{:.2%}", "{:.2%}", "{:.0f} kB"]
        rows.append(Row(f"`{name}`", [*values, path.stat().st_size / 1000], form=forms))
    columns = ["undoes", "preset", "images", "exact (test)", "within 1", "file"]
    note = (
        "exact: share of the test set found where it is, to the pixel (for a rotation: to the step of the angle "
        "grid); within 1: to one pixel or step. Each file carries its recipe (`unshift models NAME`). "
        "`python -m unshift.experiments.shipped_restorers NAME` makes one again. Classifiers that come with the "
        f"package: {', '.join(f'`{name}`' for name in shipped())}."
    )
    return Table("name", columns, rows, [note], left=3)


def link(picture: Picture) -> str:
    """Return where a page finds a figure, if it was drawn."""
    return f"images/{picture.name}.png" if (IMAGES / f"{picture.name}.png").exists() else ""


def rendered(text: str, made: dict[str, list[Block]]) -> str:
    """Return a page with the parts between its markers replaced."""
    for name in re.findall("<!-- (.*?):begin -->", text):
        part = markdown(made[name], link) if name in made else "*Not measured yet.*"
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        text = re.sub(f"{begin}.*?{end}", lambda _, b=begin, p=part, e=end: f"{b}\n{p}\n{e}", text, flags=re.S)
    return text


def pictures(results: dict[str, Results]) -> Iterator[Picture]:
    """Yield all figures of some results."""
    for name, cases in results.items():
        for case in cases:
            yield from (block for block in find(name).show(case, cases) if isinstance(block, Picture))


def take(folder: Path, name: str) -> None:
    """Copy a report's results, and, in 256 colours, the figures that show pixels: those are not in the results."""
    shutil.copy(folder / "results.json", ROOT / "results" / f"{name}.json")
    for picture in pictures(stored(name)):
        path = folder / f"{picture.name}.png"
        if picture.draw is None and path.exists():
            Image.open(path).convert("RGB").quantize(256).save(IMAGES / path.name, optimize=True)


def main() -> None:
    """Take in, write, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is stale")
    parser.add_argument(
        "--take", nargs=2, metavar=("FOLDER", "NAME"), help="first make a report's results those of NAME"
    )
    arguments = parser.parse_args()
    if arguments.take:
        take(Path(arguments.take[0]), arguments.take[1])
    if not arguments.check:
        for picture in pictures({experiment.name: measured(experiment.name) for experiment in experiments()}):
            if picture.draw:
                (IMAGES / f"{picture.name}.png").write_bytes(picture.draw())
    made = parts()
    new = {page: rendered(page.read_text(encoding="utf-8"), made) for page in PAGES}
    if arguments.check:
        stale = [page.name for page, text in new.items() if text != page.read_text(encoding="utf-8")]
        sys.exit(f"stale: {', '.join(stale)}; python docs/render.py renders them" if stale else 0)
    for page, text in new.items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
