"""What an experiment is: a claim, the paper's value, its cost, how it is measured and what it shows.

An experiment is one file with one ``EXPERIMENT`` record, listed by one line in ``catalogue.py``. It shows blocks
(texts, tables, pictures); ``renderers.py`` turns any block into text for a terminal, HTML or Markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

__all__ = ["Block", "Case", "Experiment", "Options", "Picture", "Result", "Results", "Row", "Style", "Table", "Text"]

Result = dict[str, Any]
"""One measurement as JSON holds it. Pixels go under the key ``pictures``, which is not stored."""
Results = dict[str, Result]
"""An experiment's measurements, by case."""
Style = Literal["plain", "bare", "restored", "detail", "aside", "paper"]
"""How a row looks: an unprotected model, a restored one, a detail of the row above, an aside, the paper's value."""


@dataclass(frozen=True)
class Row:
    """A row of a table: measured values, how they are written, and how the row looks.

    ``form`` is a format such as ``"{:.2f}"``, or one for each value. Strings are written as they are, ``None`` as "-".
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
        at = [list(self.columns).index(column) for column in columns]
        rows = [replace(row, values=[row.cells[k] for k in at], form="{}") for row in self.rows]
        return replace(self, columns=columns, rows=rows, notes=())


@dataclass(frozen=True)
class Text:
    """A paragraph. Words between backticks are code."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A figure, with notes below. ``draw`` makes the PNG; without it, the file of an earlier run is shown."""

    name: str
    alt: str
    draw: Callable[[], bytes] | None
    notes: Sequence[str] = ()


Block = Text | Table | Picture


@dataclass(frozen=True)
class Options:
    """How a run was asked for: train first, take a few images only, draw with these seeds, show progress.

    ``weights`` are files of classifiers that others trained, by name.
    """

    train: bool = False
    quick: bool = False
    seeds: tuple[int, ...] = (0,)
    progress: bool = True
    weights: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """What an experiment is measured on: the data set that it needs, and what loads it."""

    name: str
    data: str
    load: Callable[[Options], Any]
    trainable: bool = False
    """whether ``load`` can train its parts itself"""


@dataclass(frozen=True)
class Experiment:
    """A claim and how it is measured."""

    name: str
    title: str
    claim: str
    cost: str
    """time on two CPU cores"""
    cases: Sequence[Case]
    measure: Callable[[Any], Result]
    """from a loaded case to numbers"""
    show: Callable[[str, Results], list[Block]]
    """from a case and all that was measured to what there is to see of that case"""
    item: str = ""
    """in the paper, e.g. "Table 1"; empty where the paper has no such thing"""
    paper: Mapping[str, Any] = field(default_factory=dict)
    """the paper's value, by case"""
    summary: Callable[[Results], list[Block]] | None = None
    """what several cases show together"""
    headline: Callable[[Results], tuple[str, str] | None] = lambda _: None
    """a title and a sentence for the top of a report"""

    @property
    def alias(self) -> str:
        """The paper's item as a name, e.g. "fig5"; the experiment's own name where there is none."""
        return self.item.lower().replace("figure ", "fig").replace("table ", "table") or self.name

    @property
    def heading(self) -> str:
        """The title with the paper's item."""
        return f"{self.item}: {self.title}" if self.item else f"Not in the paper: {self.title}"
