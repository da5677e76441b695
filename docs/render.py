"""Render README's tables and picture from results/: ``python docs/render.py`` (``--check``: only say if stale).

unshift reproduce --out report && cp report/results.json results/main.json && python docs/render.py
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from unshift.experiments import fig3, plots, table1
from unshift.experiments.setting import mnist_setting
from unshift.weights import pretrained, read_header

ROOT = Path(__file__).resolve().parent.parent


def tables() -> dict[str, str]:
    """Return each generated part of README by its marker."""
    main = json.loads((ROOT / "results" / "main.json").read_text(encoding="utf-8"))
    return {"table1": scopes(main["table1"], main["provenance"]), "models": models()}


def scopes(result: dict, provenance: dict) -> str:
    """Return Table 1 as Markdown."""
    (_, head), *rows = table1.rows(result)
    lines = ["| shift up to (pixels) | " + " | ".join(head) + " |", "|---|" + "---:|" * len(head)]
    for label, cells in rows:
        name = label.strip()
        bold = "**" if name.startswith("with unshift") else ""
        lines.append(f"| {bold}{name}{bold} | " + " | ".join(f"{bold}{cell}{bold}" for cell in cells) + " |")
    seeds = ", ".join(map(str, result["seeds"]))
    lines += [
        "",
        f"<sub>Accuracy in %, {result['data']}, n = {result['images']:,}, random circular shifts both ways, "
        f"seed {seeds}; torch {provenance['torch']}. `unshift reproduce` prints this table. Paper: its Table 1.</sub>",
    ]
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
        "`python -m unshift.experiments.pretrain NAME` makes one again.</sub>",
    ]
    return "\n".join(lines)


def rendered(text: str) -> str:
    """Return README with the parts between its markers replaced."""
    for name, table in tables().items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        text = re.sub(f"{begin}.*?{end}", lambda _, t=table, b=begin, e=end: f"{b}\n{t}\n{e}", text, flags=re.S)
    return text


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if README is stale")
    arguments = parser.parse_args()
    readme = ROOT / "README.md"
    new = rendered(readme.read_text(encoding="utf-8"))
    if arguments.check:
        sys.exit(new != readme.read_text(encoding="utf-8"))
    readme.write_text(new, encoding="utf-8")
    picture = plots.pictures(fig3.run(mnist_setting(quick=True, progress=False)))
    (ROOT / "docs" / "images" / "restored.png").write_bytes(picture)


if __name__ == "__main__":
    main()
