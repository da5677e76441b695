"""Blocks as text for a terminal, as HTML, as Markdown: the same three renderers for every experiment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from html import escape

from unshift.experiments.record import Block, Picture, Table, Text

__all__ = ["html", "markdown", "terminal"]

Link = Callable[[Picture], str]
"""From a picture to what its image tag links to; an empty string leaves the picture out."""


def terminal(blocks: Iterable[Block]) -> str:
    """Return blocks as aligned lines for a terminal; of a picture, its notes."""
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Text):
            lines.append(block.text)
            continue
        if isinstance(block, Table):
            labels = [block.corner, *(("  " if row.style == "detail" else "") + row.label for row in block.rows)]
            cells = [list(block.columns), *(row.cells for row in block.rows)]
            widths = [max(6, *map(len, column)) for column in zip(*cells, strict=True)]
            wide = max(map(len, labels))
            for label, row in zip(labels, cells, strict=True):
                padded = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
                lines.append(f"{label:<{wide}}  {'  '.join(padded)}".rstrip())
            lines.insert(-len(block.rows), "-" * (wide + sum(widths) + 2 * len(widths)))
        lines += block.notes
    return "\n".join(lines)


def html(blocks: Iterable[Block], link: Link) -> str:
    """Return blocks as HTML to put into a page; rows have their style as a class."""
    parts = []
    for block in blocks:
        if isinstance(block, Text):
            parts.append(f"<p>{_code(block.text)}</p>")
            continue
        if isinstance(block, Table):
            head = "".join(f"<th>{escape(column)}</th>" for column in block.columns)
            lines = [f"<tr><th>{escape(block.corner)}</th>{head}</tr>"]
            for row in block.rows:
                cells = "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
                lines.append(f'<tr class="{row.style}"><th>{escape(row.label)}</th>{cells}</tr>')
            parts.append(f'<div class="scroll"><table>{"".join(lines)}</table></div>')
        elif source := link(block):
            parts.append(f'<img alt="{escape(block.alt)}" src="{escape(source)}">')
        if block.notes:
            parts.append(f'<p class="soft">{"<br>".join(map(_code, block.notes))}</p>')
    return "\n".join(parts)


def markdown(blocks: Iterable[Block], link: Link) -> str:
    """Return blocks as Markdown; rows of a restored model are bold."""
    parts = []
    for block in blocks:
        if isinstance(block, Text):
            parts.append(block.text)
            continue
        if isinstance(block, Table):
            align = "|---" * (1 + block.left) + "|---:" * (len(block.columns) - block.left) + "|"
            lines = [f"| {' | '.join([block.corner, *block.columns])} |", align]
            for row in block.rows:
                bold = "**" if row.style == "restored" else ""
                lines.append(f"| {' | '.join(f'{bold}{cell}{bold}' for cell in [row.label, *row.cells])} |")
            parts.append("\n".join(lines))
        elif target := link(block):
            parts.append(f"![{block.alt}]({target})")
        if block.notes:
            parts.append(f"<sub>{'<br>'.join(block.notes)}</sub>")
    return "\n\n".join(parts)


def _code(text: str) -> str:
    return re.sub("`(.*?)`", r"<code>\1</code>", escape(text))
