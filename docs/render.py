"""Render the tables and figures of README and the docs from results/: ``python docs/render.py``.

``--check`` only says if a table is stale. Each file of results/ is the ``results.json`` of one command, put there,
with the pictures that numbers do not draw, by ``python docs/render.py --take report NAME``:

unshift reproduce                                        main.json
unshift reproduce table1 fig1 fig3 fig4 --data mnist     mnist.json, and so for fashion-mnist
unshift reproduce table1 fig1 fig3 table2 fig4 --data cifar10    cifar10.json
unshift reproduce seam --train                           seam.json
unshift reproduce fig5                                   fig5.json, and so for fig6
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from unshift.experiments import fig1, fig4, fig5, fig6, plots, scopes, seam, table1, table2
from unshift.experiments.classifiers import shipped
from unshift.weights import pretrained, read_header

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{page}.md" for page in ("index", "results", "comparison")))
ROWS = {"table1": table1.rows, "table2": table2.rows, "fig4": fig4.rows, "fig5": fig5.rows, "seam": seam.rows}


def result(item: str) -> dict:
    """Return an item's results by case, from all files but that of the main job, each with where it came from."""
    cases = {}
    for path in sorted((ROOT / "results").glob("*.json")):
        stored = json.loads(path.read_text(encoding="utf-8"))
        if path.stem != "main" and item in stored:
            if twice := cases.keys() & stored[item].keys():
                raise ValueError(f"{path}: {item} of {', '.join(twice)} is in another file too")
            cases |= stored[item]
    return cases


def tables() -> dict[str, str]:
    """Return each generated part of the pages by its marker."""
    main = json.loads((ROOT / "results" / "main.json").read_text(encoding="utf-8"))
    made = {"headline": scopes_table(main["table1"]["mnist"], table1.rows), "models": models()}
    for item, rows in ROWS.items():
        for case, measured in result(item).items():
            made[f"{item}-{case}"] = picture(f"{item}-{case}") + scopes_table(measured, rows, item)
    for turned in result("fig6").values():
        turns = fig6.rows(turned)
        drawn = turned["over_seeds"]
        small = (
            f"Accuracy in %, {turned['data']}, n = {turned['images']:,}, each at its own random angle, seed "
            f"{turned['seed']}; draws: seeds {', '.join(map(str, drawn['seeds']))} on the first {drawn['images']:,}, "
            f"and the share of those with one verdict under all; then per class. {made_by(turned)}"
        )
        pictures = "".join(picture(f"fig6-{part}") for part in ("digits", "sweep", "errors", "lost"))
        made["fig6"] = f"{pictures}{markdown(turns)}\n\n<sub>{small}</sub>"
        made["rivals"] = markdown([(label, [cells[0], *cells[-2:]]) for label, cells in turns])  # without the classes
    if four := result("table2"):
        made["table2"] = architectures(four)
    for measured in result("seam").values():
        made["budget"] = picture("seam-budget") + budget(measured)
    for case in result("fig5"):
        made[f"fig5-{case}"] = picture("fig5-volumes") + made[f"fig5-{case}"]
    shown = [picture(f"fig1-{case}") + f"<sub>{lost(case, each)}</sub>" for case, each in result("fig1").items()]
    made["fig1"] = "\n\n".join(shown)
    shown = [picture(f"fig3-{case}") + f"<sub>{moved(each)}</sub>" for case, each in result("fig3").items()]
    made["fig3"] = "\n\n".join(shown)
    return made


def made_by(measured: dict) -> str:
    """Return the versions, commit and time behind a measurement."""
    provenance = measured["provenance"]
    return f"torch {provenance['torch']}, commit {provenance['commit']}, {measured['seconds']:.0f} s."


def lost(case: str, measured: dict) -> str:
    """Return what Figure 1 says of a case, and what the paper says."""
    paper = f" The paper: more than {fig1.PAPER[case]} points." if case in fig1.PAPER else ""
    return f"{fig1.text(measured)}.{paper} {training(measured)} {made_by(measured)}"


def moved(measured: dict) -> str:
    """Return what Figure 3 shows of a case."""
    return (
        f"{measured['data']}, the first {len(measured['labels'])} images, shifts of up to {measured['scope']} pixels, "
        f"seed {measured['seeds'][0]}; restored by {measured['restorer']}, verdicts of {measured['classifier']}. "
        f"{made_by(measured)}"
    )


def picture(name: str) -> str:
    """Return the line that shows a figure, where it was drawn."""
    said = name.replace("-", ", ", 1)
    return f"![{said}](images/{name}.png)\n\n" if (ROOT / "docs" / "images" / f"{name}.png").exists() else ""


def markdown(rows: scopes.Rows) -> str:
    """Return labelled rows as a Markdown table; ours in bold."""
    (corner, head), *body = rows
    lines = [f"| {corner} | " + " | ".join(head) + " |", "|---|" + "---:|" * len(head)]
    for label, cells in body:
        name = label.strip()
        bold = "**" if name.startswith("with unshift") else ""
        lines.append(f"| {bold}{name}{bold} | " + " | ".join(f"{bold}{cell}{bold}" for cell in cells) + " |")
    return "\n".join(lines)


def scopes_table(measured: dict, rows: Callable[[dict], scopes.Rows], item: str = "") -> str:
    """Return accuracy over scopes as Markdown, with its small print."""
    seeds = ", ".join(map(str, measured["seeds"]))
    small = (
        f"Accuracy in %, {measured['data']}, n = {measured['bare_images']:,}, random circular shifts both ways, "
        f"seed{'s' if len(measured['seeds']) > 1 else ''} {seeds}. "
        f"`unshift reproduce{' ' + item if item else ''}` prints this table."
    )
    if item:
        small += f" {training(measured)}<br>" + "<br>".join(scopes.effect_text(measured))
    small += f"<br>{made_by(measured)}"
    return f"{markdown(rows(measured))}\n\n<sub>{small}</sub>"


