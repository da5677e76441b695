"""``unshift fit``: train a restorer, safe from kills and typing errors."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshift.cli.allocator import keep_freed_memory
from unshift.cli.classifiers import at_its_size, load_classifier
from unshift.cli.errors import first_line
from unshift.cli.fitted import finish, save
from unshift.cli.options import (
    Channels,
    Classifier,
    Crop,
    Json,
    Loss,
    Pad,
    Preset,
    RealMoves,
    Scene,
    Share,
    Size,
    SkipUnreadable,
    TurnGroup,
    Window,
)
from unshift.cli.outputs import check_output
from unshift.cli.prepared_data import choose_split, open_prepared, preparation
from unshift.cli.processes import restarted

if TYPE_CHECKING:
    from unshift.coordinates import Coordinates


def fit(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A data set's name, a folder of images or .tar shards, a .npy or .npz file, FASTA."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The file to write; .safetensors by custom.")],
    preset: Annotated[
        Preset,
        typer.Option(
            help="paper: 486 weights; lines or dense: centred objects; seam: photos; sequence: genomes; scene: scenes."
        ),
    ] = Preset.paper,
    turns: Annotated[
        TurnGroup | None,
        typer.Option(
            metavar="GROUP", help="Undo turns as well as shifts: mirror, half, quarter, flips, strand or cube."
        ),
    ] = None,
    strand: Annotated[
        bool, typer.Option("--strand", help="The same as --turns strand: undo a sequence's reverse complement.")
    ] = False,
    ring: Annotated[
        int | None,
        typer.Option(
            metavar="AXIS", help="Undo shifts along this axis only: 0 is the first of the image, -1 the last."
        ),
    ] = None,
    rotation: Annotated[
        bool, typer.Option("--rotation", help="Undo rotations, by any angle, of square images: paper or dense.")
    ] = False,
    window: Window = None,
    scene: Scene = None,
    background: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FOLDER",
            help="What is behind them there: plain, noise, clutter (pieces of other images), or a folder of images.",
            show_default="clutter",
        ),
    ] = None,
    moves: RealMoves = Loss.circular,
    scope: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="The largest of such moves, in pixels.", show_default="an eighth of the side"
        ),
    ] = None,
    unaligned: Annotated[
        bool, typer.Option("--unaligned", help="The images are not aligned: fit and restore them in turn.")
    ] = False,
    classifier: Classifier = None,
    size: Size = None,
    crop: Crop = False,
    channels: Channels = None,
    pad: Pad = None,
    split: Annotated[str | None, typer.Option(help="Part of a data set to train on. Default: train, if any.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the images. Default: the preset's.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step. Default: the preset's.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Peak of the one-cycle schedule. Default: the preset's.")
    ] = None,
    average: Annotated[
        float | None,
        typer.Option(help="Use a running average of the weights that forgets by this factor a step, such as 0.999."),
    ] = None,
    validation: Share = "0.1",
    patience: Annotated[int, typer.Option(metavar="N", help="Stop after N epochs without improvement.")] = 5,
    mirror: Annotated[
        bool, typer.Option("--mirror", help="Show each image flipped half of the time: for photos.")
    ] = False,
    windows: Annotated[
        bool, typer.Option("--windows", help="Show half of the batches through a random window: for photos.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same weights.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, ...")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads. Default: PyTorch's.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that read image files meanwhile.", show_default="2 for many")
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Where to keep the state. Default: OUT.checkpoint.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a killed run stopped.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT, and start over.")] = False,
    drop_unusable: Annotated[
        bool, typer.Option("--drop-unusable", help="Leave out constant images and moved copies.")
    ] = False,
    skip_unreadable: SkipUnreadable = False,
    test: Annotated[bool, typer.Option("--test/--no-test", help="Measure on the test split too, if any.")] = True,
    as_json: Json = False,
) -> None:
    """Train a restorer on unlabelled, unmoved images and write it to one small file.

    The images are all that is needed: no labels, no moved copies of them. It learns to undo circular shifts,
    or, with --turns, --ring, --rotation or --window, another kind of move. While it trains, the state is kept in a
    checkpoint; after a kill, the same command with --resume goes on and ends in the same weights. The file
    remembers how its images were scaled and padded, so that evaluate and verify do the same. With --moves zeros,
    edge or crop the images are moved for real, and lose what leaves; with crop, the net sees windows that are
    smaller by --scope pixels on every side.

    With --unaligned the images need not stand where they should: fitting and restoring them alternate until they
    no longer move. One move of all of them remains free; a --classifier settles it, by being surest of them.

    \b
    Examples:
      unshift fit mnist-10k --size 32 --out digits.safetensors
      unshift fit cifar10 --pad 4 --out cifar.safetensors
      unshift fit photos/ --preset seam --size 224 --crop --out photos.safetensors
      unshift fit mnist-10k --preset dense --turns quarter --out turned.safetensors
      unshift fit panoramas/ --size 64x512 --ring -1 --out panoramas.safetensors
      unshift fit mnist-10k --size 112 --preset dense --rotation --out rotated.safetensors
      unshift fit mnist-10k --size 32 --window 32 --preset scene --out scenes.safetensors
      unshift fit cifar10 --preset seam --moves zeros --scope 4 --out cifar.safetensors
      unshift fit mnist-10k --size 32 --preset lines --unaligned --classifier lenet5-mnist --out mine.safetensors
      unshift fit genomes.fa --preset sequence --strand --out mine.safetensors
      unshift fit images.npy --preset dense --epochs 30 --out mine.safetensors --resume
    """
    import torch

    from unshift import training, weights

    keep_freed_memory()
    _check_kind([turns is not None, strand, ring is not None, rotation, window is not None], (scene, background))
    turns = TurnGroup.strand if strand else turns
    steps = preparation(size, crop, channels, pad)
    state = checkpoint or Path(f"{out}.checkpoint")
    resume = resume or restarted()
    check_output(out, state, resume, force)
    _check_device(device)
    if threads:
        torch.set_num_threads(threads)
    part = choose_split(data, split, "train")
    images = open_prepared(data, part, steps)
    # Opened now: a test split that cannot be had should fail before an hour of training, not after.
    tested = test and window is None and moves is Loss.circular and part == "train" and choose_split(data, None, "test")
    held = open_prepared(data, "test", steps) if tested else None

    shape = tuple(images.images[0].shape[1:]) if rotation else ()
    coordinates = _coordinates(turns, ring, rotation, window, preset, shape)
    settings: dict[str, Any] = {
        "augment": [name for name, asked in (("mirror", mirror), ("windows", windows)) if asked],
        "preset": preset.value,
        "seed": seed,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "average": average,
    }
    lossy: dict[str, Any] = {"moves": moves.value, "scope": scope, "aligned": not unaligned}
    lossy["classifier"] = at_its_size(load_classifier(classifier), classifier) if classifier else None
    scenes = {} if window is None else {"scene": scene, "background": background or "clutter"}
    if resume and out.exists() and not state.exists():
        restorer = weights.load(out)
        found = {**restorer.metadata, "preparation": restorer.trained_on.get("preparation")}
        asked = {"data": images.name, "preparation": steps, "coordinates": coordinates.describe(), **settings}
        _check_same_run(out, found, asked)
    else:
        with _told_of(state):
            restorer = training.fit(
                images.images,
                **settings,
                **scenes,
                **lossy,
                coordinates=coordinates,
                validation=validation,
                patience=patience,
                device=device,
                checkpoint=state,
                resume=resume,
                drop_unusable=drop_unusable,
                skip_unreadable=skip_unreadable,
                workers=_readers(images.images) if workers is None else workers,
                data_name=images.name,
            )
        restorer.trained_on["preparation"] = steps
        save(restorer, out)
    finish(restorer, out, held, as_json)


def _check_kind(asked: list[bool], scenes: tuple[Any, Any]) -> None:
    """Refuse several kinds of moves at once, and what belongs to the last of them, scenes, without it."""
    if sum(asked) > 1:
        raise ValueError("give one of --turns, --strand, --ring, --rotation and --window, not several")
    if not asked[-1] and scenes != (None, None):
        raise ValueError("--scene and --background are for scenes: give the --window to cut out of them, too")


def _coordinates(
    turns: TurnGroup | None, ring: int | None, rotation: bool, window: Any, preset: Preset, size: tuple[int, ...]
) -> Coordinates:
    """Return what is to be undone, of images of ``size``."""
    from unshift.coordinates import Canvas, Polar, Ring, Turns

    if turns is not None:
        return Turns(turns.value)
    if ring is not None:
        return Ring(ring)
    return Polar.preset(preset.value, size) if rotation else Canvas(window=window)


@contextlib.contextmanager
def _told_of(state: Path) -> Iterator[None]:
    """Say after Ctrl-C where the state is, if it is, and of a broken file how to do without."""
    from unshift.data.reading import UnreadableImage

    try:
        yield
    except UnreadableImage as error:
        raise ValueError(f"{error}; --skip-unreadable passes over such files") from error
    except KeyboardInterrupt:
        kept = f"the state is in {state}: the same command with --resume goes on"
        print(f"\n{kept if state.exists() else 'stopped before there was a state to keep'}", file=sys.stderr)
        raise


def _readers(images: Any) -> int:
    """Return how many processes read: none for what is in memory, or for so few files that they would start in vain."""
    import torch

    return 0 if isinstance(images, torch.Tensor | list) or len(images) < 200 else 2


def _check_device(device: str) -> None:
    import torch

    try:
        torch.empty(1, device=device)
    # RuntimeError for a word it does not know, AssertionError for a build without it.
    except Exception as error:
        raise ValueError(f"--device {device} cannot be used here ({first_line(error)})") from error


def _check_same_run(out: Path, found: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """``--resume`` of a finished run has nothing to do, but it must be that run."""
    other = [key for key, value in asked.items() if value is not None and found.get(key) != value]
    if other:
        raise ValueError(f"{out} is finished, but of another run ({', '.join(other)} differ); --force overwrites it")
    print(f"{out} is finished already; --force trains it again", file=sys.stderr)
