"""The options of ``unshift fit`` that no other command has: what is undone, how it is learnt, what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unshift.cli.options import Preset, TurnGroup

TrainingData = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A data set's name, a folder of images or .tar shards, a .npy or .npz file, FASTA."
    ),
]
Network = Annotated[
    Preset,
    typer.Option(
        help="paper: 486 weights; lines or dense: centred objects; seam: photos; sequence: genomes; scene: scenes."
    ),
]
TrainingSplit = Annotated[str | None, typer.Option(help="Part of a data set to train on. Default: train, if any.")]

# What is undone.
Turns = Annotated[
    TurnGroup | None,
    typer.Option(metavar="GROUP", help="Undo turns as well as shifts: mirror, half, quarter, flips, strand or cube."),
]
Strand = Annotated[
    bool, typer.Option("--strand", help="The same as --turns strand: undo a sequence's reverse complement.")
]
Ring = Annotated[
    int | None,
    typer.Option(metavar="AXIS", help="Undo shifts along this axis only: 0 is the first of the image, -1 the last."),
]
Rotation = Annotated[
    bool,
    typer.Option("--rotation", help="Undo rotations of square images by any angle. For the presets paper and dense."),
]
Ground = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FOLDER",
        help="The background of scenes: plain, noise, clutter (pieces of other images), or a folder of images.",
        show_default="clutter",
    ),
]
Scope = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="The largest move that loses pixels.", show_default="an eighth of the side"),
]
Unaligned = Annotated[
    bool, typer.Option("--unaligned", help="The images are not aligned: fit and restore them alternately.")
]

# How it is learnt.
Epochs = Annotated[int | None, typer.Option(help="Passes over the images. Default: the preset's.")]
BatchSize = Annotated[int | None, typer.Option(help="Images per step. Default: the preset's.")]
LearningRate = Annotated[float | None, typer.Option(help="Peak of the one-cycle schedule. Default: the preset's.")]
Average = Annotated[
    float | None,
    typer.Option(help="Use a running average of the weights, with this decay per step, such as 0.999."),
]
Patience = Annotated[int, typer.Option(metavar="N", help="Stop after N epochs without improvement.")]
Mirror = Annotated[bool, typer.Option("--mirror", help="Show each image flipped half of the time: for photos.")]
Windows = Annotated[
    bool, typer.Option("--windows", help="Show half of the batches through a random window: for photos.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same weights.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, ...")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads. Default: PyTorch's.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Processes that read image files while it trains.",
        show_default="2 for 200 or more, on more than 2 cores",
    ),
]

# What is kept, and what is left out.
State = Annotated[Path | None, typer.Option(help="Where to keep the state. Default: OUT.checkpoint.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where a killed run stopped.")]
StartOver = Annotated[bool, typer.Option("--force", help="Overwrite OUT, and start over.")]
DropUnusable = Annotated[bool, typer.Option("--drop-unusable", help="Leave out constant images and moved copies.")]
Test = Annotated[bool, typer.Option("--test/--no-test", help="Measure on the test split too, if any.")]
