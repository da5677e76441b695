"""One HTML page from results: self-contained, so that it can be mailed, and nothing in it typed by hand."""

from __future__ import annotations

import base64
from html import escape
from importlib import resources
from string import Template
from typing import Any

from unshift.experiments import sections

__all__ = ["page"]

_PAGE = Template(resources.files("unshift.experiments").joinpath("report.html").read_text(encoding="utf-8"))


def page(results: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """Return the page for whichever of the experiments are in ``results``, and its figures by file name."""
    digits = results.get("table1", {}).get("mnist")
    parts = [_headline(digits)] if digits else ["<h1>unshift: results</h1>"]
    figures: dict[str, bytes] = {}
    for item, cases in results.items():
        if item != "provenance":

            def picture(png: bytes, alt: str, item: str = item) -> str:
                figures[f"{item}-{sum(name.startswith(item) for name in figures) + 1}.png"] = png
                return f'<img alt="{escape(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'

            parts += sections.SECTIONS[item](cases, picture)
    parts.append(_source(results))
    return _PAGE.substitute(body="\n".join(parts)), figures


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


def _source(results: dict[str, Any]) -> str:
    made = results["provenance"]
    facts = ", ".join(f"{key} {value}" for key, value in made.items() if value is not None)
    return f'<p class="soft">Made by <code>unshift reproduce</code>: {escape(facts)}.</p>'
