"""Train a restorer on unlabelled, unmoved images and write it to one small file.

The images need no labels and no moved copies. By default the restorer undoes circular shifts; --turns, --ring,
--rotation and --window choose other moves. The file stores how the images were scaled and padded, so that evaluate and
verify prepare images in the same way.

A checkpoint is written after each epoch. After an interruption, the same command with --resume continues from it and
gives the same weights.

With --border zeros, edge or crop, the restorer is trained on shifts that lose the pixels at the border. With crop, the
network sees windows that are smaller by --scope pixels on every side.

With --unaligned, the images need not be aligned: training alternates with restoring the images until no image moves.
Alignment is then known up to one global shift, which --classifier chooses.

\b
Examples:
  unshift fit mnist-10k --size 32 --out digits.safetensors
  unshift fit photos/ --start photos --size 224 --crop --out mine.safetensors
  unshift fit genomes.fa --preset sequence --turns strand --out mine.safetensors
  unshift fit mnist-10k --preset dense --turns quarter --out turned.safetensors
  unshift fit panoramas/ --size 64x512 --ring -1 --out panoramas.safetensors
  unshift fit mnist-10k --size 112 --preset dense --rotation --out rotated.safetensors
  unshift fit mnist-10k --size 32 --window 32 --preset scene --out scenes.safetensors
  unshift fit cifar10 --preset seam --border zeros --scope 4 --out cifar.safetensors
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshift.cli import options
from unshift.cli.allocator import limit_onednn_cache, raise_mmap_threshold
from unshift.cli.classifiers import adapt_images, load_classifier
from unshift.cli.options import images_option, moves_option, output_option, training_option
from unshift.cli.outputs import check_output, file_size, print_json, rates_line
from unshift.cli.prepared_data import choose_split, open_prepared, preparation
from unshift.cli.processes import cores, restarted

if TYPE_CHECKING:
    from unshift.coordinates import Coordinates
    from unshift.data import ImageSet
    from unshift.restorer import Chain, Restorer

TURNS = ("mirror", "half", "quarter", "flips", "strand", "cube")
"""The groups of the library, repeated because importing ``GROUPS`` would import PyTorch."""
Augment = StrEnum("Augment", ["mirror", "windows"])

PRESET_HELP = (
    "paper: the paper's network, 486 weights; lines, dense: centred objects; seam: photos; sequence: genomes; scene: "
    "scenes; look, evidence: turns without shifts (look: images of one size; evidence: of any size)."
)
START_HELP = "Start from the weights of a restorer, such as photos, instead of a preset. Useful with few images."
TURNS_HELP = f"Undo turns (and shifts, unless the preset is look or evidence): {', '.join(TURNS)}."
RING_HELP = "Undo shifts along this axis only: 0 is the first axis of the image, -1 the last."
ROTATION_HELP = "Undo rotations of square images by any angle, not shifts. Presets: paper, dense, look."
WINDOW_HELP = "Find objects like DATA in larger scenes, and cut out a window of this size."
BACKGROUND_HELP = "Background of scenes: plain, noise, clutter (pieces of other images), or a folder. Default: clutter."
AUGMENT_HELP = "Augment photos: mirror half of the images, or crop half of the batches to a window. May be repeated."
UNUSABLE_HELP = "Leave out constant images and moved copies of others."
VALIDATION_HELP = "Number or share of images held out."
SCENE_HELP = "Size of scenes. Default: twice the window."
SCOPE_HELP = "Largest shift with --border zeros, edge or crop. Default: 1/8 of the shorter side."


def fit(
    data: options.Data,
    out: options.RestorerFile,
    preset: Annotated[options.Preset, typer.Option(help=PRESET_HELP)] = options.Preset.paper,
    start: Annotated[str | None, typer.Option(metavar="NAME|FILE", help=START_HELP)] = None,
    split: Annotated[str | None, images_option(help="Split, or subfolder. Default: train, if any.")] = None,
    size: options.Size = None,
    crop: options.Crop = False,
    channels: options.Channels = None,
    pad: options.Pad = None,
    validation: Annotated[
        Any, images_option(parser=options.read_share, metavar="N|SHARE", help=VALIDATION_HELP)
    ] = "0.1",
    augment: Annotated[list[Augment] | None, images_option(help=AUGMENT_HELP)] = None,
    drop_unusable: Annotated[bool, images_option("--drop-unusable", help=UNUSABLE_HELP)] = False,
    skip_unreadable: options.SkipUnreadable = False,
    workers: options.Workers = None,
    turns: Annotated[str | None, moves_option(metavar="GROUP", help=TURNS_HELP)] = None,
    ring: Annotated[int | None, moves_option(metavar="AXIS", help=RING_HELP)] = None,
    rotation: Annotated[bool, moves_option("--rotation", help=ROTATION_HELP)] = False,
    window: Annotated[Any, moves_option(parser=options.read_size, metavar="N|HxW", help=WINDOW_HELP)] = None,
    scene: Annotated[Any, moves_option(parser=options.read_size, metavar="N|HxW", help=SCENE_HELP)] = None,
    background: Annotated[str | None, moves_option(metavar="NAME|FOLDER", help=BACKGROUND_HELP)] = None,
    border: options.Borders = options.Border.circular,
    scope: Annotated[int | None, moves_option(min=1, metavar="N", help=SCOPE_HELP)] = None,
    unaligned: Annotated[bool, moves_option("--unaligned", help="The images are not aligned: align them too.")] = False,
    classifier: options.Classifier = None,
    epochs: Annotated[int | None, training_option(help="Passes over the images. Default: the preset's.")] = None,
    batch_size: Annotated[int | None, training_option(help="Images per step. Default: the preset's.")] = None,
    learning_rate: Annotated[float | None, training_option(help="Highest rate of the one-cycle schedule.")] = None,
    average: Annotated[float | None, training_option(help="Average the weights over steps, with this decay.")] = None,
    patience: Annotated[int, training_option(metavar="N", help="Stop after N epochs without improvement.")] = 5,
    seed: Annotated[int, training_option(min=0, max=2**32 - 1, help="The same seed gives the same weights.")] = 0,
    device: options.Device = "cpu",
    threads: Annotated[int | None, training_option(min=1, max=256, help="CPU threads. Default: PyTorch's.")] = None,
    checkpoint: Annotated[Path | None, training_option(help="File of the checkpoint. Default: OUT.checkpoint.")] = None,
    resume: Annotated[bool, training_option("--resume", help="Continue an interrupted run.")] = False,
    force: Annotated[bool, output_option("--force", "-f", help="Overwrite OUT, and start over.")] = False,
    test: Annotated[bool, output_option("--test/--no-test", help="Measure on the test split too, if any.")] = True,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a restorer on your own images, without labels."""
    from unshift.data.sequences import is_fasta
    from unshift.distributed import is_first
    from unshift.evaluation import restoration_rates
    from unshift.files import load
    from unshift.restorer import Restorer
    from unshift.training.checkpoint import check_identity

    resume, state = resume or restarted(), checkpoint or Path(f"{out}.checkpoint")
    if sum([turns is not None, ring is not None, rotation, window is not None]) > 1:
        raise ValueError("give one of --turns, --ring, --rotation and --window, not several")
    if window is None and (scene, background) != (None, None):
        raise ValueError("--scene and --background need a --window, the part that is cut out of a scene")
    steps = preparation(size, crop, channels, pad)
    check_output(out, force, state, resume)
    raise_mmap_threshold()
    if threads:
        import torch

        torch.set_num_threads(threads)
    if is_fasta(data):
        limit_onednn_cache()
    part = choose_split(data, split, "train")
    images = open_prepared(data, part, steps)
    # Opened before the training, as the test split may be missing.
    tested = test and part == "train" and window is None and border is options.Border.circular
    held_out = open_prepared(data, "test", steps) if tested and choose_split(data, None, "test") else None
    start_restorer = load(start) if start else None
    if isinstance(start_restorer, Restorer) and (turns, ring, window, rotation) == (None, None, None, False):
        coordinates = start_restorer.coordinates
    else:
        coordinates = _coordinates(turns, ring, rotation, window, preset, images)
    settings: dict[str, Any] = {
        **{"preset": "start" if start else preset.value, "seed": seed, "validation": validation, "patience": patience},
        **{"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "average": average},
        **{"moves": border.value, "scope": scope, "aligned": not unaligned, "drop_unusable": drop_unusable},
        **{"skip_unreadable": skip_unreadable, "augment": [name.value for name in augment or []]},
    }
    if window:
        settings |= {"scene": scene, "background": background or "clutter"}
    given = {"data": images.name, "preparation": steps, "start": start, "classifier": classifier}
    given |= settings | {"coordinates": coordinates.describe()}
    if resume and out.exists() and not state.exists():
        restorer = load(out)
        check_identity(out, restorer.metadata.get("options", {}), given)
        print(f"{out} is finished already; --force trains it again", file=sys.stderr)
    else:
        settings |= {"start": start_restorer, "coordinates": coordinates, "device": device, "checkpoint": state}
        settings |= {"classifier": adapt_images(load_classifier(classifier)) if classifier else None, "resume": resume}
        settings |= {"workers": _default_workers(images.images) if workers is None else workers}
        restorer = _train(images, settings, not quiet)
        restorer.trained_on["preparation"] = steps
        restorer.metadata["options"] = given
        if is_first():
            restorer.save(out)
    if held_out is not None and "test" not in restorer.metadata:
        restorer.metadata["test"] = restoration_rates(restorer, held_out.images, progress=not quiet).as_dict()
        if is_first():
            restorer.save(out)
    if is_first():
        _print(out, restorer, images if is_fasta(Path(data)) else None, as_json)


def _coordinates(
    turns: str | None, ring: int | None, rotation: bool, window: Any, preset: str, images: ImageSet
) -> Coordinates:
    """Return the coordinates of the moves to undo."""
    from unshift.coordinates import Angles, Polar, Poses, Ring, Scene, Shifts, Turns

    whole = preset in ("look", "evidence")
    if turns is not None:
        return Poses(turns) if whole else Turns(turns)
    if ring is not None:
        return Ring(ring)
    if rotation and whole:
        return Angles(images.images[0].shape[-1])
    if rotation:
        return Polar.preset(str(preset), tuple(images.images[0].shape[1:]))
    return Scene(window) if window else Shifts()


def _train(images: ImageSet, settings: dict[str, Any], progress: bool) -> Restorer:
    """Train. Print the path of the checkpoint after Ctrl-C, and name --skip-unreadable after an unreadable file."""
    from unshift.data.reading import UnreadableImage
    from unshift.training import fitting

    state = settings["checkpoint"]
    try:
        return fitting.fit(images.images, data_name=images.name, progress=progress, **settings)
    except UnreadableImage as error:
        raise ValueError(f"{error}; --skip-unreadable skips such files") from error
    except KeyboardInterrupt:
        where = f"the checkpoint is {state}: the same command with --resume continues"
        print(f"\n{where if state.exists() else 'stopped before the first checkpoint'}", file=sys.stderr)
        raise


def _default_workers(images: Any) -> int:
    """Return the number of reading processes: none on two cores, for few files, or for images in memory.

    On two cores, training handled 168 photos of 224x224 a second without workers, and 140 with two of them
    (``benchmarks/run.py reading``).
    """
    small = hasattr(images, "shape") or isinstance(images, list) or len(images) < 200
    return 0 if small or cores() <= 2 else 2


def _print(out: Path, restorer: Restorer | Chain, genomes: ImageSet | None, as_json: bool) -> None:
    from unshift.shifts import format_size

    about, labels = restorer.metadata, restorer.coordinates.labels
    if as_json:
        print_json({"file": str(out), "bytes": out.stat().st_size, **about, "trained_on": restorer.trained_on})
        return
    things, step, bases = "images", labels.step, ""
    if genomes is not None:
        things, step = "genomes", "base"
        bases = f" ({sum(genome.shape[-1] for genome in genomes.images):,} bases in all)"
    size = format_size(about["size"]) or "any size"
    print(f"{out}  {file_size(out.stat().st_size)}, preset {about['preset']} for {size}")
    print(f"undoes {labels.undoes}")
    print(f"trained on {about['train_images']:,} {things} of {about['data']}{bases}, {about['seconds']:.1f} s")
    if about.get("stopped_early"):
        print(f"stopped early, after {about['epochs_run']} of {about['epochs']} epochs: no improvement")
    if about.get("best_epoch") not in (None, about["epochs_run"]):
        print(f"uses the weights of epoch {about['best_epoch']}, the best on the {things} held out")
    if about.get("unreadable"):
        print(f"skipped {len(about['unreadable']):,} files: {'; '.join(about['unreadable'][:5])}")
    for split in ("validation", "test"):
        if split in about:
            print(f"{split:<11}{rates_line(about[split], step, things)}")
