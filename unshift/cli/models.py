"""List the restorers that come with the package, or describe one restorer.

\b
Examples:
  unshift models
  unshift models mnist
  unshift models mine.safetensors --json
"""

from __future__ import annotations

from typing import Annotated

import typer

from unshift.cli.options import Json
from unshift.cli.outputs import file_size, percent, print_json, print_table


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A restorer, or its file: print its model card.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the shipped restorers, or describe one."""
    from unshift import files

    if name is not None and not as_json:
        print(files.model_card(name, files.load(name)), end="")
        return
    rows = []
    for key in files.pretrained() if name is None else [name]:
        restorer = files.load(key)
        about = {"undoes": restorer.coordinates.labels.undoes, "trained_on": restorer.trained_on, **restorer.metadata}
        rows.append({"name": key, **about})
        if path := files.pretrained().get(key):
            rows[-1] |= {"file": str(path), "bytes": path.stat().st_size, "images": files.describe_size(restorer)}
    if as_json:
        print_json(rows if name is None else rows[0])
        return
    cells = [
        [
            row["name"],
            row.get("preset", "?"),
            row["images"],
            file_size(row["bytes"]),
            *(percent(row[split]["exact"]) if split in row else "-" for split in ("validation", "test")),
            row.get("data", "?"),
            row["undoes"],
        ]
        for row in rows
    ]
    head = ["name", "preset", "images", "file", "validation", "test", "trained on", "undoes"]
    print_table(head, cells, right=(3, 4, 5))
    print("\nvalidation, test: share of unmoved images that the restorer leaves exactly as they are")
