"""``unshift fit``: train a restorer, safely against kills and typing errors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from unshift.cli.errors import first_line
from unshift.cli.images import choose_split, open_prepared
from unshift.cli.options import Json, Kind, Preset, Share, Size
from unshift.cli.outputs import check_output
from unshift.cli.printing import file_size, image_size, print_json, rates_line


def fit(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A dataset's name, a folder of images, a .npy or .npz file.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The file to write; .safetensors by custom.")],
    preset: Annotated[
        Preset, typer.Option(help="paper: 486 weights; dense: best on centred objects; seam: photos.")
    ] = Preset.paper,
    kind: Annotated[Kind, typer.Option(help="What to undo; rotation: of square images, paper or dense.")] = Kind.shift,
    size: Size = None,
    pad: Annotated[int, typer.Option(min=0, help="Then add so many black pixels on every side.")] = 0,
    crop: Annotated[
        bool, typer.Option("--crop", help="Keep proportions: scale to cover --size, cut the middle.")
    ] = False,
    channels: Annotated[
        int | None, typer.Option(help="Read images as 1 (grey) or 3 (RGB).", show_default=False)
    ] = None,
    split: Annotated[str | None, typer.Option(help="Part of a dataset to train on. Default: train, if any.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the images. Default: the preset's.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step. Default: the preset's.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Peak of the one-cycle schedule. Default: the preset's.")
    ] = None,
    validation: Share = "0.1",
    patience: Annotated[int, typer.Option(help="Stop after so many epochs without improvement.")] = 5,
    mirror: Annotated[
        bool, typer.Option("--mirror", help="Show each image flipped half of the time: for photos.")
    ] = False,
    windows: Annotated[
        bool, typer.Option("--windows", help="Show half of the batches through a random window: for photos.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same seed, same weights.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, ...")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads. Default: PyTorch's.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Where to keep the state. Default: OUT.checkpoint.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a killed run stopped.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT, and start anew.")] = False,
    drop_unusable: Annotated[
        bool, typer.Option("--drop-unusable", help="Leave out constant images and shifted copies.")
    ] = False,
    test: Annotated[bool, typer.Option("--test/--no-test", help="Measure on the test split too, if any.")] = True,
    as_json: Json = False,
) -> None:
    """Train a restorer on unlabelled, unshifted images and write it to one small file.

    The images are all that is needed: no labels, no shifted copies of them. While it trains, the state
    is kept in a checkpoint; after a kill, the same command with --resume goes on and ends in the same
    weights. The file remembers how its images were scaled and padded, so that evaluate and verify do the
    same.

    \b
    Examples:
      unshift fit mnist-10k --size 32 --out digits.safetensors
      unshift fit cifar10 --pad 4 --out cifar.safetensors
      unshift fit photos/ --preset seam --size 224 --crop --out photos.safetensors
      unshift fit images.npy --preset dense --epochs 30 --out mine.safetensors --resume
    """
    import torch

    from unshift import training, weights
    from unshift.evaluation import restoration_rates

    if crop and size is None:
        raise ValueError("--crop needs the --size to cut to")
    steps = {"channels": channels, "crop" if crop else "resize": size and list(size), "pad": pad or None}
    preparation = {step: value for step, value in steps.items() if value is not None}
    state = checkpoint or Path(f"{out}.checkpoint")
    check_output(out, state, resume, force)
    _check_device(device)
    if threads:
        torch.set_num_threads(threads)
    part = choose_split(data, split, "train")
    images = open_prepared(data, part, preparation)
    # Opened now: a test split that cannot be had should fail before an hour of training, not after.
    tested = test and part == "train" and choose_split(data, None, "test")
    held = open_prepared(data, "test", preparation) if tested else None

    settings: dict[str, Any] = {
        "kind": kind.value,
        "mirror": mirror,
        "windows": windows,
        "preset": preset.value,
        "seed": seed,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
    }
    if resume and out.exists() and not state.exists():
        restorer = weights.load(out)
        _check_same_run(out, restorer.metadata, {"data": images.name, "preparation": preparation, **settings})
    else:
        try:
            restorer = training.fit(
                images.images,
                **settings,
                validation=validation,
                patience=patience,
                device=device,
                checkpoint=state,
                resume=resume,
                drop_unusable=drop_unusable,
                data_name=images.name,
            )
        except KeyboardInterrupt:
            print(f"\nthe state is in {state}: the same command with --resume goes on", file=sys.stderr)
            raise
        restorer.metadata["preparation"] = preparation
        restorer.save(out)
    if held is not None and "test" not in restorer.metadata:
        restorer.metadata["test"] = restoration_rates(restorer, held.images, progress=True).as_dict()
        restorer.save(out)
    _print_fitted(out, restorer.metadata, as_json)


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


def _print_fitted(out: Path, found: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({"file": str(out), "bytes": out.stat().st_size, **found})
        return
    print(f"{out}  {file_size(out.stat().st_size)}, preset {found['preset']} for {image_size(found['size'])}")
    print(f"trained on {found['train_images']:,} images of {found['data']}, {found['seconds']:.1f} s")
    for split in ("validation", "test"):
        if split in found:
            print(f"{split:<11}{rates_line(found[split])}")
