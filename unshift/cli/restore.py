"""``unshift restore``: image files, moved back to where they were."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshift.cli.errors import warn
from unshift.cli.image_files import encoded, restore_file
from unshift.cli.options import Json, Model, Pad
from unshift.cli.outputs import check_folder
from unshift.cli.printing import print_json

if TYPE_CHECKING:
    from unshift.restorer import Chain, Estimate, Restorer

TABLE = "poses.csv"


def restore(
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGES...", help="Image files, or folders of them at any depth.")
    ],
    restorer: Model,
    out: Annotated[Path, typer.Option("--out", help="Folder to write to; not one that holds the inputs.")],
    resize: Annotated[
        bool, typer.Option("--resize", help="First scale each image to the size the restorer was made for.")
    ] = False,
    pad: Pad = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files in OUT.")] = False,
    as_json: Json = False,
) -> None:
    """Restore image files: estimate how each was moved, undo it, and write it under its own name.

    Shifts and turns move pixels and change none: PNG and other lossless formats keep every value, mode and
    palette. Rotations by other than quarter turns mix neighbouring pixels; images with a palette then become
    RGB. JPEG is lossy by nature and is written anew at quality 95. Files keep their names, and the places
    they had in a folder. If any file cannot be read, nothing is written.

    OUT/poses.csv lists, per file, what was found: down and right are the shift in pixels, from 0 to size-1
    as it is circular, or with --pad the short way round, so that -2 is 2 up or left; turn is the turn's name;
    angle is in degrees, counter-clockwise; and then the confidence in 0..1, and whether several poses tied.
    It has the columns that the restorer reads.

    \b
    Examples:
      unshift restore shifted/ --restorer photos.safetensors --out restored/
      unshift restore a.png b.png --restorer mnist --resize --out restored/
      unshift restore scans/ --restorer mnist-rotation --resize --out upright/
    """
    from unshift.progress import tracked
    from unshift.weights import load, write_atomically

    model = load(restorer, pad=pad)
    targets = _targets(images, out)
    table = out / TABLE
    if existing := [path for path in (*targets, table) if path.exists() and not force]:
        raise ValueError(f"{existing[0]} exists ({len(existing)} such files); --force overwrites")
    size = _check_images(model, resize)
    found: dict[Path, Estimate] = {}
    for target, source in tracked(targets.items(), "estimate", "images"):
        found[target] = restore_file(model, source, size)[1]
    check_folder(out)
    for target, source in tracked(targets.items(), "write", "images"):
        write_atomically(target, encoded(restore_file(model, source, size, found[target])[0], source))
    rows = [{"file": target.relative_to(out).as_posix(), **_row(model, estimate)} for target, estimate in found.items()]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows({**row, "tied": json.dumps(row["tied"])} for row in rows)
    # Names that are not valid UTF-8 are kept as they are on disk.
    write_atomically(table, text.getvalue().encode("utf-8", "surrogateescape"))
    if as_json:
        print_json(rows)
    else:
        moved = sum(any(part is not None and part.any() for part in estimate[:3]) for estimate in found.values())
        print(f"{len(rows):,} images restored, {moved:,} of them moved; their poses are in {table}")


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


def _check_images(model: Restorer | Chain, resize: bool) -> tuple[int, ...] | None:
    """Refuse restorers of other than images, and return the size to scale to, if asked."""
    from unshift.weights import image_shape

    size = image_shape(model)[1]
    if size is not None and len(size) != 2:
        raise ValueError(f"restore is for image files; this restorer takes arrays of {len(size)} axes, not 2")
    margin = model.trained_on.get("preparation", {}).get("pad", 0)
    pads = [stage.coordinates.describe().get("pad") for stage in model.stages]
    if margin and pads == [0]:
        warn(
            f"this restorer was trained on images with a black margin of {margin} pixels; "
            f"if yours have none, give --pad {margin}"
        )
    if not resize:
        return None
    if size is None:
        raise ValueError("--resize: this restorer takes any size and does not tell which one it was made for")
    # The training images had the margin already; a net of one size has told the size without it.
    grown = margin if any(pads) and not model.stages[0].scorer.size else 0
    return tuple(n - 2 * grown for n in size)
