"""``unshift data``: the named data sets, listed and downloaded."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from unshift.cli.options import Json
from unshift.cli.printing import file_size, print_json, print_table

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def data(ctx: typer.Context) -> None:
    """List the named data sets, or download one."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


@app.command("list")
def data_list(as_json: Json = False) -> None:
    """List the named data sets: which are on this computer, where, and how large.

    They are kept in $UNSHIFT_DATA, or in ~/.cache/unshift. mnist-10k comes with the package.
    """
    from unshift.data import status
    from unshift.data.files import root

    found = status()
    if as_json:
        print_json([{**asdict(row), "where": str(row.where)} for row in found])
        return
    rows = [
        [row.name, "here" if row.present else "absent", file_size(row.size), row.licence, row.about] for row in found
    ]
    print_table(["name", "", "size", "licence", "what"], rows, right=(2,))
    print(f"\nin {root()}; absent ones are downloaded at first use, or by `unshift data get NAME`")


@app.command("get")
def data_get(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Data sets, as `unshift data list` names them.")
    ],
    as_json: Json = False,
) -> None:
    """Download what is missing of a data set, and check every byte of it.

    A download that breaks off leaves nothing behind: give the command again.

    \b
    Examples:
      unshift data get mnist
      UNSHIFT_DATA=/data unshift data get cifar10 fashion-mnist
    """
    from unshift.data import get
    from unshift.data.catalogue import find

    for name in names:
        find(name)  # a mistyped second name should not wait for the first download
    folders = {}
    for name in names:
        folders[name] = str(get(name))
        if not as_json:
            print(f"{name}  complete and intact in {folders[name]}")
    if as_json:
        print_json(folders)
