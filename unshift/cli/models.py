"""``unshift models``: the shipped restorers, and the card of any one."""

from __future__ import annotations

from typing import Annotated

import typer

from unshift.cli.options import Json
from unshift.cli.printing import file_size, image_size, percent, print_json, print_table


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A restorer's name, or a file: print its model card.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the restorers that come with the package, or print the model card of one.

    \b
    Examples:
      unshift models
      unshift models mnist
      unshift models mine.safetensors --json
    """
    from unshift import weights

    if name is not None:
        restorer = weights.load(name)
        if as_json:
            print_json({"name": name, **restorer.metadata, "estimator": restorer.scorer.describe()})  # type: ignore[operator]
        else:
            print(weights.model_card(name, restorer), end="")
        return
    found = [
        {"name": key, "file": str(path), "bytes": path.stat().st_size, **weights.read_header(path)["metadata"]}
        for key, path in weights.pretrained().items()
    ]
    if as_json:
        print_json(found)
        return
    rows = [
        [
            row["name"],
            row.get("preset", "?"),
            image_size(row.get("size", [])),
            file_size(row["bytes"]),
            *(percent(row[split]["exact"]) if split in row else "-" for split in ("validation", "test")),
            row.get("data", "?"),
        ]
        for row in found
    ]
    print_table(["name", "preset", "size", "file", "validation", "test", "trained on"], rows, right=(3, 4, 5))
    print("\nvalidation, test: images restored exactly, on all of their shifts")
