"""What a run leaves in its folder: results as JSON, figures, and one HTML page of them with nothing typed by hand.

The page is self-contained, so that it can be mailed. A folder keeps what earlier runs left there.
"""

from __future__ import annotations

import base64
import json
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from unshift.experiments import sections
from unshift.weights import write_atomically

__all__ = ["read", "without_pictures", "write_page", "write_results"]

_PAGE = Template(resources.files("unshift.experiments").joinpath("report.html").read_text(encoding="utf-8"))


def read(folder: Path) -> dict[str, Any]:
    """Return the results that earlier runs left in ``folder``: item to case to measurement."""
    path = folder / "results.json"
    if not path.exists():
        return {}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {item: dict(cases) for item, cases in stored.items() if item in sections.SECTIONS}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is no results file; choose another --out") from error


def write_results(results: dict[str, Any], folder: Path) -> None:
    """Write the figures as numbers."""
    text = json.dumps(without_pictures(results), indent=1) + "\n"
    write_atomically(folder / "results.json", text.encode())


def write_page(results: dict[str, Any], folder: Path) -> None:
    """Write the page, and each figure as a file.

    Results of earlier runs come without their pixels: a figure made of those is kept as it was drawn then.
    """

    def picture(name: str, png: bytes | None, alt: str) -> str:
        path = folder / f"{name}.png"
        if png is not None:
            path.write_bytes(png)
        elif path.exists():
            png = path.read_bytes()
        else:
            return ""
        return f'<img alt="{escape(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'

    digits = results.get("table1", {}).get("mnist")
    parts = [_headline(digits)] if digits else ["<h1>unshift: results</h1>"]
    for item, section in sections.SECTIONS.items():
        if item in results:
            parts += section(results[item], picture)
    parts.append(_sources(results))
    write_atomically(folder / "index.html", _PAGE.substitute(body="\n".join(parts)).encode())


def without_pictures(results: dict[str, Any]) -> dict[str, Any]:
    """Leave the pixels out of results: they are in the page, and can be made again from the seed."""
    return {
        key: without_pictures(value) if isinstance(value, dict) else value
        for key, value in results.items()
        if key != "pictures" or isinstance(value, str)
    }


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


def _sources(results: dict[str, Any]) -> str:
    lines = ["Made by <code>unshift reproduce</code>:"]
    for item, cases in results.items():
        for case, result in cases.items():
            facts = ", ".join(f"{key} {value}" for key, value in result["provenance"].items() if value is not None)
            lines.append(f"{escape(item)}, {escape(case)}: {escape(facts)}, {result['seconds']:.0f} s")
    return f'<p class="soft">{"<br>".join(lines)}</p>'
