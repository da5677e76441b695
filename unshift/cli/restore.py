"""Restore image files: estimate how each was moved, undo it, and write it under its own name.

Shifts and turns move pixels and change none: PNG and other lossless formats keep every value, mode and
palette. Rotations by other than quarter turns mix neighbouring pixels; images with a palette then become
RGB. JPEG is lossy, and is written again at quality 95. Files keep their names, and their places in a folder. If a
file cannot be read, or is too small, nothing is written; with --skip-unreadable it is skipped, and the summary names
it.

Images are restored at their own size if the restorer takes any size (the presets seam and paper do; a warning says so
if the images are unlike those it was trained on). A restorer for one size says which: --resize or --size then scales
the images first, and they are written at that size. The network sees the margin of --pad, but it is not written.

OUT/poses.csv lists what was found, a row per file. down and right are the shift in pixels, from 0 to size-1 as it is
circular; with --pad the short way round, so that -2 is 2 up or left. turn is the turn's name; angle is in degrees,
counter-clockwise. The confidence is in 0..1, and tied says whether several poses scored the same. There are only the
columns that the restorer reads. With --min-confidence there is one more, restored: false for images that were copied
unchanged.

Sequences of FASTA files are turned to their start and written to one FASTA file OUT, in order, with their letters and
headers as they were. Beside it, OUT's name with .csv is a table: name, length, start (the base of the input, counted
from 1, that became the first), strand, confidence, tied, and oriented: false for those that --min-confidence left
unchanged. The exit code is 1 if there are any of those.

\b
Examples:
  unshift restore shifted/ --restorer photos.safetensors --out restored/
  unshift restore photos/ --restorer photos.safetensors --out restored/ --min-confidence 0.5
  unshift restore a.png b.png --restorer mnist --resize --out restored/
  unshift restore scans/ --restorer mnist-rotation --resize --out upright/
  unshift restore genomes.fa --restorer mitogenome --out oriented.fa --min-confidence 0.9
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshift.cli.allocator import forget_sizes, keep_freed_memory
from unshift.cli.errors import warn
from unshift.cli.image_files import Picture, Reader
from unshift.cli.options import Channels, Crop, Json, MinConfidence, Model, Pad, Size, SkipUnreadable
from unshift.cli.outputs import check_folder, write_table
from unshift.cli.prepared_data import preparation
from unshift.cli.printing import named, print_json
from unshift.cli.restoring import Outcome, Restoring
from unshift.cli.sequence_files import restore_sequences

if TYPE_CHECKING:
    from unshift.restorer import Chain, Estimate, Restorer

TABLE = "poses.csv"


def restore(
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES...", help="Image files, or folders of them at any depth; or FASTA files."),
    ],
    restorer: Model,
    out: Annotated[
        Path, typer.Option("--out", help="Folder to write to, not one that holds the inputs; a file for sequences.")
    ],
    min_confidence: MinConfidence = 0.0,
    skip_unreadable: SkipUnreadable = False,
    resize: Annotated[
        bool, typer.Option("--resize", help="First scale the images to the size the restorer was made for.")
    ] = False,
    size: Size = None,
    crop: Crop = False,
    channels: Channels = None,
    pad: Pad = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files in OUT.")] = False,
    as_json: Json = False,
) -> None:
    """Move image files back, and sequences to their start."""
    from unshift.data.sequences import is_fasta
    from unshift.ranks import is_first
    from unshift.weights import load

    if any(map(is_fasta, images)):
        if resize or crop or skip_unreadable or any(given is not None for given in (size, channels, pad)):
            raise ValueError("sequences are restored as they are: leave out all options that are for images")
        forget_sizes()
        left = restore_sequences(images, load(restorer), out, min_confidence, force, as_json)
        raise typer.Exit(1 if left else 0)
    keep_freed_memory()
    model = load(restorer, pad=pad)
    targets = _targets(images, out)
    if existing := [path for path in (*targets, out / TABLE) if path.exists() and not force]:
        raise ValueError(f"{existing[0]} exists ({len(existing)} such files); --force overwrites")
    reader = _reader(model, resize, preparation(size, crop, channels, None))
    one_size = any(getattr(stage.scorer, "size", None) for stage in model.stages)
    hint = "; --resize scales images to the size this restorer was made for" if one_size and not reader.size else ""
    restoring = Restoring(model, reader, min_confidence, skip_unreadable, _Colours(reader.channels), hint)
    entries = _restored(restoring, targets, out)
    rows = [entry["row"] for entry in entries if "row" in entry]
    if min_confidence:
        rows = [{**entry["row"], "restored": not entry["doubtful"]} for entry in entries if "row" in entry]
    if is_first():
        write_table(out / TABLE, rows)
        _print_outcome(entries, out / TABLE, rows, as_json)


def _restored(restoring: Restoring, targets: dict[Path, Path], out: Path) -> list[dict[str, Any]]:
    """Restore all files, this process its share of them, and return what became of each, in order."""
    from unshift import ranks
    from unshift.progress import Progress

    ranks.check_enough(len(targets))
    order = {target: number for number, target in enumerate(targets)}
    mine = dict(ranks.share([*targets.items()]))
    with _staged(out) as place, Progress("restore", len(mine), "images") as told:
        outcome = restoring.run(mine, lambda target: place / target.relative_to(out), told.update)
        found = [
            {"at": order[target], "source": str(source), **_entry(source, target, out, restoring.model, outcome)}
            for target, source in mine.items()
        ]
        entries = sorted(ranks.gathered_json(found), key=lambda entry: entry["at"])
        if not any("row" in entry for entry in entries):
            raise ValueError(f"none of the {len(targets):,} files can be restored: {entries[0]['unreadable']}")
        for target in outcome.found:
            target.parent.mkdir(parents=True, exist_ok=True)
            (place / target.relative_to(out)).replace(target)
    return entries


def _entry(source: Path, target: Path, out: Path, model: Restorer | Chain, outcome: Outcome) -> dict[str, Any]:
    """Return what became of one file, as plain data: ranks tell each other."""
    if target not in outcome.found:
        return {"unreadable": outcome.unreadable[source]}
    estimate = outcome.found[target]
    return {
        "row": {"file": target.relative_to(out).as_posix(), **_row(model, estimate)},
        "moved": any(part is not None and bool(part.any()) for part in estimate[:3]),
        "doubtful": target in outcome.doubtful,
    }


def _print_outcome(entries: list[dict[str, Any]], table: Path, rows: list[dict[str, Any]], as_json: bool) -> None:
    """Say how many were restored, and what else became of files: beside JSON, on stderr."""
    unreadable = {Path(entry["source"]): entry["unreadable"] for entry in entries if "unreadable" in entry}
    if unreadable:
        warn(f"skipped, because they cannot be read or do not fit: {named(unreadable)}")
    if as_json:
        print_json(rows)
        return
    doubtful = sum(entry.get("doubtful", False) for entry in entries)
    moved = sum(entry.get("moved", False) and not entry["doubtful"] for entry in entries)
    kept = f"; {doubtful:,} doubtful ones were copied as they are" if doubtful else ""
    skipped = f"; {len(unreadable):,} were skipped" if unreadable else ""
    print(
        f"{len(rows) - doubtful:,} images restored, {moved:,} of them moved{kept}{skipped}; their poses are in {table}"
    )


@contextlib.contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """Yield a folder in ``out`` to write to: what is in it when all goes well is moved, or else forgotten."""
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    check_folder(out)
    place = Path(tempfile.mkdtemp(prefix=".restoring-", dir=out))
    try:
        yield place
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty: it was not this run that filled it
            for folder in new:
                folder.rmdir()
        raise
    shutil.rmtree(place, ignore_errors=True)


class _Colours:
    """Says once that a network of greys is shown colours."""

    def __init__(self, channels: int) -> None:
        self.silent = channels != 1

    def __call__(self, picture: Picture) -> None:
        from unshift.pictures import is_grey

        if not self.silent and not is_grey(picture.image):
            self.silent = True
            warnings.warn(
                f"this restorer was trained on grey images, and {picture.source} has colours: it sees their greys",
                stacklevel=2,
            )


def _row(model: Restorer | Chain, estimate: Estimate) -> dict[str, Any]:
    """Return what was read off one image, as the columns of the table."""
    row: dict[str, Any] = {}
    if "shift" in model.coordinates.reads:
        row |= {"down": int(estimate.shift[0, 0]), "right": int(estimate.shift[0, 1])}
    if estimate.turn is not None:
        row["turn"] = model.coordinates.names[int(estimate.turn)]
    if estimate.angle is not None:
        row["angle"] = float(estimate.angle)
    return {**row, "confidence": float(estimate.confidence), "tied": bool(estimate.tied)}


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


def _reader(model: Restorer | Chain, resize: bool, steps: dict[str, Any]) -> Reader:
    """Return how to read images for ``model``: scaled if asked; refuse restorers that do not take images."""
    from unshift.weights import image_shape

    channels, size = image_shape(model)
    if size is not None and len(size) != 2:
        raise ValueError(f"restore is for image files; this restorer takes arrays of {len(size)} axes, not 2")
    margin = model.trained_on.get("preparation", {}).get("pad", 0)
    pads = [stage.coordinates.describe().get("pad") for stage in model.stages]
    if margin and pads == [0]:
        warn(
            f"this restorer was trained on images with a black margin of {margin} pixels; "
            f"if yours have none, give --pad {margin}"
        )
    fit = "crop" if "crop" in steps else "resize"
    asked = steps.get(fit)
    if resize and asked is None:
        if size is None:
            raise ValueError(
                "--resize: this restorer takes any size, and its file does not say which it was trained at; give --size"
            )
        # The training images had the margin already; a net of one size has told the size without it.
        grown = margin if any(pads) and not model.stages[0].scorer.size else 0
        asked = [n - 2 * grown for n in size]
    wanted = (asked[0], asked[1]) if asked else None
    return Reader(steps.get("channels", channels), wanted, fit, rotated="angle" in model.coordinates.reads)
