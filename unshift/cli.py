"""The ``unshift`` command.

Exit codes: 0 done, 1 a check failed (``verify`` found a mismatch), 2 bad input or usage, 130 Ctrl-C.
Errors are one line on stderr; results go to stdout, as text or (``--json``) as JSON and nothing else.
PyTorch is imported inside the commands: ``--help`` must not wait for it.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from unshift.data import ImageSet
    from unshift.restorer import Estimate, Restorer

__all__ = ["app", "main", "prepare"]


# --- errors ---------------------------------------------------------------------------------------

# What the library calls its arguments, and what they are called here.
_FLAGS = (
    (r"\bdrop_unusable=True", "give --drop-unusable"),
    (r"\bsize=\((\d+), (\d+)\)", r"--size \1x\2"),
    (r"\bbatch_size\b", "--batch-size"),
    (r"\blearning_rate\b", "--learning-rate"),
)


class _Group(TyperGroup):
    """The commands, and the one place where an exception becomes one line and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run and exit; ``standalone_mode`` would print usage errors as a box."""
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except Exception as error:
            code = _report(error, debug=False)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; here ``--debug`` is known."""
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            warnings.simplefilter("ignore", DeprecationWarning)  # of PyTorch's parts, for us to act on
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()  # a closed pipe shows here, not in the interpreter's last moments
                return result
            except (Exception, KeyboardInterrupt) as error:
                raise typer.Exit(_report(error, ctx.params["debug"])) from error


def _report(error: BaseException, debug: bool) -> int:
    """Print ``error`` in one line and return the exit code; raise what is a bug, with its traceback."""
    code, message = 2, str(error)
    if isinstance(error, BrokenPipeError):  # `unshift models | head -1`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        code, message = 130, "interrupted"
    elif hasattr(error, "format_message"):  # a usage error of the parser
        message = error.format_message()
    elif not isinstance(error, ValueError | OSError):
        raise error
    if debug:
        traceback.print_exception(error)
    for word, flag in _FLAGS:
        message = re.sub(word, flag, message)
    print(f"unshift: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"unshift: warning: {' '.join(str(message).split())}", file=sys.stderr)


# --- what the options are made of -------------------------------------------------------------------


class Kind(StrEnum):
    """What a restorer undoes."""

    shift = "shift"
    rotation = "rotation"


class Preset(StrEnum):
    """The presets, by name: the library's own table would cost the import of PyTorch."""

    paper = "paper"
    dense = "dense"
    seam = "seam"


def _size(text: str) -> tuple[int, int]:
    """Read ``32`` or ``32x48``."""
    found = re.fullmatch(r"(\d{1,5})(?:x(\d{1,5}))?", text)
    height, width = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not height or not width:
        raise typer.BadParameter(f"wanted is 32 or 32x48 (height x width), got {text!r}")
    return height, width


def _scopes(text: str) -> list[int]:
    """Read ``0-8`` or ``0,2,4-6``."""
    scopes: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())
        if not found or int(found[2] or found[1]) < int(found[1]):
            raise typer.BadParameter(f"wanted are pixels such as 0-8 or 0,2,4, got {text!r}")
        scopes += range(int(found[1]), int(found[2] or found[1]) + 1)
    return scopes


def _share(text: str) -> int | float:
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

