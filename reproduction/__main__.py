"""Run items: measure, print their tables, and write the records.

Examples:
  python -m reproduction --list              claims, measured times, and what is missing on this computer
  python -m reproduction table1              one item
  python -m reproduction fig4 --data mnist   its cases on one data set
  python -m reproduction --all --fetch       everything, after fetching what can be fetched
  python -m reproduction fetch vgg16-cifar10
  python -m reproduction rivals --data mnist --method mine:mirrored    with a method of your own
  python -m reproduction rotation --quick    a few images, to test that it runs; nothing is written without --out
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from reproduction import records, sources
from reproduction.items import ALIASES, ITEMS, find, header
from reproduction.records import Options
from reproduction.tables import Picture, render
from unshift.data import DataError

SKIPPED = 3
"""Exit code if cases were skipped because something is missing."""


def main(words: list[str] | None = None) -> int:
    """Run the command line, and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduction", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="items; or fetch and what to fetch")
    add("--list", action="store_true", help="list the items")
    add("--all", action="store_true", help="run all items")
    add("--fetch", action="store_true", help="first fetch what is missing and can be fetched")
    add("--data", action="append", metavar="NAME", help="only cases on this data set, or of this name; repeatable")
    add("--method", action="append", default=[], metavar="MODULE:FUNCTION", help="one more row of rivals; repeatable")
    add("--seeds", type=int, default=5, help="number of draws (default: 5)")
    add("--quick", action="store_true", help="a few images, or noise if data are missing")
    add("--out", type=Path, help="folder of records and pictures; default: the clone's records")
    add("--dirty", action="store_true", help="write records although the checkout has uncommitted changes")
    add("--threads", type=int, help="CPU threads")
    given = parser.parse_args(words)
    if given.threads:
        torch.set_num_threads(given.threads)
    seeds = tuple(range(2 if given.quick else given.seeds))
    try:
        if given.list:
            print(listing())
            return 0
        if given.names[:1] == ["fetch"]:
            return _fetch(given.names[1:])
        if not given.names and not given.all:
            parser.print_help()
            return 2
        return run(
            ITEMS if given.all else given.names,
            options=Options(quick=given.quick, seeds=seeds, methods=tuple(given.method)),
            out=given.out,
            data=given.data,
            dirty=given.dirty,
            fetch=given.fetch,
            command=" ".join(["python -m reproduction", *(sys.argv[1:] if words is None else words)]),
        )
    except (ValueError, DataError) as error:
        print(error, file=sys.stderr)
        return 2


def run(
    names: list[str],
    *,
    options: Options,
    out: Path | None = None,
    data: list[str] | None = None,
    dirty: bool = False,
    fetch: bool = False,
    command: str = "",
) -> int:
    """Measure items case by case, and print and write each as soon as it is done.

    Args:
        names: Names of items, or the paper's numbers.
        options: Options of the run.
        out: Folder for the records. Default: the clone's records. A quick run, or one with methods that are not part of
            the clone, then writes nothing.
        data: Keep the cases on one of these data sets, or of one of these names.
        dirty: Whether to write although the checkout has uncommitted changes.
        fetch: Whether to fetch what is missing first.
        command: The command line, for the records.

    Returns:
        0, or :data:`SKIPPED` if cases were skipped because something is missing.
    """
    items = {ALIASES.get(name, name): find(name) for name in names}
    todo = [(name, case) for name, item in items.items() for case in _cases(item.CASES, data)]
    if not todo:
        raise ValueError(f"{', '.join(names)}: no case on {' or '.join(data or [])}")
    folder = out or (None if options.quick or options.methods else records.RESULTS)
    if folder:
        records.refuse_dirty(dirty)
    skipped = False
    for name, case in todo:
        item = items[name]
        if fetch and not options.quick:
            _fetch(list(sources.missing(item.CASES[case])))
        if not options.quick and (lacking := sources.missing(item.CASES[case])):
            what = "; ".join(f"{what} is missing: {origin}" for what, origin in lacking.items())
            print(f"{name} {case}: skipped, {what}", file=sys.stderr)
            skipped = True
            continue
        begun = time.monotonic()
        result = item.measure(case, options)
        seconds = time.monotonic() - begun
        if folder:
            settings = {"command": command, "options": options, "seconds": seconds, "dirty": dirty}
            records.write(name, case, result, folder=folder, **settings)  # now: a killed run loses no case
        stored = {key: record["result"] for key, record in records.read(name, folder).items()} if folder else {}
        blocks = item.tables({**stored, case: result}, case)
        print(f"\n{header(item)['title']}: {case}, {seconds:.0f} s\n\n{render(blocks, 'terminal')}", flush=True)
        for picture in blocks if folder else ():
            if isinstance(picture, Picture) and picture.draw and (out or "pictures" in result):
                (folder / f"{picture.name}.png").write_bytes(picture.draw())
    return SKIPPED if skipped else 0


def _cases(cases: dict[str, tuple[str, ...]], data: list[str] | None) -> list[str]:
    wanted = {*(data or [])}
    return [
        case for case, needs in cases.items() if not data or {case, *(n.removesuffix("-10k") for n in needs)} & wanted
    ]


def listing() -> str:
    """Return the items: title, claim, the stored record's seconds, and what is missing."""
    lines = []
    for name in ITEMS:
        item = find(name)
        facts, stored = header(item), records.read(name)
        lines.append(f"{name}: {facts['title']}\n  {facts['claim']}")
        for case, needs in item.CASES.items():
            record = stored.get(case)
            took = f"{record['run']['seconds']:.0f} s" if record else "not measured"
            if record and not records.is_ancestor(record["run"]["commit"]):
                took += ", at a commit that is not part of this history: run it again"
            lacking = sources.missing(needs)
            lines.append(f"  {case}: {took}" + (f"; missing: {', '.join(lacking)}" if lacking else ""))
    here = {True: [], False: []}
    for name, source in sources.SOURCES.items():
        here[source.is_here()].append(name)
    return "\n".join([*lines, f"\npresent: {', '.join(here[True])}", f"missing: {', '.join(here[False])}"])


def _fetch(names: list[str]) -> int:
    """Fetch sources by name, or all that an item needs; return 1 if some failed."""
    failed = 0
    for name in names:
        known = name in ITEMS or name in ALIASES
        needs = [need for case in find(name).CASES.values() for need in case] if known else [name]
        for need in dict.fromkeys(needs):
            if known and need not in sources.SOURCES:
                continue
            try:
                sources.fetch(need)
            except DataError as error:
                print(error, file=sys.stderr)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
