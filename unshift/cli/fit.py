"""Train a restorer on unlabelled, unmoved images and write it to one small file.

The images need no labels and no moved copies. The restorer learns to undo circular shifts, or, with --turns,
--ring, --rotation or --window, another kind of move. While it trains, its state is kept in a checkpoint: after a
kill, the same command with --resume goes on and ends in the same weights. The file remembers how the images were
scaled and padded, so that evaluate and verify do the same.

With --moves zeros, edge or crop, the images really move during training and lose the pixels that leave them. With
crop, the network sees windows that are smaller by --scope pixels on every side.

With --unaligned, the images may stand anywhere: fitting and restoring them alternate until they no longer move. One
move, common to all of them, remains free; a --classifier settles it, by the move that makes it most confident.

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

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshift.cli import fit_options as own
from unshift.cli import options
from unshift.cli.allocator import keep_freed_memory
from unshift.cli.classifiers import at_its_size, load_classifier
from unshift.cli.errors import first_line
from unshift.cli.fitted import finish, save
from unshift.cli.outputs import check_output
from unshift.cli.prepared_data import choose_split, open_prepared, preparation
from unshift.cli.processes import cores, restarted

if TYPE_CHECKING:
    from unshift.coordinates import Coordinates
    from unshift.data import ImageSource
    from unshift.restorer import Chain, Restorer


def fit(
    data: own.TrainingData,
    out: options.RestorerFile,
    preset: own.Network = options.Preset.paper,
    turns: own.Turns = None,
    strand: own.Strand = False,
    ring: own.Ring = None,
    rotation: own.Rotation = False,
    window: options.Window = None,
    scene: options.Scene = None,
    background: own.Ground = None,
    moves: options.RealMoves = options.Loss.circular,
    scope: own.Scope = None,
    unaligned: own.Unaligned = False,
    classifier: options.Classifier = None,
    size: options.Size = None,
    crop: options.Crop = False,
    channels: options.Channels = None,
    pad: options.Pad = None,
    split: own.TrainingSplit = None,
    epochs: own.Epochs = None,
    batch_size: own.BatchSize = None,
    learning_rate: own.LearningRate = None,
    average: own.Average = None,
    validation: options.Share = "0.1",
    patience: own.Patience = 5,
    mirror: own.Mirror = False,
    windows: own.Windows = False,
    seed: own.Seed = 0,
    device: own.Device = "cpu",
    threads: own.Threads = None,
    workers: own.Workers = None,
    checkpoint: own.State = None,
    resume: own.Resume = False,
    force: own.StartOver = False,
    drop_unusable: own.DropUnusable = False,
    skip_unreadable: options.SkipUnreadable = False,
    test: own.Test = True,
    as_json: options.Json = False,
) -> None:
    """Train a restorer on your own images, without labels."""
    resume, state = resume or restarted(), checkpoint or Path(f"{out}.checkpoint")
    _check_kind([turns is not None, strand, ring is not None, rotation, window is not None], (scene, background))
    steps = preparation(size, crop, channels, pad)
    check_output(out, state, resume, force)
    _prepare_machine(device, threads)
    images, held = _opened(data, split, steps, test and window is None and moves is options.Loss.circular)
    coordinates = _coordinates("strand" if strand else turns, ring, rotation, window, preset, images)
    recipe = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "average": average}
    settings = {"preset": preset.value, "seed": seed, "augment": _asked(mirror=mirror, windows=windows), **recipe}
    lossy = {"moves": moves.value, "scope": scope, "aligned": not unaligned, "classifier": _settling(classifier)}
    scenes = {} if window is None else {"scene": scene, "background": background or "clutter"}
    left_out = {"drop_unusable": drop_unusable, "skip_unreadable": skip_unreadable}
    run = {"validation": validation, "patience": patience, "device": device, "workers": workers, **left_out}
    kept = {"coordinates": coordinates, "checkpoint": state, "resume": resume}
    asked = {**settings, **lossy, **scenes, **run, **kept}
    finished = resume and out.exists() and not state.exists()
    finish((_finished if finished else _trained)(images, steps, out, asked), out, held, as_json)


def _check_kind(asked: list[bool], scenes: tuple[Any, Any]) -> None:
    """Refuse several kinds of moves at once, and what belongs to the last of them, scenes, without it."""
    if sum(asked) > 1:
        raise ValueError("give one of --turns, --strand, --ring, --rotation and --window, not several")
    if not asked[-1] and scenes != (None, None):
        raise ValueError("--scene and --background need a --window, the part that is cut out of a scene")


def _asked(**flags: bool) -> list[str]:
    return [name for name, asked in flags.items() if asked]


def _prepare_machine(device: str, threads: int | None) -> None:
    """Refuse a device that cannot be used, and set the number of threads."""
    import torch

    keep_freed_memory()
    try:
        torch.empty(1, device=device)
    # RuntimeError for a word it does not know, AssertionError for a build without it.
    except Exception as error:
        raise ValueError(f"--device {device} cannot be used here ({first_line(error)})") from error
    if threads:
        torch.set_num_threads(threads)


def _opened(
    data: str, split: str | None, steps: Mapping[str, Any], test: bool
) -> tuple[ImageSource, ImageSource | None]:
    """Open the images to train on, and the test split if it is wanted and there is one.

    Both now: a test split that cannot be had should fail before an hour of training, not after.
    """
    part = choose_split(data, split, "train")
    images = open_prepared(data, part, steps)
    tested = test and part == "train" and choose_split(data, None, "test")
    return images, open_prepared(data, "test", steps) if tested else None


def _coordinates(
    turns: str | None, ring: int | None, rotation: bool, window: Any, preset: str, images: ImageSource
) -> Coordinates:
    """Return what is to be undone."""
    from unshift.coordinates import Canvas, Polar, Ring, Turns

    if turns is not None:
        return Turns(str(turns))
    if ring is not None:
        return Ring(ring)
    return Polar.preset(str(preset), tuple(images.images[0].shape[1:])) if rotation else Canvas(window=window)


def _settling(classifier: str | None) -> Any:
    return at_its_size(load_classifier(classifier), classifier) if classifier else None


def _finished(images: ImageSource, steps: Mapping[str, Any], out: Path, settings: dict[str, Any]) -> Restorer | Chain:
    """Return what is in ``out``: ``--resume`` of a finished run has nothing to do, but it must be that run."""
    from unshift.weights import load

    restorer = load(out)
    told = restorer.metadata
    moves, scenes = {"kind": "circular", **told.get("moves", {})}, told.get("scenes", {})
    found = {**told, "preparation": restorer.trained_on.get("preparation"), "aligned": "alignment" not in told}
    found |= {"moves": moves["kind"], "scope": moves.get("scope")}
    found |= {"scene": scenes.get("size"), "background": scenes.get("background")}
    asked = {**settings, "data": images.name, "preparation": steps, "coordinates": settings["coordinates"].describe()}
    if "scene" in asked:
        asked |= {"scene": asked["scene"] and list(asked["scene"]), "background": Path(asked["background"]).name}
    told_of = {key: value for key, value in asked.items() if value is not None and key in found}
    told_of.pop("validation", None)  # asked for as a number, told of as rates
    if other := sorted(key for key, value in told_of.items() if found[key] != value):
        raise ValueError(
            f"{out} is the result of another run (other settings: {', '.join(other)}); --force overwrites it"
        )
    print(f"{out} is finished already; --force trains it again", file=sys.stderr)
    return restorer


def _trained(images: ImageSource, steps: Mapping[str, Any], out: Path, settings: dict[str, Any]) -> Restorer:
    """Train with ``settings``, and save to ``out``."""
    from unshift import training

    if settings["workers"] is None:
        settings["workers"] = _readers(images.images)
    with _told_of(settings["checkpoint"]):
        restorer = training.fit(images.images, data_name=images.name, **settings)
    restorer.trained_on["preparation"] = steps
    save(restorer, out)
    return restorer


@contextlib.contextmanager
def _told_of(state: Path) -> Iterator[None]:
    """Say after Ctrl-C where the state is, if it is, and of a broken file how to do without."""
    from unshift.data.reading import UnreadableImage

    try:
        yield
    except UnreadableImage as error:
        raise ValueError(f"{error}; --skip-unreadable skips such files") from error
    except KeyboardInterrupt:
        kept = f"the state is in {state}: the same command with --resume goes on"
        print(f"\n{kept if state.exists() else 'stopped before there was a state to keep'}", file=sys.stderr)
        raise


def _readers(images: Any) -> int:
    """Return how many processes read: none for what is in memory, for few files, or where training takes all cores.

    On two cores, 168 photos of 224x224 a second were trained on without readers and 140 with two of them beside it
    (``benchmarks/run.py reading``).
    """
    import torch

    small = isinstance(images, torch.Tensor | list) or len(images) < 200
    return 0 if small or cores() <= 2 else 2
