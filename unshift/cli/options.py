"""What the options are made of: their choices, how they are read, and those that several commands share."""

from __future__ import annotations

import contextlib
import re
from enum import StrEnum
from typing import Annotated, Any

import typer


class Kind(StrEnum):
    """What a restorer undoes."""

    shift = "shift"
    rotation = "rotation"


class Preset(StrEnum):
    """The presets, by name: the library's own table would cost the import of PyTorch."""

    paper = "paper"
    dense = "dense"
    seam = "seam"


def read_size(text: str) -> tuple[int, int]:
    """Read ``32`` or ``32x48``."""
    found = re.fullmatch(r"(\d{1,5})(?:x(\d{1,5}))?", text)
    height, width = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not height or not width:
        raise typer.BadParameter(f"wanted is 32 or 32x48 (height x width), got {text!r}")
    return height, width


def read_scopes(text: str) -> list[int]:
    """Read ``0-8`` or ``0,2,4-6``."""
    scopes: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())
        if not found or int(found[2] or found[1]) < int(found[1]):
            raise typer.BadParameter(f"wanted are pixels such as 0-8 or 0,2,4, got {text!r}")
        scopes += range(int(found[1]), int(found[2] or found[1]) + 1)
    return scopes


def read_share(text: str) -> int | float:
    """Read a number of images (``500``) or a share (``0.1``)."""
    with contextlib.suppress(ValueError):
        return int(text) if text.isdigit() else float(text)
    raise typer.BadParameter(f"wanted is a number of images or a share such as 0.1, got {text!r}")


Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]
Data = Annotated[
    str, typer.Option("--data", help="A dataset's name, a folder of images, one image, a .npy or .npz file.")
]
Model = Annotated[str, typer.Option("--restorer", help="A shipped restorer's name, or a file that `fit` wrote.")]
Split = Annotated[
    str | None, typer.Option("--split", help="Part of a dataset, or subfolder of a folder. Default: test, if any.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Take the first so many images only.")]
Scopes = Annotated[
    Any, typer.Option(parser=read_scopes, metavar="LIST", help="Largest shifts to try, in pixels: 0-8, or 0,2,4.")
]
Share = Annotated[Any, typer.Option(parser=read_share, metavar="N|SHARE", help="Images held out: a number or a share.")]
Size = Annotated[
    Any, typer.Option(parser=read_size, metavar="N|HxW", help="Scale the images to this size.", show_default=False)
]
