"""Hooks of mkdocs for the site: docstrings are partly reStructuredText, pages are Markdown."""

from __future__ import annotations

import re
from typing import Any

_ROLE = re.compile(r":(?:func|class|meth|data|mod):<code>~?([^<]*)</code>")


def on_page_content(html: str, **_: Any) -> str:
    """Show a docstring's ``:func:`unshift.load``` as plain code, without its role."""
    return _ROLE.sub(r"<code>\1</code>", html)
