"""``unshift data``: list and download the named data sets."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from unshift.cli.options import Command, Json
from unshift.cli.outputs import file_size, print_json, print_table

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def data(ctx: typer.Context) -> None:
    """List the named data sets, or download one."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


@app.command("list", cls=Command)
def data_list(as_json: Json = False) -> None:
    """List the named data sets: whether each is on this computer, its size and licence.

    The folder is $UNSHIFT_DATA, or ~/.cache/unshift. mnist-10k is part of the package.
    """
    from unshift.data import root
    from unshift.data.catalogue import DATASETS

    rows: list[dict[str, Any]] = [
        {"name": name, "present": entry.present(), "where": str(entry.folder()), "size": entry.size()}
        | {"licence": entry.licence, "about": entry.summary()}
        for name, entry in DATASETS.items()
    ]
    if as_json:
        print_json(rows)
        return
    cells = [
        [row["name"], "yes" if row["present"] else "no", file_size(row["size"]), row["licence"], row["about"]]
        for row in rows
    ]
    print_table(["name", "present", "size", "licence", "content"], cells, right=(2,))
    print(f"\nin {root()}; missing ones are downloaded at first use, or by `unshift data get NAME`")


@app.command("get", cls=Command)
def data_get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets, as in `unshift data list`.")],
    as_json: Json = False,
) -> None:
    """Download the missing files of data sets, and check the md5 of every file.

    An interrupted download leaves no file: repeat the command. Needs the extra: pip install 'unshift[data]'

    \b
    Examples:
      unshift data get mnist
      UNSHIFT_DATA=/data unshift data get cifar10 fashion-mnist
    """
    from unshift.data import get
    from unshift.data.catalogue import find

    for name in names:
        find(name)  # before the first download, so that a misspelt second name is reported at once
    folders = {}
    for name in names:
        folders[name] = str(get(name))
        if not as_json:
            print(f"{name}  complete in {folders[name]}")
    if as_json:
        print_json(folders)
