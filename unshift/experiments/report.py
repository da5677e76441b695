"""One HTML page from results: self-contained, so that it can be mailed, and nothing in it typed by hand."""

from __future__ import annotations

import base64
from html import escape
from importlib import resources
from string import Template
from typing import Any

from unshift.experiments import plots, sections, table1

__all__ = ["page"]

_PAGE = Template(resources.files("unshift.experiments").joinpath("report.html").read_text(encoding="utf-8"))


def page(results: dict[str, Any]) -> str:
    """Return the page for whichever of the experiments are in ``results``."""
    parts = [_headline(results["table1"])] if "table1" in results else ["<h1>unshift: results</h1>"]
    if "table1" in results:
        parts += ["<h2>Table 1: accuracy over translation scopes</h2>", _table(results["table1"])]
        parts.append(_picture(plots.curve(results["table1"]), "Accuracy against the size of the shift"))
    if "fig1" in results:
        fig1 = results["fig1"]
        parts.append("<h2>Figure 1: what a few pixels cost</h2>")
        parts.append(
            f"<p>Accuracy lost at each single shift, {escape(fig1['data'])}, n = {fig1['images']:,} per cell. "
            f"Right: the first {fig1['restored_images']:,} of them, restored before they are classified.</p>"
        )
        parts.append(_picture(plots.heat_maps(fig1), "Accuracy lost at every shift, without and with the restorer"))
    if "fig3" in results:
        fig3 = results["fig3"]
        parts.append("<h2>Figure 3: shifted and restored</h2>")
        parts.append(
            f"<p>The first {len(fig3['labels'])} test images, each shifted by up to {fig3['scope']} pixels both ways. "
            "Below each the verdict of the frozen classifier.</p>"
        )
        parts.append(_picture(plots.pictures(fig3), "Original, shifted and restored digits with verdicts"))
    if "rotation" in results:
        parts += sections.rotation_section(results["rotation"], _picture)
    if "3d" in results:
        parts += sections.volume_section(results["3d"], _picture)
    parts.append(_source(results))
    return _PAGE.substitute(body="\n".join(parts))


def _headline(result: dict[str, Any]) -> str:
    name, entry = next(iter(result["restored"].items()))
    flat = entry["same_at_every_scope"]
    said = "the same number in every column, because the restored image is the same image" if flat else "nearly flat"
    return (
        f"<h1>{entry['accuracy'][-1]:.2f}% instead of {result['without'][-1]:.2f}%</h1>"
        f"<p>{escape(result['classifier'])} on {escape(result['data'])} falls from {result['without'][0]:.2f}% to "
        f"{result['without'][-1]:.2f}% when digits shift by up to {result['scopes'][-1]} pixels. Behind the restorer "
        f"<code>{escape(name)}</code>, without retraining: {entry['accuracy'][-1]:.2f}%, {said}.</p>"
    )


def _table(result: dict[str, Any]) -> str:
    kinds = {"paper": "paper", "with": "with", "effect": "effect"}
    lines = []
    for number, (label, cells) in enumerate(table1.rows(result)):
        tag = "th" if number == 0 else "td"
        kind = kinds.get(label.strip().split()[0].rstrip(":"), "bare" if number == 1 else "")
        body = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
        lines.append(f'<tr class="{kind}"><th>{escape(label.strip())}</th>{body}</tr>')
    note = (
        f"Accuracy in %, n = {result['images']:,}, each image shifted circularly by its own random shift within the "
        f"scope, both ways; seeds {', '.join(map(str, result['seeds']))}. Paper: Wang, Yu, Gao, "
        "“Restore Translation Using Equivariant Neural Networks”, Table 1."
    )
    return f'<div class="scroll"><table>{"".join(lines)}</table></div><p class="soft">{note}</p>'


def _picture(png: bytes, alt: str) -> str:
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def _source(results: dict[str, Any]) -> str:
    made = results["provenance"]
    facts = ", ".join(f"{key} {value}" for key, value in made.items() if value is not None)
    return f'<p class="soft">Made by <code>unshift reproduce</code>: {escape(facts)}.</p>'
