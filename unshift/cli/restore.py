"""Restore image files: estimate how each was moved, undo it, and write it under its own name.

Shifts and turns move pixels and change none: a file keeps its format, mode, depth, palette, transparency and metadata.
A file that was not moved is copied byte for byte. Every other file is read again after it was written, and moved back:
the result must equal the input bit for bit. Files for which this is impossible are refused by name: animations, icons
of several images, and 16-bit colours, which Pillow reduces to 8 bits. If a file is refused or cannot be read, nothing
is written, and the exit code is 2; with --skip-unreadable it is skipped and named, and the exit code is 0. Images are
restored as they are displayed: if pixels move, the EXIF orientation is applied to them and removed.

OUT/poses.csv has one row per file, with the columns that the restorer estimates: "down" and "right", the shift in
pixels, from 0 to size-1 because it is circular (with --pad the shortest shift: -2 is 2 up or left); "turn"; "angle", in
degrees, counter-clockwise; "confidence"; and "tied", true if several poses had the same score. The column "written" is
"lossless", "copied" or one of these, which the summary counts too:

\b
  lossy         JPEG and AVIF, encoded again at quality 95
  interpolated  rotated by other than quarter turns; images with a palette become RGB
  cropped       pixels moved beyond the image, with --pad, or beyond the window of a scene
  resized       by --resize or --size
  rejected      copied, because the confidence is below --min-confidence (the column restored is false)

With a restorer of quarter turns, the pages of PDF files (needs unshift[pages]) and of TIFF files are judged one by one,
and the table has a row for each. A PDF is only appended to: new rotation entries, and no other byte changes. A JPEG is
turned without loss if jpegtran is installed and its size allows.

Images are restored at their own size if the restorer takes any size (the presets seam and paper do). For a restorer of
one size, --resize or --size scales the images first. The network sees the margin of --pad, but it is not written.

Sequences of FASTA files are rotated as by `unshift orient` and written to one file OUT, with a table beside it.

\b
Examples:
  unshift restore shifted/ -r photos.safetensors -o restored/
  unshift restore photos/ -r photos.safetensors -o restored/ --min-confidence 0.5
  unshift restore a.png b.png -r mnist --resize -o restored/
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshift.cli import options
from unshift.cli.allocator import raise_mmap_threshold
from unshift.cli.errors import warn
from unshift.cli.image_files import Reader
from unshift.cli.orient import LOW, orient_files
from unshift.cli.outputs import join_names, print_json, remove_stale, staged, write_table
from unshift.cli.prepared_data import preparation, takes_any_size
from unshift.cli.restoring import Restoring, Result, turns_pages

if TYPE_CHECKING:
    from unshift.restorer import Chain, Restorer

TABLE = "poses.csv"
LOSSES = {
    "lossy": "encoded again in a lossy format",
    "interpolated": "rotated, which mixes neighbouring pixels",
    "cropped": "without the pixels that lie beyond the image or its window",
}
"""The values of the column ``written`` that the summary reports."""


IMAGES_HELP = "Image files, PDF files, or folders of them at any depth; or FASTA files."
OUT_HELP = "Folder to write to, not one that holds the inputs; for sequences, a file."


def restore(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES...", help=IMAGES_HELP)],
    restorer: options.Model,
    out: Annotated[Path, typer.Option("--out", "-o", help=OUT_HELP)],
    min_confidence: options.MinConfidence = None,
    skip_unreadable: options.SkipUnreadable = False,
    resize: Annotated[
        bool, options.images_option("--resize", help="First scale the images to the size the restorer was made for.")
    ] = False,
    size: options.Size = None,
    crop: options.Crop = False,
    channels: options.Channels = None,
    pad: options.Pad = None,
    device: options.Device = "cpu",
    workers: options.Workers = None,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Move image files back, and sequences to their start."""
    from unshift import distributed as ranks
    from unshift.data.sequences import is_fasta
    from unshift.files import load

    if any(map(is_fasta, images)):
        if resize or crop or skip_unreadable or any(given is not None for given in (size, channels, pad, workers)):
            raise ValueError("sequences are restored as they are: omit the options for images")
        print("genomes have a command of their own: unshift orient --help", file=sys.stderr)
        table = (out.with_suffix("") if out.suffix.lower() in (".gz", ".bz2") else out).with_suffix(".csv")
        found = orient_files(
            images, restorer, out, table, min_confidence=min_confidence or 0.0, device=device, force=force, quiet=quiet
        )
        if as_json:
            print_json(found)
        raise typer.Exit(1 if any(row["result"] == LOW for row in found) else 0)
    raise_mmap_threshold()
    device = ranks.device(device)
    model = load(restorer, pad=pad).to(device)
    least = model.min_confidence if min_confidence is None else min_confidence
    model.min_confidence = 0.0  # the table holds the poses of rejected images too
    targets = _targets(images, out, (".pdf",) if turns_pages(model) else ())
    ranks.check_enough(len(targets))
    remove_stale(out)
    if existing := [path for path in (*targets, out / TABLE) if path.exists() and not force]:
        raise ValueError(f"{existing[0]} exists ({len(existing)} such files); --force overwrites")
    reader = _reader(model, resize, preparation(size, crop, channels, None))
    hint = "" if reader.size or takes_any_size(model) else "; --resize scales images to the size of this restorer"
    restoring = Restoring(model, reader, least, skip_unreadable, hint, device, workers)
    results, rows = _restored(restoring, targets, out, force, quiet)
    if ranks.is_first():
        coloured = next((result.source for result in results.values() if not result.grey), None)
        if reader.channels == 1 and coloured:
            warn(f"this restorer sees only grey values, and {coloured} has colours")
        _print_summary(results, out / TABLE, rows if as_json else None)