app = typer.Typer(
    cls=_Group,
    name="unshift",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
data_app = typer.Typer(help="List the named datasets, or bring one to this computer.", rich_markup_mode=None)
app.add_typer(data_app, name="data")


@app.callback(invoke_without_command=True)
def unshift(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="UNSHIFT_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Undo the shift of an image, exactly, before any frozen classifier sees it.

    \b
    See it work, on digits that come with the package, in about a minute:
      unshift reproduce
    Make a restorer for your own images, and use it:
      unshift fit photos/ --preset seam --size 64 --out photos.safetensors
      unshift restore shifted/ --restorer photos.safetensors --out restored/
    Measure what your own classifier gains, and check the promise of exactness:
      unshift evaluate --data mnist --restorer mnist --classifier lenet5-mnist
      unshift verify --data mnist --restorer mnist

    Every command has its own --help with examples.
    """
    if version:
        from unshift import __version__

        print(f"unshift {__version__}")
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help())


@data_app.callback(invoke_without_command=True)
def _data(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


# --- images, brought to the size a restorer was made for ----------------------------------------------


def prepare(images: Tensor, preparation: Mapping[str, Any]) -> Tensor:
    """Do to images what was done to a restorer's training images; ``metadata["preparation"]`` says what.

    In this order, each optional: ``channels`` (1 or 3), ``resize`` or ``crop`` (``[h, w]``; on unrounded
    floats), ``pad`` (pixels of 0 on every side). Images that already have the size keep their dtype.
    """
    from unshift.data.pixels import fit_to, pad, to_channels, to_float

    if unknown := sorted({*preparation} - {"channels", "resize", "crop", "pad"}):
        raise ValueError(f"this restorer's images are prepared by {', '.join(unknown)}, unknown here: upgrade unshift")
    if "channels" in preparation:
        images = to_channels(images, preparation["channels"])
    for fit in ("resize", "crop"):
        if fit in preparation and list(images.shape[2:]) != list(preparation[fit]):
            images = fit_to(to_float(images), tuple(preparation[fit]), fit)
    return pad(images, preparation["pad"]) if preparation.get("pad") else images


def _open(source: str, split: str | None, preparation: Mapping[str, Any], channels: int | None = None) -> ImageSet:
    """Open ``source`` and prepare it. Image files are scaled as they are read, by Pillow, and read as ``channels``."""
    from unshift.data import open_images
    from unshift.data.arrays import SUFFIXES

    if _is_dataset(source) or Path(source).suffix.lower() in SUFFIXES:
        found = open_images(source, split)
    else:
        fit = "crop" if "crop" in preparation else "resize"
        size = tuple(preparation[fit]) if fit in preparation else None
        found = open_images(source, split, size=size, fit=fit, channels=preparation.get("channels", channels))
    return replace(found, images=prepare(found.images, preparation))


def _is_dataset(source: str) -> bool:
    from unshift.data.catalogue import DATASETS

    return source in DATASETS


def _split(source: str, asked: str | None, usual: str) -> str | None:
    """Return the split to open: the one asked for, or the usual one where ``source`` has it."""
    return asked or (usual if _is_dataset(source) or (Path(source) / usual).is_dir() else None)


def _open_for(restorer: Restorer, source: str, split: str | None, limit: int | None) -> ImageSet:
    """Open images to try ``restorer`` on: the test split if there is one, prepared as its own were."""
    # Polar coordinates count every radius as a channel of the network, and know the image's own.
    channels = getattr(restorer.coordinates, "channels", None) or getattr(restorer.scorer, "in_channels", None)
    preparation = restorer.metadata.get("preparation", {})
    found = _open(source, _split(source, split, "test"), preparation, channels if channels in (1, 3) else None)
    labels = None if found.labels is None else found.labels[:limit]
    return replace(found, images=found.images[:limit], labels=labels)


# --- commands -----------------------------------------------------------------------------------------


@app.command()
def reproduce(
    items: Annotated[
        list[str] | None, typer.Argument(metavar="[ITEM]...", help="What to reproduce; see --list.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("report"),
    train: Annotated[bool, typer.Option("--train", help="First train everything from scratch.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer images: a look, not a result.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the items and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Reproduce the paper's results; without ITEM, its headline on real digits.

    The main job needs no download: a frozen LeNet-5 classifies the MNIST test digits, shifted by 0 to 8
    pixels, with and without a restorer. It prints the paper's table beside ours and writes a report.

    \b
    Examples:
      unshift reproduce                    the main job, with the shipped weights
      unshift reproduce --train            the same, trained here from scratch
      unshift reproduce --list             what else there is
    """
    from unshift import experiments

    if list_:
        if as_json:
            _print_json(experiments.ITEMS)
        else:
            _print_table([], [[name, about] for name, about in experiments.ITEMS.items()])
        return
    wanted = list(items or [])
    if unknown := [item for item in wanted if item not in experiments.ITEMS]:
        raise ValueError(f"nothing called {', '.join(unknown)} to reproduce; there are {', '.join(experiments.ITEMS)}")
    _check_folder(out)
    # The tables that it prints are for people: with --json they go where they disturb no script.
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        result = experiments.reproduce(wanted, out, train=train, quick=quick, progress=True)
    page = out / "index.html"
    if as_json:
        # Without the pixels of its pictures: those are in the page.
        plain = {
            key: {k: v for k, v in value.items() if k != "pictures"} if isinstance(value, dict) else value
            for key, value in result.items()
        }
        _print_json({**plain, "report": str(page)})
    elif page.exists():
        print(f"\nreport: {page}")


@app.command()
def fit(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A dataset's name, a folder of images, a .npy or .npz file.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The file to write; .safetensors by custom.")],
    preset: Annotated[
        Preset, typer.Option(help="paper: 486 weights; dense: best on centred objects; seam: photos.")
    ] = Preset.paper,
    kind: Annotated[Kind, typer.Option(help="What to undo; rotation: of square images, paper or dense.")] = Kind.shift,
    size: Annotated[
        Any, typer.Option(parser=_size, metavar="N|HxW", help="Scale the images to this size.", show_default=False)
    ] = None,
    pad: Annotated[int, typer.Option(min=0, help="Then add so many black pixels on every side.")] = 0,
    crop: Annotated[
        bool, typer.Option("--crop", help="Keep proportions: scale to cover --size, cut the middle.")
    ] = False,
    channels: Annotated[
        int | None, typer.Option(help="Read images as 1 (grey) or 3 (RGB).", show_default=False)
    ] = None,
    split: Annotated[str | None, typer.Option(help="Part of a dataset to train on. Default: train, if any.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the images. Default: the preset's.")] = None,
    batch_size: Annotated[int, typer.Option(help="Images per step.")] = 256,
    learning_rate: Annotated[
        float | None, typer.Option(help="Peak of the one-cycle schedule. Default: the preset's.")
    ] = None,
    validation: Annotated[
        Any, typer.Option(parser=_share, metavar="N|SHARE", help="Images held out: a number or a share.")
    ] = "0.1",
    patience: Annotated[int, typer.Option(help="Stop after so many epochs without improvement.")] = 5,
    mirror: Annotated[
        bool, typer.Option("--mirror", help="Show each image flipped half of the time: for photos.")
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

    preparation: dict[str, Any] = {}
    if channels is not None:
        preparation["channels"] = channels
    if size is not None:
        preparation["crop" if crop else "resize"] = list(size)
    elif crop:
        raise ValueError("--crop needs the --size to cut to")
    if pad:
        preparation["pad"] = pad
    state = checkpoint or Path(f"{out}.checkpoint")
    _check_output(out, state, resume, force)
    _check_device(device)
    if threads:
        torch.set_num_threads(threads)
    part = _split(data, split, "train")
    images = _open(data, part, preparation)
    # Opened now: a test split that cannot be had should fail before an hour of training, not after.
    held = _open(data, "test", preparation) if test and part == "train" and _split(data, None, "test") else None

    if resume and out.exists() and not state.exists():
        restorer = weights.load(out)
        asked: dict[str, Any] = {
            "kind": kind.value,
            "mirror": mirror,
            "preset": preset.value,
            "data": images.name,
            "preparation": preparation,
            "seed": seed,
        }
        asked |= {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate}
        _check_same_run(out, restorer.metadata, asked)
    else:
        try:
            restorer = training.fit(
                images.images,
                preset.value,
                kind=kind.value,
                mirror=mirror,
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=learning_rate,
                validation=validation,
                patience=patience,
                seed=seed,
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


def _check_output(out: Path, state: Path, resume: bool, force: bool) -> None:
    """Refuse, before an hour of training, what could not or should not be written after it."""
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; give the name of a file in it")
    if out.exists() and not (force or resume):
        raise ValueError(f"{out} exists; --force overwrites it, --resume goes on with it")
    if state.exists() and not (force or resume):
        raise ValueError(f"{state} is left from a run that did not finish; --resume goes on, --force starts anew")
    for file in (out, state):
        _check_folder(file.parent)


def _check_folder(folder: Path) -> None:
    """Make ``folder`` if need be, and see that files can be written there."""
    import tempfile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error.strerror or error})") from error


def _check_device(device: str) -> None:
    import torch

    try:
        torch.empty(1, device=device)
    # RuntimeError for a word it does not know, AssertionError for a build without it.
    except Exception as error:
        raise ValueError(f"--device {device} cannot be used here ({str(error).splitlines()[0]})") from error


def _check_same_run(out: Path, found: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """``--resume`` of a finished run has nothing to do, but it must be that run."""
    other = [key for key, value in asked.items() if value is not None and found.get(key) != value]
    if other:
        raise ValueError(f"{out} is finished, but of another run ({', '.join(other)} differ); --force overwrites it")
    print(f"{out} is finished already; --force trains it again", file=sys.stderr)


def _print_fitted(out: Path, found: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        _print_json({"file": str(out), "bytes": out.stat().st_size, **found})
        return
    size = "x".join(str(n) for n in found["size"])
    print(f"{out}  {_bytes(out.stat().st_size)}, preset {found['preset']} for {size}")
    print(f"trained on {found['train_images']:,} images of {found['data']}, {found['seconds']:.1f} s")
    for split in ("validation", "test"):
        if split in found:
            print(f"{split:<11}{_rates(found[split])}")


def _rates(rates: Mapping[str, Any]) -> str:
    return (
        f"{rates['images']:,} images: {_percent(rates['exact'])} restored exactly, "
        f"{_percent(rates['within_1'])} within 1 pixel, {rates['tied']:,} tied"
    )


@app.command()
def evaluate(
    data: Data,
    restorer: Model,
    classifier: Annotated[
        str | None,
        typer.Option(help="A shipped classifier's name, a TorchScript or .pt2 file, or module:function."),
    ] = None,
    split: Split = None,
    scopes: Annotated[
        Any, typer.Option(parser=_scopes, metavar="LIST", help="Largest shifts to try, in pixels: 0-8, or 0,2,4.")
    ] = "0-8",
    seeds: Annotated[int, typer.Option(min=1, help="Random shifts of each image; consistency needs two.")] = 1,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Measure how often a restorer is right, and what a frozen classifier gains by it.

    Without a classifier: the share of unshifted images that it leaves where they are. That is also its
    share on shifted ones, since every shift of an image is restored to the same image. With one: the
    accuracy on images shifted circularly by up to so many pixels, without and with the restorer, and
    (with --seeds 2 or more) the share of images classified alike under all random shifts.

    Your own classifier takes images (batch, channel, height, width) with values in 0..1, at the size the
    restorer works on, and returns logits (batch, classes). It is a TorchScript file (torch.jit.save), a
    torch.export file ending in .pt2, or module:function, called without arguments, that returns an
    nn.Module. All three run code that comes with them: use only what you trust.

    \b
    Examples:
      unshift evaluate --data mnist --restorer mnist
      unshift evaluate --data mnist --restorer mnist-paper --classifier lenet5-mnist --seeds 3
      unshift evaluate --data photos/ --restorer photos.safetensors --classifier resnet.pt2
      unshift evaluate --data cifar10 --restorer cifar10 --classifier mymodels:resnet --scopes 0,4
    """
    from unshift.data import to_float
    from unshift.evaluation import accuracy_over_scopes, restoration_rates
    from unshift.weights import load

    model = load(restorer)
    net = load_classifier(classifier) if classifier else None
    found = _open_for(model, data, split, limit)
    if net is not None:
        if found.labels is None:
            raise ValueError(
                f"{data} has no labels, and accuracy needs them: a subfolder per class, or 'labels' in a .npz"
            )
        _try(net, str(classifier), to_float(found.images[:2]), int(found.labels.max()) + 1)
    rates = restoration_rates(model, found.images, progress=True)
    rows = []
    if net is not None:
        assert found.labels is not None
        rows = accuracy_over_scopes(
            net, to_float(found.images), found.labels, model, scopes=scopes, seeds=range(seeds), progress=True
        )
    if as_json:
        about = {"data": found.name, "restorer": restorer, "classifier": classifier}
        _print_json({**about, "rates": rates.as_dict(), "scopes": [{**r.as_dict(), "effect": r.effect} for r in rows]})
        return
    print(f"{found.name}, restorer {restorer}: {_rates(rates.as_dict())}")
    if rows:
        print(f"\naccuracy of {classifier} in %, images shifted at random by up to so many pixels:\n")
        table = [
            ["without", *(f"{100 * sum(r.without) / seeds:.2f}" for r in rows)],
            ["with", *(f"{100 * sum(r.restored) / seeds:.2f}" for r in rows)],
            ["effect", *(f"{100 * r.effect:+.2f}" for r in rows)],
        ]
        if seeds > 1:
            table.append(["consistent without", *(f"{100 * r.consistent_without:.2f}" for r in rows)])
            table.append(["consistent with", *(f"{100 * r.consistent_restored:.2f}" for r in rows)])
        _print_table(["scope", *(str(r.scope) for r in rows)], table, right=range(1, len(rows) + 1))


@app.command()
def restore(
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGES...", help="Image files, or folders of them at any depth.")
    ],
    restorer: Model,
    out: Annotated[Path, typer.Option("--out", help="Folder to write to; not one that holds the inputs.")],
    resize: Annotated[
        bool, typer.Option("--resize", help="First scale each image to the size the restorer was made for.")
    ] = False,
    pad: Annotated[
        int | None,
        typer.Option(min=0, help="The images have lost what was shifted out: look on a margin of so many pixels."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files in OUT.")] = False,
    as_json: Json = False,
) -> None:
    """Restore image files: estimate the shift of each, roll it back, and write it under its own name.

    Pixels are moved, never changed: PNG and other lossless formats keep every value, mode and palette.
    JPEG is lossy by nature and is written anew at quality 95. Files keep their names, and the places they
    had in a folder. OUT/shifts.csv lists, per file, the shift found (pixels down and right, in 0..size-1,
    circular), the confidence in 0..1, and whether several positions tied. If any file cannot be read,
    nothing is written.

    \b
    Examples:
      unshift restore shifted/ --restorer photos.safetensors --out restored/
      unshift restore a.png b.png --restorer mnist --resize --out restored/
    """
    from tqdm import tqdm

    from unshift.weights import load, write_atomically

    model = load(restorer, pad=pad)
    targets = _targets(images, out)
    if existing := [path for path in (*targets, out / "shifts.csv") if path.exists() and not force]:
        raise ValueError(f"{existing[0]} exists ({len(existing)} such files); --force overwrites")
    _check_margin(model)
    found: dict[Path, Estimate] = {}
    for target, source in tqdm(targets.items(), desc="estimate", unit="image", disable=None):
        found[target] = _restore_one(model, source, resize)[1]
    _check_folder(out)
    for target, source in tqdm(targets.items(), desc="write", unit="image", disable=None):
        write_atomically(target, _encoded(_restore_one(model, source, resize, found[target])[0], source))
    rows = [
        {
            "file": target.relative_to(out).as_posix(),
            "down": int(estimate.shift[0, 0]),
            "right": int(estimate.shift[0, 1]),
            "confidence": float(estimate.confidence),
            "tied": bool(estimate.tied),
        }
        for target, estimate in found.items()
    ]
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, list(rows[0]))
    table.writeheader()
    table.writerows({**row, "tied": json.dumps(row["tied"])} for row in rows)
    # Names that are not valid UTF-8 are kept as they are on disk.
    write_atomically(out / "shifts.csv", text.getvalue().encode("utf-8", "surrogateescape"))
    if as_json:
        _print_json(rows)
    else:
        moved = sum(bool(row["down"] or row["right"]) for row in rows)
        print(f"{len(rows):,} images restored, {moved:,} of them moved; shifts in {out / 'shifts.csv'}")


def _targets(inputs: Sequence[Path], out: Path) -> dict[Path, Path]:
    """Return where each image goes: target to source."""
    from unshift.data.photos import suffixes

    targets: dict[Path, Path] = {}
    for given in inputs:
        if given.is_dir():
            inside = (path.relative_to(given) for path in sorted(given.rglob("*")) if path.is_file())
            names = [
                p for p in inside if p.suffix.lower() in suffixes() and not any(x.startswith(".") for x in p.parts)
            ]
            if not names:
                raise ValueError(f"{given} holds no image files, such as .png or .jpg")
            pairs = [(out / name, given / name) for name in names]
        elif given.is_file():
            pairs = [(out / given.name, given)]
        else:
            raise ValueError(f"no file or folder {given}")
        home, place = (given if given.is_dir() else given.parent).resolve(), out.resolve()
        if place == home or (given.is_dir() and place.is_relative_to(home)):
            raise ValueError(f"--out {out} is where the inputs are ({given}); give another folder")
        for target, source in pairs:
            if target in targets and not source.samefile(targets[target]):
                raise ValueError(f"{targets[target]} and {source} would both become {target}; restore them separately")
            targets[target] = source
    inputs_too = {source.resolve() for source in targets.values()}
    if own := next((target for target in targets if target.resolve() in inputs_too), None):
        raise ValueError(f"{own} is itself one of the inputs; give another --out")
    return targets


def _check_margin(model: Restorer) -> None:
    from unshift.restorer import Canvas

    if not isinstance(model.coordinates, Canvas) or getattr(model.scorer, "axes", 2) != 2:
        raise ValueError("restore is for circular shifts of images; this restorer undoes something else")
    margin = model.metadata.get("preparation", {}).get("pad", 0)
    if margin and not model.coordinates.pad:
        print(
            f"unshift: warning: this restorer was trained on images with a black margin of {margin} pixels; "
            f"if yours have none, give --pad {margin}",
            file=sys.stderr,
        )


def _restore_one(
    model: Restorer, source: Path, resize: bool, estimate: Estimate | None = None
) -> tuple[Image, Estimate]:
    """Read one image and restore it; return it with its estimate, computed unless given."""
    import numpy as np
    import torch
    from PIL import ImageOps

    from unshift import exact
    from unshift.data.photos import load_images
    from unshift.restorer import Canvas, Estimate

    assert isinstance(model.coordinates, Canvas)
    scorer: Any = model.scorer
    margin = 2 * model.coordinates.pad
    size = None
    if resize:
        wanted = scorer.size or model.metadata.get("size")
        if not wanted:
            raise ValueError("--resize: this restorer takes any size and does not tell which one it was made for")
        size = (wanted[0] - margin, wanted[1] - margin)
    seen = load_images([source], size=size, channels=scorer.in_channels)  # what the network looks at
    height, width = seen.shape[2:]
    if scorer.size and (height + margin, width + margin) != tuple(scorer.size):
        takes = "x".join(str(n - margin) for n in scorer.size)
        raise ValueError(f"{source} is {height}x{width}, this restorer takes {takes}; --resize scales images to it")
    image = ImageOps.exif_transpose(_read_image(source))
    if size is not None and image.size != (width, height):
        if image.mode in ("1", "P", "PA"):  # no values between two palette entries
            image = image.convert("L" if image.mode == "1" else "RGBA" if "transparency" in image.info else "RGB")
        image = image.resize((width, height), 2)  # bilinear
    pixels = np.asarray(image)
    if estimate is None:
        scores = scorer(model.coordinates(seen))
        # The tie rule compares what is written, not what the network sees of it: two colours may have one grey.
        values = torch.from_numpy(pixels.astype(np.int64).reshape(height, width, -1)).permute(2, 0, 1)[None]
        shift, tied = exact.choose(scores, model.coordinates(values))
        estimate = Estimate(shift, exact.confidence(scores, scorer.score_unit), tied)
    # Pixel numbers are restored, not pixels: one gather that serves every mode. 0 is what comes from outside.
    numbers = torch.arange(1, height * width + 1).view(1, 1, height, width)
    source_of = Canvas(model.coordinates.pad).undo(numbers, estimate.shift)[0, 0].numpy()
    flat = pixels.reshape(height * width, *pixels.shape[2:])
    restored = np.concatenate([np.zeros_like(flat[:1]), flat])[source_of]
    result = image.copy()
    result.frombytes((np.packbits(restored, axis=1) if image.mode == "1" else restored).tobytes())
    return result, estimate


def _read_image(source: Path) -> Image:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(source) as image:
            if image.format not in Image.SAVE:
                raise ValueError(f"{source}: {image.format} files can be read but not written; convert it to PNG")
            if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":  # MPO: a phone's JPEG with a preview
                raise ValueError(
                    f"{source} has {getattr(image, 'n_frames', 1)} frames; only single images are restored"
                )
            image.load()
            return image
    except (UnidentifiedImageError, SyntaxError) as error:
        raise ValueError(f"{source} cannot be read as an image ({error})") from error


def _encoded(image: Image, source: Path) -> bytes:
    """Return the bytes of ``image`` in the format of ``source``."""
    kind = _read_image(source).format
    kind = "JPEG" if kind == "MPO" else kind
    options: dict[str, Any] = {}
    if kind == "JPEG":
        options = {"quality": 95, "subsampling": 0}
    elif kind == "WEBP":
        options = {"lossless": True, "exact": True}
    options |= {key: image.info[key] for key in ("icc_profile", "exif") if image.info.get(key)}
    buffer = io.BytesIO()
    try:
        image.save(buffer, format=kind, **options)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{source} cannot be written as {kind} ({error}); convert it to PNG") from error
    return buffer.getvalue()


@app.command()
def verify(
    data: Data,
    restorer: Model,
    split: Split = None,
    limit: Limit = None,
    brute_force: Annotated[
        bool | None,
        typer.Option(
            "--brute-force/--no-brute-force", help="All of it by brute force, or none.", show_default="a sample"
        ),
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Images to check by brute force as well.")] = 200,
    as_json: Json = False,
) -> None:
    """Check the promise: every shift of every image is restored to the same image, bit for bit.

    That the network's scores shift along with the image needs no trial: it adds integers, every sum is
    bounded below the largest that is exact, and integers add up the same in any order. So the scores are
    computed once per image, and what could still differ is computed for every shift: the choice of the
    highest score, the tie rule, and the image that results. To rely on nothing, a random sample is also
    checked by brute force, each shifted image through the whole network. Exit code 1 if anything differs.

    \b
    Examples:
      unshift verify --data mnist --restorer mnist
      unshift verify --data mnist --restorer mnist --limit 100 --brute-force
    """
    import torch

    from unshift.testing import verify as check
    from unshift.weights import load

    model = load(restorer)
    found = _open_for(model, data, split, limit)
    started = time.monotonic()
    pixels = model.coordinates(found.images[:1])[0, 0].numel()
    batch = max(1, min(1024, 2**20 // pixels))  # shifts at a time: a photo has 50,000 positions
    results = {}
    if not brute_force:
        results["every image"] = check(model, found.images, batch_size=batch, progress=True)
    if brute_force is not False:
        some = found.images
        if not brute_force and sample < len(some):
            some = some[torch.randperm(len(some), generator=torch.Generator().manual_seed(0))[:sample].sort().values]
        name = "every image" if brute_force else "sample"
        results[name] = check(model, some, brute_force=True, batch_size=batch, progress=True)
    exact = all(result.exact for result in results.values())
    if as_json:
        about = {"data": found.name, "restorer": restorer, "exact": exact}
        checks = {name.replace(" ", "_"): result.as_dict() for name, result in results.items()}
        _print_json({**about, **checks, "seconds": round(time.monotonic() - started, 1)})
    else:
        print(f"{found.name}, restorer {restorer}: {'exact' if exact else 'NOT EXACT'}")
        for result in results.values():
            print(f"  {result}")
        if not brute_force:
            print(
                "  Proven, not computed: the scores of a shifted image are the shifted scores (integer sums have no\n"
                "  order). Computed for every shift: the choice on those scores, the tie rule, the restored image."
            )
        print(f"  {time.monotonic() - started:.1f} s")
    if not exact:
        raise typer.Exit(1)


@app.command()
def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A restorer's name, or a file: print its model card.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the restorers that come with the package, or print the model card of one.

    \b
    Examples:
      unshift models
      unshift models mnist
      unshift models mine.safetensors --json
    """
    from unshift import weights

    if name is not None:
        restorer = weights.load(name)
        if as_json:
            _print_json({"name": name, **restorer.metadata, "estimator": restorer.scorer.describe()})  # type: ignore[operator]
        else:
            print(weights.model_card(name, restorer), end="")
        return
    found = [
        {"name": key, "file": str(path), "bytes": path.stat().st_size, **weights.read_header(path)["metadata"]}
        for key, path in weights.pretrained().items()
    ]
    if as_json:
        _print_json(found)
        return
    rows = [
        [
            row["name"],
            row.get("preset", "?"),
            "x".join(str(n) for n in row.get("size", [])),
            _bytes(row["bytes"]),
            *(_percent(row[split]["exact"]) if split in row else "-" for split in ("validation", "test")),
            row.get("data", "?"),
        ]
        for row in found
    ]
    _print_table(["name", "preset", "size", "file", "validation", "test", "trained on"], rows, right=(3, 4, 5))
    print("\nvalidation, test: images restored exactly, on all of their shifts")


@data_app.command("list")
def data_list(as_json: Json = False) -> None:
    """List the datasets that are known by name: which are here, where, and how large.

    They live in $UNSHIFT_DATA, or ~/.cache/unshift; mnist-10k comes with the package.
    """
    from unshift.data import status
    from unshift.data.files import root

    found = status()
    if as_json:
        _print_json([{**asdict(row), "where": str(row.where)} for row in found])
        return
    rows = [[row.name, "here" if row.present else "absent", _bytes(row.size), row.licence, row.about] for row in found]
    _print_table(["name", "", "size", "licence", "what"], rows, right=(2,))
    print(f"\nin {root()}; absent ones are downloaded at first use, or by `unshift data get NAME`")


@data_app.command("get")
def data_get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Datasets, as `unshift data list` names them.")],
    as_json: Json = False,
) -> None:
    """Download what is missing of a dataset and check every byte of it.

    A download that breaks off goes on where it stopped when the command is given again.

    \b
    Examples:
      unshift data get mnist
      UNSHIFT_DATA=/data unshift data get cifar10 fashion-mnist
    """
    from unshift.data import get
    from unshift.data.datasets import find

    for name in names:
        find(name)  # a typing error in the second name should not wait for the first download
    folders = {}
    for name in names:
        folders[name] = str(get(name))
        if not as_json:
            print(f"{name}  complete and intact in {folders[name]}")
    if as_json:
        _print_json(folders)


# --- a user's own classifier --------------------------------------------------------------------------


def load_classifier(spec: str) -> Callable[[Tensor], Tensor]:
    """Return the classifier that ``spec`` names: shipped, a TorchScript or ``.pt2`` file, ``module:function``."""
    from unshift.experiments.classifiers import shipped

    names = shipped()
    if spec in names:
        return names[spec]().eval()
    path = Path(spec)
    if path.is_dir():
        raise ValueError(f"classifier {spec} is a folder; wanted is a file")
    if path.is_file():
        return _exported(path) if path.suffix == ".pt2" else _scripted(path)
    if re.fullmatch(r"[\w.]+:[\w.]+", spec):
        return _imported(*spec.split(":"))
    raise ValueError(
        f"no classifier {spec!r}: neither a file, nor module:function, nor one of {', '.join(names) or '(none)'}"
    )


def _scripted(path: Path) -> Callable[[Tensor], Tensor]:
    import torch

    try:
        return torch.jit.load(str(path), map_location="cpu").eval()
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"classifier {path} is no TorchScript model; write one with torch.jit.script(model).save(...), "
            "or a .pt2 with torch.export.save: a plain torch.save file has weights but no model"
        ) from error


def _exported(path: Path) -> Callable[[Tensor], Tensor]:
    import torch

    try:
        program = torch.export.load(str(path))
        module = program.module()
    # Whatever the zip reader, the JSON reader or the deserialiser stumbles on.
    except Exception as error:
        raise ValueError(f"classifier {path} is no torch.export program ({_first_line(error)})") from error
    inputs = program.graph_signature.user_inputs
    node = next((node for node in program.graph.nodes if [node.name] == list(inputs)), None)
    if node is None:
        raise ValueError(f"classifier {path} wants {len(inputs)} inputs; wanted is a model of one, the images")
    batch = node.meta["val"].shape[0]
    return _in_batches_of(module, batch) if isinstance(batch, int) else module


def _in_batches_of(module: Callable[[Tensor], Tensor], size: int) -> Callable[[Tensor], Tensor]:
    """Feed a program that was exported for one batch size: in parts, the last filled up with its last image."""
    import torch

    def run(images: Tensor) -> Tensor:
        parts = []
        for part in images.split(size):
            missing = part[-1:].expand(size - len(part), *part.shape[1:])
            parts.append(module(torch.cat([part, missing]))[: len(part)])
        return torch.cat(parts)

    return run


def _imported(module: str, function: str) -> Callable[[Tensor], Tensor]:
    from torch import nn

    spec = f"{module}:{function}"
    with _current_folder_importable():
        try:
            found: Any = import_module(module)
        # The user's own code: it may raise anything.
        except Exception as error:
            raise ValueError(f"classifier {spec}: cannot import {module} ({_first_line(error)})") from error
        try:
            for name in function.split("."):
                found = getattr(found, name)
        except AttributeError as error:
            raise ValueError(f"classifier {spec}: {_first_line(error)}") from error
        if not isinstance(found, nn.Module):
            if not callable(found):
                raise ValueError(f"classifier {spec} is a {type(found).__name__}, not a function")
            try:
                found = found()
            except Exception as error:
                raise ValueError(f"classifier {spec}() failed ({_first_line(error)})") from error
    if not isinstance(found, nn.Module):
        raise ValueError(f"classifier {spec}() returned a {type(found).__name__}, wanted is an nn.Module")
    return found.eval()


@contextlib.contextmanager
def _current_folder_importable() -> Iterator[None]:
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _try(classifier: Callable[[Tensor], Tensor], name: str, images: Tensor, classes: int) -> None:
    """Run two images through a classifier, so that a misfit shows at once and says what it is."""
    import torch

    shape = tuple(images.shape)
    try:
        with torch.no_grad():
            logits = classifier(images)
    except Exception as error:
        raise ValueError(
            f"classifier {name} cannot take these images, (batch, channel, height, width) = {shape}: "
            f"{_first_line(error)}"
        ) from error
    if not isinstance(logits, torch.Tensor):
        raise ValueError(f"classifier {name} must return logits (batch, classes), got a {type(logits).__name__}")
    if logits.ndim != 2 or len(logits) != len(images):
        raise ValueError(
            f"classifier {name} must return logits (batch, classes), got shape {tuple(logits.shape)} for {shape}"
        )
    if logits.shape[1] < classes:
        raise ValueError(f"classifier {name} tells {logits.shape[1]} classes apart, the data has {classes}")


def _first_line(error: BaseException) -> str:
    """Return the line of an error that tells most: TorchScript's comes last, after its traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("RuntimeError: ")]
    return (told or lines or [type(error).__name__])[0].removeprefix("RuntimeError: ")


# --- printing -----------------------------------------------------------------------------------------


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Print aligned columns; those in ``right`` flush right."""
    lines = [list(head), *rows] if head else list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def main() -> None:
    """Run the command line: the entry point ``unshift``."""
    app(prog_name="unshift")


if __name__ == "__main__":
    main()