def training(measured: dict) -> str:
    """Return a sentence on how the classifier was trained."""
    about = measured["training"]
    if "epochs" not in about:
        return ""
    small = f"{about['small_epochs']:g} epochs at half size and " if about.get("small_epochs") else ""
    held = f"{100 * about['validation_accuracy']:.2f}% of {about['validation_images']:,} held-out images right"
    size = f"{about['parameters']:,} parameters, " if "parameters" in about else ""
    return f"Classifier: {size}{small}{about['epochs']:g} epochs on {about['train_images']:,} images, {held}."


def architectures(cases: dict) -> str:
    """Return Table 2 as the paper lays it out, ours and the paper's."""
    first = next(iter(cases.values()))
    every, few = (f"(n = {first[key]:,})" for key in ("images", "bare_images"))
    lines = [
        f"| | bare, unshifted {every} | with unshift, any shift {every} | effect, unshifted {every} "
        f"| bare, shifted by up to 4 {few} | effect, shifted {few} "
        "| paper: bare | restored | effect | shifted | effect, shifted |",
        "|---|" + "---:|" * 10,
    ]
    for measured in cases.values():
        (entry,) = measured["restored"].values()
        whole, paper = entry["all"], measured["paper"]
        ours = [whole["without"], whole["accuracy"][1], whole["effect"], measured["without"][1], entry["effect"][1]]
        still, shifted = paper["without"]
        theirs = [still, paper["restored"], paper["restored"] - still, shifted, paper["restored"] - shifted]
        cells = [f"{v:+.2f}" if k in (2, 4) else f"{v:.2f}" for values in (ours, theirs) for k, v in enumerate(values)]
        cells[3] += f" ±{measured['without_spread'][1]:.2f}"
        lines.append(f"| {measured['classifier']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def budget(measured: dict) -> str:
    """Return the exact rate of the seam restorer against the epochs of its training."""
    lines = ["| epochs | exact (test) | within 1 (test) | exact (held out) | seconds |", "|" + "---:|" * 5]
    for entry in measured["budget"]:
        test, held = entry["test"], entry["validation"]
        lines.append(
            f"| {entry['epochs']} | {100 * test['exact']:.2f}% | {100 * test['within_1']:.2f}% "
            f"| {100 * held['exact']:.2f}% | {entry['seconds']:.0f} |"
        )
    return "\n".join(lines)


def models() -> str:
    """Return the shipped restorers as Markdown, from the files' own metadata."""
    lines = ["| name | undoes | preset | images | exact (test) | within 1 | file |", "|---|---|---|---|---:|---:|---:|"]
    for name, path in pretrained().items():
        meta = read_header(path)["metadata"]
        size = "x".join(map(str, meta["size"]))
        test = meta["test"]
        lines.append(
            f"| `{name}` | {meta.get('kind', 'shift')} | {meta['preset']} | {meta['data']}, {size} "
            f"| {100 * test['exact']:.2f}% | {100 * test['within_1']:.2f}% | {path.stat().st_size / 1000:.0f} kB |"
        )
    lines += [
        "",
        "<sub>exact: share of the test set found where it is, to the pixel (of a rotation: to the step of the angle "
        "grid); within 1: to one pixel or step. Each file carries its recipe (`unshift models NAME`). "
        "`python -m unshift.experiments.pretrain NAME` makes one again. Classifiers that come with the package: "
        + ", ".join(f"`{name}`" for name in shipped())
        + ".</sub>",
    ]
    return "\n".join(lines)


def rendered(text: str) -> str:
    """Return a page with the parts between its markers replaced."""
    parts = dict.fromkeys(re.findall("<!-- (.*?):begin -->", text), "*Not measured yet.*") | tables()
    for name, table in parts.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        text = re.sub(f"{begin}.*?{end}", lambda _, t=table, b=begin, e=end: f"{b}\n{t}\n{e}", text, flags=re.S)
    return text


def figures() -> dict[str, bytes]:
    """Return the figures that can be drawn from results, by file name."""
    made = {}
    for case, measured in result("table1").items():
        made[f"table1-{case}.png"] = plots.curve(measured)
    for case, measured in result("fig1").items():
        made[f"fig1-{case}.png"] = plots.heat_maps(measured)
    cases = result("fig4")
    for case, measured in cases.items():
        if f"{case}-augmented" in cases:
            made[f"fig4-{case}.png"] = plots.augmentation([measured, cases[f"{case}-augmented"]])
    for measured in result("seam").values():
        if len(measured["budget"]) > 1:
            made["seam-budget.png"] = plots.budget(measured)
    return made


def take(folder: Path, name: str) -> None:
    """Copy a report's results, and, in 256 colours, the figures that show pixels: those are not in the results."""
    shutil.copy(folder / "results.json", ROOT / "results" / f"{name}.json")
    for item in ("fig3", "fig5", "fig6"):
        for path in folder.glob(f"{item}-*.png"):
            few = Image.open(path).convert("RGB").quantize(256)
            few.save(ROOT / "docs" / "images" / path.name, optimize=True)


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
        for name, png in figures().items():
            (ROOT / "docs" / "images" / name).write_bytes(png)
    new = {page: rendered(page.read_text(encoding="utf-8")) for page in PAGES}
    if arguments.check:
        sys.exit(any(text != page.read_text(encoding="utf-8") for page, text in new.items()))
    for page, text in new.items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
