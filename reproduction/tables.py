"""Tables and pictures, and the one function that renders them: for a terminal, as Markdown or as HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

__all__ = ["Block", "Picture", "Row", "Style", "Table", "render"]

Style = Literal["plain", "bare", "restored", "detail", "aside", "paper"]
"""The look of a row: an unprotected model, a restored one, a detail of the row above, an aside, the paper's value."""


@dataclass(frozen=True)
class Row:
    """A row of a table.

    ``form`` is a format such as ``"{:.2f}"``, or one for each value. Strings are written as they are, None as "-".
    """

    label: str
    values: Sequence[float | str | None]
    style: Style = "plain"
    form: str | Sequence[str] = "{:.2f}"

    @property
    def cells(self) -> list[str]:
        """The values as text."""
        forms = [self.form] * len(self.values) if isinstance(self.form, str) else self.form
        return [
            value if isinstance(value, str) else "-" if value is None else form.format(value)
            for value, form in zip(self.values, forms, strict=True)
        ]


@dataclass(frozen=True)
class Table:
    """Rows of measured values under named columns, with notes below. The first ``left`` columns are flush left."""

    corner: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    left: int = 0

    def select(self, *columns: str) -> Table:
        """Return the table with these columns only, and without its notes."""
        indices = [list(self.columns).index(column) for column in columns]
        rows = [replace(row, values=[row.cells[k] for k in indices], form="{}") for row in self.rows]
        return replace(self, columns=columns, rows=rows, notes=())


@dataclass(frozen=True)
class Picture:
    """A figure with notes below. ``draw`` returns the PNG; it is None if the pixels are not stored."""

    name: str
    alt: str
    draw: Callable[[], bytes] | None
    notes: Sequence[str] = ()


Block = str | Table | Picture
"""A paragraph (words between backticks are code), a table or a picture."""


def render(
    blocks: Iterable[Block],
    form: Literal["terminal", "markdown", "html"],
    link: Callable[[Picture], str] = lambda _: "",
) -> str:
    """Return blocks as text.

    Args:
        blocks: What an item shows.
        form: Aligned columns for a terminal, Markdown, or HTML for the body of a page.
        link: Returns the target of a picture's image tag, or an empty string to leave the picture out.
    """
    parts = []
    for block in blocks:
        if isinstance(block, str):
            parts.append(f"<p>{_code(block)}</p>" if form == "html" else block)
            continue
        if isinstance(block, Table):
            parts.append({"terminal": _aligned, "markdown": _markdown, "html": _html}[form](block))
        elif form != "terminal" and (target := link(block)):
            image = f'<img alt="{escape(block.alt)}" src="{escape(target)}">'
            parts.append(image if form == "html" else f"![{block.alt}]({target})")
        if block.notes:
            notes = map(_code, block.notes) if form == "html" else block.notes
            parts.append("\n".join(notes) if form == "terminal" else f"<sub>{'<br>'.join(notes)}</sub>")
    return ("\n" if form == "terminal" else "\n\n").join(parts)


def _aligned(table: Table) -> str:
    labels = [table.corner, *(("  " if row.style == "detail" else "") + row.label for row in table.rows)]
    lines = [list(table.columns), *(row.cells for row in table.rows)]
    widths = [max(6, *map(len, column)) for column in zip(*lines, strict=True)]
    wide = max(map(len, labels))
    text = [
        "  ".join([label.ljust(wide), *(cell.rjust(width) for cell, width in zip(line, widths, strict=True))]).rstrip()
        for label, line in zip(labels, lines, strict=True)
    ]
    return "\n".join([text[0], "-" * (wide + sum(widths) + 2 * len(widths)), *text[1:]])


def _markdown(table: Table) -> str:
    align = "|---" * (1 + table.left) + "|---:" * (len(table.columns) - table.left) + "|"
    lines = [f"| {' | '.join([table.corner, *table.columns])} |", align]
    for row in table.rows:
        bold = "**" if row.style == "restored" else ""
        lines.append(f"| {' | '.join(f'{bold}{cell}{bold}' for cell in [row.label, *row.cells])} |")
    return "\n".join(lines)


def _html(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    lines = [f"<tr><th>{escape(table.corner)}</th>{head}</tr>"]
    for row in table.rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
        lines.append(f'<tr class="{row.style}"><th>{escape(row.label)}</th>{cells}</tr>')
    return f"<table>{''.join(lines)}</table>"


def _code(text: str) -> str:
    return re.sub("`(.*?)`", r"<code>\1</code>", escape(text))
