"""What a run leaves in its folder: results as JSON, figures, and one HTML page of them.

The page is self-contained, so that it can be mailed. A folder keeps what earlier runs left there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from unshift.experiments.catalogue import experiments
from unshift.experiments.record import Block, Picture, Results
from unshift.experiments.renderers import html
from unshift.weights import write_atomically

__all__ = ["read", "without_pictures", "write_blocks", "write_page", "write_results"]


def read(folder: Path) -> dict[str, Results]:
    """Return the results that earlier runs left in ``folder``, by experiment and case.

    Raises:
        ValueError: If its ``results.json`` is something else.
    """
    path = folder / "results.json"
    if not path.exists():
        return {}
    names = {name: each.name for each in experiments() for name in (each.alias, each.name)}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {names[item]: dict(cases) for item, cases in stored.items() if item in names}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is not a results file; choose another --out") from error


def write_results(results: dict[str, Results], folder: Path) -> None:
    """Write the numbers to ``folder/results.json``."""
    text = json.dumps(without_pictures(results), indent=1) + "\n"
    write_atomically(folder / "results.json", text.encode())


def write_page(results: dict[str, Results], folder: Path) -> None:
    """Write the page, and each figure as a file.

    Args:
        results: All results of the folder. Those of earlier runs come without their pixels: a figure made of
            those is kept as it was drawn then.
        folder: Where the page, ``index.html``, goes.
    """

    title, sentence, parts = "unshift: results", "", []
    for experiment in experiments():
        if cases := results.get(experiment.name):
            title, sentence = experiment.headline(cases) or (title, sentence)
            blocks = experiment.summary(cases) if experiment.summary and len(cases) > 1 else []
            for case in cases:
                blocks += experiment.show(case, cases)
            parts += [f"<h2>{escape(experiment.heading)}</h2>", f"<p>{escape(experiment.claim)}</p>"]
            parts.append(html(blocks, _linked(folder)))
    _write(folder, title, sentence, [*parts, _sources(results)])


def write_blocks(folder: Path, title: str, sentence: str, blocks: Sequence[Block]) -> None:
    """Write a page of some blocks, and each figure as a file, to ``folder``."""
    _write(folder, title, sentence, [html(blocks, _linked(folder))])


def _linked(folder: Path) -> Callable[[Picture], str]:
    """Return a function that draws a figure to a file and returns it as a link that holds it."""

    def link(picture: Picture) -> str:
        path = folder / f"{picture.name}.png"
        if picture.draw:
            path.write_bytes(picture.draw())
        return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}" if path.exists() else ""

    return link


def _write(folder: Path, title: str, sentence: str, parts: Sequence[str]) -> None:
    top = f"<h1>{escape(title)}</h1><p>{escape(sentence)}</p>"
    template = Template(resources.files("unshift.experiments").joinpath("report.html").read_text(encoding="utf-8"))
    write_atomically(folder / "index.html", template.substitute(body="\n".join([top, *parts])).encode())


def without_pictures(results: dict[str, Any]) -> dict[str, Any]:
    """Leave the pixels out of results: they are in the page, and can be made again from the seed."""
    return {
        key: without_pictures(value) if isinstance(value, dict) else value
        for key, value in results.items()
        if key != "pictures" or isinstance(value, str)
    }


def _sources(results: dict[str, Results]) -> str:
    lines = ["Made by <code>unshift reproduce</code>:"]
    for name, cases in results.items():
        for case, result in cases.items():
            facts = ", ".join(f"{key} {value}" for key, value in result["provenance"].items() if value is not None)
            lines.append(f"{escape(name)}, {escape(case)}: {escape(facts)}, {result['seconds']:.0f} s")
    return f'<p class="soft">{"<br>".join(lines)}</p>'
