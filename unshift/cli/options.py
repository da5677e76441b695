"""What the options are made of: their choices, how they are read, and those that several commands share."""

from __future__ import annotations

import contextlib
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class Preset(StrEnum):
    """The presets, by name: the library's own table would cost the import of PyTorch."""

    paper = "paper"
    dense = "dense"
    lines = "lines"
    seam = "seam"
    sequence = "sequence"
    scene = "scene"


class TurnGroup(StrEnum):
    """The groups of turns, by name."""

    mirror = "mirror"
    half = "half"
    quarter = "quarter"
    flips = "flips"
    strand = "strand"
    cube = "cube"


class Loss(StrEnum):
    """What enters on one side when an image leaves on the other."""

    circular = "circular"
    zeros = "zeros"
    edge = "edge"
    crop = "crop"


class BadOption(typer.BadParameter):
    """A value that cannot be read; the message names the option itself."""

    def format_message(self) -> str:
        """Return the message as it is."""
        return self.message


def read_size(text: str, option: str = "--size") -> tuple[int, int]:
    """Read ``32`` or ``32x48``."""
    found = re.fullmatch(r"(\d{1,5})(?:x(\d{1,5}))?", text)
    height, width = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not height or not width:
        raise BadOption(f"{option} takes one number (32) or height x width (32x48), got {text!r}")
    return height, width


def read_window(text: str) -> tuple[int, int]:
    """Read ``--window``, as ``--size`` is."""
    return read_size(text, "--window")


def read_scene(text: str) -> tuple[int, int]:
    """Read ``--scene``, as ``--size`` is."""
    return read_size(text, "--scene")


def read_scopes(text: str) -> list[int | None]:
    """Read ``0-8``, ``0,2,4-6`` or ``0,any``; None is any move."""
    scopes: list[int | None] = []
    for part in text.split(","):
        if part.strip() == "any":
            scopes.append(None)
            continue
        found = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())
        if not found or int(found[2] or found[1]) < int(found[1]):
            raise BadOption(f"--scopes takes whole numbers (0-8, or 0,2,4) and any, got {text!r}")
        scopes += range(int(found[1]), int(found[2] or found[1]) + 1)
    return scopes


def read_share(text: str) -> int | float:
    """Read a number of images (``500``) or a share (``0.1``)."""
    with contextlib.suppress(ValueError):
        return int(text) if text.isdigit() else float(text)
    raise BadOption(f"--validation takes a number of images (500) or a share of them (0.1), got {text!r}")


Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]
Data = Annotated[
    str, typer.Option("--data", help="A data set's name, a folder of images, one image, a .npy or .npz file.")
]
Model = Annotated[str, typer.Option("--restorer", help="A shipped restorer's name, or a file that `fit` wrote.")]
RestorerFile = Annotated[Path, typer.Option("--out", help="The file to write, usually .safetensors.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite OUT.")]
Split = Annotated[
    str | None, typer.Option("--split", help="Part of a data set, or subfolder of a folder. Default: test, if any.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Take only the first N images.", metavar="N")]
Classifier = Annotated[
    str | None,
    typer.Option("--classifier", help="A shipped classifier's name, a TorchScript or .pt2 file, or module:function."),
]
Scopes = Annotated[
    Any,
    typer.Option(
        parser=read_scopes,
        metavar="LIST",
        help="Largest moves to try, in the restorer's unit: 0-8, or 0,2,4; any is any move.",
        show_default="0-8 pixels, or 0,10,20,45,90,180 degrees",
    ),
]
Share = Annotated[Any, typer.Option(parser=read_share, metavar="N|SHARE", help="Images held out: a number or a share.")]
RealMoves = Annotated[
    Loss,
    typer.Option(
        help="What fills the gap behind a moved image: its other side (circular), zeros, its edge, more of it (crop)."
    ),
]
MinConfidence = Annotated[
    float,
    typer.Option(
        min=0, max=1, metavar="SHARE", help="Pass images of a lower confidence unchanged.", show_default=False
    ),
]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Skip files that cannot be read, and name them at the end.")
]
# What is done to images before the network sees them: the same four, with the same meaning, wherever images are read.
Size = Annotated[
    Any,
    typer.Option(parser=read_size, metavar="N|HxW", help="First scale the images to this size.", show_default=False),
]
Window = Annotated[
    Any,
    typer.Option(
        parser=read_window,
        metavar="N|HxW",
        help="Find objects like these in larger scenes, and cut out a window of this size.",
        show_default=False,
    ),
]
Scene = Annotated[
    Any,
    typer.Option(
        parser=read_scene,
        metavar="N|HxW",
        help="Train on scenes of this size.",
        show_default="twice the window",
    ),
]
Crop = Annotated[
    bool, typer.Option("--crop", help="Keep proportions: scale to cover the size, and cut the middle out.")
]
Channels = Annotated[
    int | None, typer.Option(metavar="N", help="Read images as 1 (grey) or 3 (RGB).", show_default=False)
]
Pad = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Then add N black pixels on every side, for the network to see."),
]