def _restored(
    restoring: Restoring, targets: dict[Path, Path], out: Path, force: bool, quiet: bool
) -> tuple[dict[Path, Result], list[dict[str, Any]]]:
    """Restore all files, this process its share of them; return all results by target, and the rows of the table."""
    from unshift import distributed as ranks
    from unshift.progress import Progress

    mine = ranks.share([*targets])
    with staged(out) as folder, Progress("restore", len(mine), "images", not quiet) as progress:
        files = [(targets[target], folder / target.relative_to(out)) for target in mine]
        own = restoring.run(files, progress.update)
        by_name = [(str(target), asdict(result)) for target, result in zip(mine, own, strict=True)]
        gathered = dict(ranks.gathered_json(by_name))
        results = {target: Result(**gathered[str(target)]) for target in targets}
        paged = {"page": 1} if any("page" in row for result in results.values() for row in result.rows) else {}
        rows = [
            {"file": target.relative_to(out).as_posix(), **paged, **row}
            | ({"restored": row["written"] != "rejected"} if restoring.min_confidence else {})
            for target, result in results.items()
            for row in result.rows
        ]
        if not rows:
            first = next(iter(results.values()))
            raise ValueError(f"none of the {len(results):,} files can be restored: {first.problem}")
        if ranks.is_first():
            write_table(out / TABLE, rows, force)  # written first: of two runs into one folder, one stops here
        ranks.gathered_json([])  # the other ranks wait for it
        for target, (_, file) in zip(mine, files, strict=True):
            if results[target].rows:
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)
    return results, rows


def _print_summary(results: dict[Path, Result], table: Path, rows: list[dict[str, Any]] | None) -> None:
    """Print the number of restored files and name those with losses, or print the rows as JSON."""
    skipped = [result for result in results.values() if not result.rows]
    for result in skipped:
        warn(f"skipped: {result.problem}")
    if rows is not None:
        print_json(rows)
        return
    written = Counter(result.written for result in results.values() if result.rows)
    count = written.total() - written["rejected"]
    rejected = f"; {written['rejected']:,} of low confidence copied unchanged" if written["rejected"] else ""
    refused = f"; {len(skipped):,} skipped" if skipped else ""
    moved = count - written["copied"]
    print(f"{count:,} images restored, {moved:,} of them moved{rejected}{refused}; their poses are in {table}")
    low_confidence = [
        f"{result.source} page {row['page']}" if "page" in row else result.source
        for result in results.values()
        for row in result.rows
        if row["written"] == "rejected"
    ]
    if low_confidence:
        print(f"left as they are, for a low confidence: {join_names(low_confidence)}")
    for outcome in sorted(written):
        kind, comma, rest = outcome.partition(",")
        if kind in LOSSES:
            sources = [result.source for result in results.values() if result.written == outcome]
            print(f"{len(sources):,} of them {LOSSES[kind]}{comma}{rest}: {join_names(sources)}")


def _targets(inputs: Sequence[Path], out: Path, documents: tuple[str, ...]) -> dict[Path, Path]:
    """Return the source of each file to write, by target."""
    from unshift.data.photos import image_names

    targets: dict[Path, Path] = {}
    for given in inputs:
        if not (given.is_file() or given.is_dir()):
            raise ValueError(f"{given} is a pipe or device" if given.exists() else f"no file or folder {given}")
        folder = given if given.is_dir() else given.parent
        home, place = folder.resolve(), out.resolve()
        if place == home or (given.is_dir() and place.is_relative_to(home)):
            raise ValueError(f"--out {out} is where the inputs are ({given}); give another folder")
        for name in image_names(given, documents) if given.is_dir() else [given.name]:
            target, source = out / name, folder / name
            if target in targets and not source.samefile(targets[target]):
                raise ValueError(f"{targets[target]} and {source} would both become {target}; restore them separately")
            targets[target] = source
    resolved = {source.resolve() for source in targets.values()}
    if overwritten := next((target for target in targets if target.resolve() in resolved), None):
        raise ValueError(f"{overwritten} is itself one of the inputs; give another --out")
    return targets


def _reader(model: Restorer | Chain, resize: bool, steps: dict[str, Any]) -> Reader:
    """Return the reader of images for ``model``. Raise a ``ValueError`` if it does not take images."""
    channels, size = model.image_shape()
    if size is not None and len(size) != 2:
        raise ValueError(f"restore is for image files; this restorer takes arrays of {len(size)} axes, not 2")
    margin = model.trained_on.get("preparation", {}).get("pad", 0)
    coordinates = [stage.coordinates.describe() for stage in model.stages]
    if margin and [kind["kind"] for kind in coordinates] == ["shifts"]:
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
        # The training images included the margin. The size of a network of one size does not.
        added = margin if any(kind.get("pad") for kind in coordinates) and not model.stages[0].scorer.size else 0
        asked = [n - 2 * added for n in size]
    wanted = (asked[0], asked[1]) if asked else None
    return Reader(steps.get("channels") or channels or 3, wanted, fit, "angle" in model.coordinates.labels.reads)
