"""``unshift verify``: the promise of exactness, checked on your images."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from unshift.cli.options import Data, Json, Limit, Model, Split
from unshift.cli.prepared_data import open_for
from unshift.cli.printing import print_json


def verify(
    data: Data,
    restorer: Model,
    split: Split = None,
    limit: Limit = None,
    brute_force: Annotated[
        bool | None,
        typer.Option(
            "--brute-force/--no-brute-force", help="Check all images by brute force, or none.", show_default="a sample"
        ),
    ] = None,
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="Check N images by brute force as well.")] = 200,
    as_json: Json = False,
) -> None:
    """Check the promise: every move of every image is undone to the same image, bit for bit.

    The moves are those that the restorer promises: all shifts; all shifts and turns; of rotations, the
    quarter turns.

    That the network's scores move along with the image needs no trial: it adds integers, every sum is
    bounded below the largest that is exact, and integers add up the same in any order. So the scores are
    computed once per image, and what could still differ is computed for every move: the choice of the
    highest score, the tie rule, and the image that results. To rely on nothing, a random sample is also
    checked by brute force, each moved image through the whole network. A chain of restorers has no such
    shortcut: of it, the sample is all that is checked, unless --brute-force says all images. Exit code 1 if
    anything differs.

    \b
    Examples:
      unshift verify --data mnist --restorer mnist
      unshift verify --data mnist --restorer mnist --limit 100 --brute-force
      unshift verify --data mnist --restorer mnist-rotation --limit 500
      unshift verify --data mnist3d --restorer mnist3d --limit 2 --sample 1
    """
    import torch

    from unshift.testing import verify as check
    from unshift.weights import load

    model = load(restorer)
    provable = len(model.stages) == 1
    if brute_force is False and not provable:
        raise ValueError("a chain of restorers can be checked by brute force only; leave --no-brute-force out")
    found = open_for(model, data, split, limit)
    started = time.monotonic()
    positions = model.stages[0].coordinates.canvas(found.images[:1])[0, :, 0].numel()
    batch = max(1, min(1024, 2**20 // positions))  # moves at a time: a photo has 50,000 positions
    results = {}
    if not brute_force and provable:
        results["every image"] = check(model, found.images, batch_size=batch, progress=True)
    if brute_force is not False:
        some = found.images
        if not brute_force and sample < len(some):
            some = some[torch.randperm(len(some), generator=torch.Generator().manual_seed(0))[:sample].sort().values]
        name = "every image" if brute_force else "sample"
        results[name] = check(model, some, brute_force=True, batch_size=batch, progress=True)
    exact = all(result.exact for result in results.values())
    if as_json:
        about = {"data": found.name, "restorer": restorer, "undoes": model.coordinates.undoes, "exact": exact}
        checks = {name.replace(" ", "_"): result.as_dict() for name, result in results.items()}
        print_json({**about, **checks, "seconds": round(time.monotonic() - started, 1)})
    else:
        print(f"{found.name}, restorer {restorer}: {'exact' if exact else 'NOT EXACT'}")
        print(f"  It undoes {model.coordinates.undoes}.")
        for result in results.values():
            print(f"  {result}")
        if not all(result.brute_force for result in results.values()):
            print(
                "  Proven, not computed: the scores of a moved image are the moved scores (integer sums have no\n"
                "  order). Computed for every move: the choice on those scores, the tie rule, the restored image."
            )
        print(f"  {time.monotonic() - started:.1f} s")
    if not exact:
        raise typer.Exit(1)
