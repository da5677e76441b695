"""List the restorers that come with the package, or print the model card of one.

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
from unshift.cli.printing import file_size, percent, print_json, print_table


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A restorer's name, or a file: print its model card.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the shipped restorers, or describe one."""
    from unshift import weights

    if name is not None:
        restorer = weights.load(name)
        if as_json:
            about = {"name": name, "undoes": restorer.coordinates.undoes, "trained_on": restorer.trained_on}
            print_json({**about, **restorer.metadata})
        else:
            print(weights.model_card(name, restorer), end="")
        return
    found = []
    for key, path in weights.pretrained().items():
        restorer = weights.load(key)
        about = {"undoes": restorer.coordinates.undoes, "trained_on": restorer.trained_on, **restorer.metadata}
        about["images"] = weights.sizes_of(restorer)
        found.append({"name": key, "file": str(path), "bytes": path.stat().st_size, **about})
    if as_json:
        print_json(found)
        return
    rows = [
        [
            row["name"],
            row.get("preset", "?"),
            row["images"],
            file_size(row["bytes"]),
            *(percent(row[split]["exact"]) if split in row else "-" for split in ("validation", "test")),
            row.get("data", "?"),
            row["undoes"],
        ]
        for row in found
    ]
    print_table(
        ["name", "preset", "images", "file", "validation", "test", "trained on", "undoes"], rows, right=(3, 4, 5)
    )
    print("\nvalidation, test: share of unmoved images that are left exactly as they are")
