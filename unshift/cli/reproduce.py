"""Reproduce the paper's results; without ITEM, its headline on real digits.

The main job needs no download: a frozen LeNet-5 classifies the MNIST test digits, shifted by 0 to 8
pixels, with and without a restorer. It prints the paper's table beside ours and writes a report.

\b
Examples:
  unshift reproduce                    the main job, with the shipped weights
  unshift reproduce --train            the same, trained here from scratch
  unshift reproduce --list             what else there is, and how long it takes
  unshift reproduce table1             Table 1 in full: five seeds, CIFAR-10 and Fashion-MNIST too
  unshift reproduce fig4 --data mnist  one data set of Figure 4
  unshift reproduce rivals --weights resnet18-cifar10-autoattack=resnet18.pt
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from unshift.cli.allocator import keep_freed_memory
from unshift.cli.options import Json
from unshift.cli.outputs import check_folder
from unshift.cli.printing import print_json, print_table


def reproduce(
    items: Annotated[
        list[str] | None, typer.Argument(metavar="[ITEM]...", help="What to reproduce; see --list.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("report"),
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="Only on this set: mnist, cifar10 or fashion-mnist; may be repeated."),
    ] = None,
    train: Annotated[
        bool,
        typer.Option("--train", help="First train: restorers (and LeNet-5) on embedded digits; for seam, its budgets."),
    ] = False,
    weights: Annotated[
        list[str] | None,
        typer.Option("--weights", metavar="NAME=FILE", help="A classifier that others trained; may be repeated."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer images: a look, not a result.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the items and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Reproduce the paper's tables and figures."""
    from unshift import experiments

    if list_:
        known = experiments.experiments()
        if as_json:
            keys = ("name", "item", "title", "claim", "cost")
            print_json([{key: getattr(record, key) for key in keys} for record in known])
        else:
            print_table([], [[record.name, record.heading, record.cost] for record in known])
            print(f"\n{experiments.COST_NOTE}")
        return
    wanted = list(items or [])
    for item in wanted:
        experiments.find(item)  # before the folder is made
    files = _files(weights or [])
    check_folder(out)
    keep_freed_memory()
    # The tables that it prints are for people: with --json they go where they disturb no script.
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        result = experiments.reproduce(
            wanted, out, data=data or (), train=train, quick=quick, progress=True, weights=files
        )
    page = out / "index.html"
    if as_json:
        from unshift.experiments.report import without_pictures

        print_json({**without_pictures(result), "report": str(page)})
    elif page.exists():
        print(f"\nreport: {page}")


def _files(weights: list[str]) -> dict[str, Path]:
    """Return the files of ``--weights`` by the classifiers' names."""
    files = {}
    for given in weights:
        name, equals, file = given.partition("=")
        if not (name and equals and file):
            raise ValueError(f"--weights takes NAME=FILE, got {given!r}")
        if not Path(file).is_file():
            raise ValueError(f"--weights {given}: there is no file {file}")
        files[name] = Path(file)
    return files
