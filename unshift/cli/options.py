"""Options that several commands share, the parsers of their values, and a command class that groups them."""

from __future__ import annotations

import contextlib
import functools
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from unshift.cli.errors import first_line, raise_interrupts, warn

OLD_NAMES = {
    "fit --moves": "--border",
    "fit --strand": "--turns strand",
    "fit --mirror": "--augment mirror",
    "fit --windows": "--augment windows",
    "evaluate --data": "",
    "evaluate --moves": "--border",
    "evaluate --scopes": "--scope",
    "evaluate --seeds": "--repeats",
    "calibrate --data": "",
    "verify --data": "",
    "verify --moves": "--max-moves",
    "verify --sample": "--limit",
    "verify --brute-force": "",
    "verify --no-brute-force": "",
    "export --size": "--image-size",
}
"""Options of version 0.2, and their new names; the next version drops them."""


class Command(TyperCommand):
    """A command that lists its options in groups and accepts their names of version 0.2."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace old names, with a warning, and parse."""
        return super().parse_args(ctx, renamed(str(self.name), args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and report the elapsed time while it prints nothing else."""
        from unshift.progress import heartbeat  # here, after the options are parsed: it imports PyTorch

        raise_interrupts()
        if ctx.meta.get("quiet") or self.name == "demo":  # the demo waits for visitors
            return super().invoke(ctx)
        with heartbeat(str(self.name)):
            return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each group."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            usual = "Arguments" if param.param_type_name == "argument" else "Options"
            if record := param.get_help_record(ctx):
                sections.setdefault(getattr(param, "rich_help_panel", None) or usual, []).append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def renamed(command: str, args: list[str]) -> list[str]:
    """Return the arguments of a command with the current names of its options. Warn of each old one."""
    words: list[str] = []
    end = args.index("--") if "--" in args else len(args)
    for word in args[:end]:
        name, _, value = word.partition("=")
        new = OLD_NAMES.get(f"{command} {name}")
        if new is None:
            words.append(word)
            continue
        warn(f"{name} is now {new or 'not needed'}; the old name will be removed in the next version")
        words += [*new.split(), *([value] if value else [])]
    return words + args[end:]


Preset = StrEnum("Preset", ["paper", "dense", "lines", "seam", "sequence", "scene", "look", "evidence"])
"""The presets of the library, repeated because importing their table would import PyTorch."""
Border = StrEnum("Border", ["circular", "zeros", "edge", "crop"])  # the pixels that fill the side that a shift vacates


def read_size(text: str) -> tuple[int, int]:
    """Parse ``32`` or ``32x48``."""
    match = re.fullmatch(r"(\d{1,5})(?:x(\d{1,5}))?", text)
    height, width = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not height or not width:
        raise typer.BadParameter(f"give one number (32) or height x width (32x48), got {text!r}")
    return height, width


def read_confidence(text: str) -> float:
    """Parse a share, or ``cautious``."""
    if text == "cautious":
        from unshift.files import CAUTIOUS  # here: it imports PyTorch

        return CAUTIOUS
    with contextlib.suppress(ValueError):
        if 0 <= float(text) <= 1:
            return float(text)
    raise typer.BadParameter(f"give a number from 0 to 1, or cautious, got {text!r}")


def read_scopes(text: str) -> list[int | None]:
    """Parse ``0-8``, ``0,2,4-6`` or ``0,any``; None is any move."""
    scopes: list[int | None] = []
    for part in map(str.strip, text.split(",")):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part)
        if part == "any":
            scopes.append(None)
        elif match and int(match[1]) <= int(match[2] or match[1]):
            scopes += range(int(match[1]), int(match[2] or match[1]) + 1)
        else:
            raise typer.BadParameter(f"give whole numbers (0-8, or 0,2,4) or any, got {text!r}")
    return scopes


def read_share(text: str) -> int | float:
    """Parse a number of images (``500``) or a share (``0.1``)."""
    with contextlib.suppress(ValueError):
        return int(text) if text.isdigit() else float(text)
    raise typer.BadParameter(f"give a number of images (500) or a share of them (0.1), got {text!r}")


def check_device(device: str) -> str:
    """Return the name of a device. Raise ``typer.BadParameter`` if it cannot be used here."""
    if device != "cpu":
        import torch

        try:
            torch.empty(1, device=device)
        # RuntimeError for an unknown word, AssertionError for a build without that kind of device.
        except Exception as error:
            raise typer.BadParameter(f"{device} cannot be used here ({first_line(error)})") from error
    return device


def set_quiet(ctx: typer.Context, quiet: bool) -> bool:
    """Store the flag where :meth:`Command.invoke` reads it."""
    ctx.meta["quiet"] = quiet
    return quiet


images_option = functools.partial(typer.Option, rich_help_panel="Images")
moves_option = functools.partial(typer.Option, rich_help_panel="Moves")
training_option = functools.partial(typer.Option, rich_help_panel="Training")
output_option = functools.partial(typer.Option, rich_help_panel="Output")

DATA_HELP = (
    "A name (see `unshift data list`), a folder of images or .tar shards, an image, or a .npy, .npz or FASTA file."
)
MODEL_HELP = "A shipped restorer (see `unshift models`), or a file that `fit` wrote."
CLASSIFIER_HELP = "A shipped classifier (lenet5-mnist), a TorchScript or .pt2 file, or module:function."
CONFIDENCE_HELP = "Leave images with a lower confidence unchanged. Default: the bound in the restorer's file, if any."
BORDER_HELP = "Fill the vacated side with the opposite side (circular), zeros, the edge, or more of the photo (crop)."

Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]
Model = Annotated[str, typer.Option("--restorer", "-r", help=MODEL_HELP, show_default=False)]
Classifier = Annotated[str | None, typer.Option("--classifier", "-c", help=CLASSIFIER_HELP, show_default=False)]
Device = Annotated[str, typer.Option(callback=check_device, metavar="NAME", help="Compute on cpu, cuda, mps, ...")]
MinConfidence = Annotated[
    Any, typer.Option(parser=read_confidence, metavar="SHARE|cautious", help=CONFIDENCE_HELP, show_default=False)
]

# The same options, with the same meaning, wherever images are read.
Split = Annotated[str | None, images_option(help="Split, or subfolder. Default: test, if any.")]
Limit = Annotated[int | None, images_option("--limit", "-n", min=1, metavar="N", help="Use the first N images only.")]
Size = Annotated[Any, images_option(parser=read_size, metavar="N|HxW", help="Scale the images to this size first.")]
Crop = Annotated[bool, images_option("--crop", help="Keep the aspect ratio: scale to cover --size, crop the centre.")]
Channels = Annotated[int | None, images_option(metavar="N", help="Convert images to 1 (grey) or 3 (RGB) channels.")]
Pad = Annotated[int | None, images_option(min=0, metavar="N", help="Add a margin of N black pixels after scaling.")]
SkipUnreadable = Annotated[bool, images_option("--skip-unreadable", help="Skip and report files that cannot be read.")]
Workers = Annotated[int | None, images_option(min=0, metavar="N", help="Number of processes that read files.")]

Borders = Annotated[Border, moves_option("--border", help=BORDER_HELP)]

RestorerFile = Annotated[Path, typer.Option("--out", "-o", help="File to write, usually .safetensors.")]
Force = Annotated[bool, output_option("--force", "-f", help="Overwrite OUT.")]
Json = Annotated[bool, output_option("--json", help="Print JSON only.")]
Quiet = Annotated[bool, output_option("--quiet", "-q", callback=set_quiet, help="Show no progress.")]
