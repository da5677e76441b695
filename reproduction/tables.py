"""Tables and pictures, and the one function that renders them: for a terminal, or as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Picture:
    """A figure with notes below. ``draw`` returns the PNG; it is None if the pixels are not stored."""

    name: str
    alt: str
    draw: Callable[[], bytes] | None
    notes: Sequence[str] = ()


Block = str | Table | Picture
"""A paragraph, a table or a picture."""


def render(
    blocks: Iterable[Block],
    form: Literal["terminal", "markdown"],
    link: Callable[[Picture], str] = lambda _: "",
) -> str:
    """Return blocks as text.

    Args:
        blocks: The blocks of an item.
        form: Aligned columns for a terminal, or Markdown.
        link: Returns the target of a picture, or an empty string to leave the picture out.
    """
    parts = []
    for block in blocks:
        if isinstance(block, str):
            parts.append(block)
            continue
        if isinstance(block, Table):
            parts.append((_aligned if form == "terminal" else _markdown)(block))
        elif form == "markdown" and (target := link(block)):
            parts.append(f"![{block.alt}]({target})")
        if block.notes:
            parts.append("\n".join(block.notes) if form == "terminal" else f"<sub>{'<br>'.join(block.notes)}</sub>")
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
