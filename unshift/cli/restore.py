"""``unshift restore``: image files, moved back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unshift.cli.errors import warn
from unshift.cli.image_files import encoded, restore_file
from unshift.cli.options import Json, Model
from unshift.cli.outputs import check_folder
from unshift.cli.printing import print_json

if TYPE_CHECKING:
    from unshift.restorer import Estimate, Restorer


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
        found[target] = restore_file(model, source, resize)[1]
    check_folder(out)
    for target, source in tqdm(targets.items(), desc="write", unit="image", disable=None):
        write_atomically(target, encoded(restore_file(model, source, resize, found[target])[0], source))
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
        print_json(rows)
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
        warn(
            f"this restorer was trained on images with a black margin of {margin} pixels; "
            f"if yours have none, give --pad {margin}"
        )
