"""The items: the paper's tables and figures, and measurements beyond them. Each is a module here and a line in ITEMS.

A module has

- a docstring: its title, then ``Claim:``, ``Paper:`` (the paper's value) and ``Cost:``;
- ``CASES``: from the name of each case to the names of what it needs on the computer (:mod:`reproduction.sources`);
- ``measure(case, options)``: returns plain data, which ``results/`` keeps as JSON;
- ``tables(results, case)``: returns the tables, paragraphs and pictures of a case, from the results of all cases;
- optionally ``summary(results)``: the same for several cases together.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

__all__ = ["ALIASES", "ITEMS", "find", "header"]

ITEMS = [
    "table1",
    "fig1",
    "fig3",
    "table2",
    "fig4",
    "volumes",
    "rotation",
    "poses",
    "scenes",
    "seam",
    "photographs",
    "few",
    "imagenet",
    "rivals",
    "genomes",
    "light-curves",
    "pages",
    "confidence",
    "moves",
    "noise",
    "unaligned",
]
ALIASES = {"fig5": "volumes", "fig6": "rotation"}
"""The paper's numbers of items that have a name of their own."""


def find(name: str) -> Any:
    """Return the module of an item, by its name or by the paper's number, such as "fig5".

    Raises:
        ValueError: If there is no such item. The message lists those there are.
    """
    name = ALIASES.get(name, name)
    if name not in ITEMS:
        raise ValueError(f"no item {name!r}; there are {', '.join(ITEMS)}")
    return import_module(f"reproduction.items.{name.replace('-', '_')}")


def header(item: Any) -> dict[str, str]:
    """Return the parts of an item's docstring: ``title``, ``claim``, ``paper`` and ``cost``."""
    title, _, body = item.__doc__.partition("\n\n")
    parts = {"title": title.strip().removesuffix(".")}
    for name, text in re.findall(r"^(Claim|Paper|Cost): (.*?)(?=\n\S|\n\n|\Z)", body, re.M | re.S):
        parts[name.lower()] = " ".join(text.split())
    return parts
