"""Render the tables and figures of README and the docs from results/: ``python docs/render.py``.

``--check`` only says if a table is stale. Each file of results/ is the ``results.json`` of one command:

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
import sys
from collections.abc import Callable
from pathlib import Path

from unshift.experiments import fig3, fig4, fig5, fig6, plots, scopes, seam, table1, table2
from unshift.experiments.classifiers import shipped
from unshift.experiments.setting import setting
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
            cases |= {case: {**each, "provenance": stored["provenance"]} for case, each in stored[item].items()}
    return cases


def tables() -> dict[str, str]:
    """Return each generated part of the pages by its marker."""
    main = json.loads((ROOT / "results" / "main.json").read_text(encoding="utf-8"))
    digits = {**main["table1"]["mnist"], "provenance": main["provenance"]}
    made = {"headline": scopes_table(digits, table1.rows), "models": models()}
    for item, rows in ROWS.items():
        for case, measured in result(item).items():
            made[f"{item}-{case}"] = picture(f"{item}-{case}") + scopes_table(measured, rows, item)
    for turned in result("fig6").values():
        turns = fig6.rows(turned)
        made["fig6"] = markdown(turns)
        made["rivals"] = markdown([(label, [cells[0], *cells[-2:]]) for label, cells in turns])  # without the classes
    if four := result("table2"):
        made["table2"] = architectures(four)
    for measured in result("seam").values():
        made["budget"] = picture("budget") + budget(measured)
    for item in ("fig1", "fig3"):
        cases = ("mnist", "cifar10-vgg16", "fashion-mnist", "cifar10-plain")
        shown = "".join(picture(f"{item}-{case}") for case in cases)
        made[item] = shown.rstrip()
    return made


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
    provenance = measured["provenance"]
    seeds = ", ".join(map(str, measured["seeds"]))
    small = (
        f"Accuracy in %, {measured['data']}, n = {measured['bare_images']:,}, random circular shifts both ways, "
        f"seed{'s' if len(measured['seeds']) > 1 else ''} {seeds}; torch {provenance['torch']}. "
        f"`unshift reproduce{' ' + item if item else ''}` prints this table."
    )
    if item:
        small += f" {training(measured)}<br>" + "<br>".join(scopes.effect_text(measured))
        small += f"<br>commit {provenance['commit']}, {measured['seconds']:.0f} s."
    return f"{markdown(rows(measured))}\n\n<sub>{small}</sub>"


def training(measured: dict) -> str:
    """Return a sentence on how the classifier was trained."""
    about = measured["training"]
    if "epochs" not in about:
        return ""
    small = f"{about['small_epochs']:g} epochs at half size and " if about.get("small_epochs") else ""
    held = f"{100 * about['validation_accuracy']:.2f}% of {about['validation_images']:,} held-out images right"
    return f"Classifier: {small}{about['epochs']:g} epochs on {about['train_images']:,} images, {held}."


def architectures(cases: dict) -> str:
    """Return Table 2 as the paper lays it out, ours and the paper's."""
    lines = [
        "| | bare, unshifted | bare, shifted by up to 4 | with unshift, both | effect, unshifted | effect, shifted "
        "| paper: bare | shifted | restored | effect | effect, shifted |",
        "|---|" + "---:|" * 10,
    ]
    for measured in cases.values():
        (entry,) = measured["restored"].values()
        every, paper = entry["all"], measured["paper"]
        ours = [every["without"], measured["without"][1], every["accuracy"][1], every["effect"], entry["effect"][1]]
        still, moved = paper["without"]
        theirs = [still, moved, paper["restored"], paper["restored"] - still, paper["restored"] - moved]
        cells = [f"{v:+.2f}" if k in (3, 4) else f"{v:.2f}" for values in (ours, theirs) for k, v in enumerate(values)]
        cells[1] += f" ±{measured['without_spread'][1]:.2f}"
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
    made = {"fig3-mnist.png": plots.pictures(fig3.run(setting("mnist", quick=True, progress=False)))}
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
            made["budget.png"] = plots.budget(measured)
    return made


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is stale")
    arguments = parser.parse_args()
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
