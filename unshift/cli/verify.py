"""Check the promise: every move of every image is undone to the same image, bit for bit.

The moves are those that the restorer promises to undo: all shifts; all shifts and turns; for rotations, the quarter
turns. A photo has as many shifts as pixels, so --seconds and --moves limit the work; --all lifts the limits. The
command first says what it will check and how long that takes, and at the end what it has checked. Moves that are
left out are left out at random, the same ones each time.

That the network's scores move along with the image needs no trial: it adds integers, every sum stays below the largest
that is exact, and integers add up to the same in any order. So the scores are computed once per image (and tried
on a few moves), and what could still differ is computed for each move: the choice of the highest score, the tie rule,
and the restored image. To rely on nothing, a random sample is also checked by brute force: each moved image goes
through the whole network. A chain of restorers has no such shortcut: only the sample is checked, unless --brute-force
asks for all images. The exit code is 1 if anything differs.

The images are prepared like those the restorer was trained on; --size, --crop, --channels and --pad change that.
Images of different sizes are checked each at its own, if the restorer takes any size.

\b
Examples:
  unshift verify --data mnist --restorer mnist
  unshift verify --data photos/ --restorer photos.safetensors --seconds 20
  unshift verify --data mnist --restorer mnist-turns --limit 1000 --all --no-brute-force
  unshift verify --data mnist --restorer mnist --limit 100 --all --brute-force
  unshift verify --data genomes.fa --restorer mitogenome
  unshift verify --data mnist3d --restorer mnist3d --limit 2 --sample 1
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshift.cli.options import Channels, Crop, Data, Json, Limit, Model, Pad, Size, Split
from unshift.cli.prepared_data import open_for
from unshift.cli.printing import print_json

if TYPE_CHECKING:
    from unshift.data import ImageSource
    from unshift.ragged import Images
    from unshift.restorer import Chain, Restorer
    from unshift.verification import Verification


def verify(
    data: Data,
    restorer: Model,
    split: Split = None,
    limit: Limit = None,
    seconds: Annotated[float, typer.Option(min=1, metavar="S", help="Check as much as takes about this long.")] = 60.0,
    moves: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Check at most N moves of each image.", show_default=False)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Check every move of every image, however long that takes.")
    ] = False,
    brute_force: Annotated[
        bool | None,
        typer.Option(
            "--brute-force/--no-brute-force", help="Check all images by brute force, or none.", show_default="a sample"
        ),
    ] = None,
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="Check N images by brute force as well.")] = 200,
    size: Size = None,
    crop: Crop = False,
    channels: Channels = None,
    pad: Pad = None,
    as_json: Json = False,
) -> None:
    """Check that every move is undone, bit for bit."""
    from unshift.weights import load

    model = load(restorer)
    provable = len(model.stages) == 1
    if brute_force is False and not provable:
        raise ValueError("a chain of restorers can be checked by brute force only; leave --no-brute-force out")
    source = open_for(model, data, split, limit, size, crop, channels, pad)
    found = _in_memory(source, model)
    started = time.monotonic()
    todo: dict[str, tuple[Images, bool]] = {}
    if not brute_force and provable:
        todo["every image"] = found, False
    if brute_force is not False:
        todo["every image" if brute_force else "sample"] = _some(found, None if brute_force else sample), True
    bound = {"moves": moves, "seconds": None if everything else seconds / len(todo)}
    results = {name: _checked(model, *what, bound) for name, what in todo.items()}
    exact = all(result.exact for result in results.values())
    if as_json:
        about = {"data": source.name, "restorer": restorer, "undoes": model.coordinates.undoes, "exact": exact}
        checks = {name.replace(" ", "_"): result.as_dict() for name, result in results.items()}
        print_json({**about, **checks, "seconds": round(time.monotonic() - started, 1)})
    else:
        print(f"{source.name}, restorer {restorer}: {'exact' if exact else 'NOT EXACT'}")
        print(f"  It undoes {model.coordinates.undoes}.")
        for result in results.values():
            print(f"  {result}")
        _print_grounds(list(results.values()))
        print(f"  {time.monotonic() - started:.1f} s")
    if not exact:
        raise typer.Exit(1)


def _in_memory(source: ImageSource, model: Restorer | Chain) -> Images:
    """Return all images; image files of different sizes as a list, where the restorer takes any size."""
    from torch import Tensor

    from unshift.data.photos import load_files

    if isinstance(source.images, Tensor | list):  # sequences are such a list
        return source.images
    return load_files(source.images, mixed=all(getattr(stage.scorer, "size", None) is None for stage in model.stages))


def _some(images: Images, count: int | None) -> Images:
    """Return ``count`` of the images at random, the same ones each time."""
    import torch

    if count is None or count >= len(images):
        return images
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:count].sort().values
    return images[chosen] if isinstance(images, torch.Tensor) else [images[row] for row in chosen.tolist()]


def _checked(model: Restorer | Chain, images: Images, brute_force: bool, bound: dict[str, Any]) -> Verification:
    from unshift import ranks
    from unshift.verification import verify as check

    ranks.check_enough(len(images))

    largest = max(images, key=lambda image: image.numel()) if isinstance(images, list) else images[0]
    positions = model.stages[0].coordinates.canvas(largest[None])[0, :, 0].numel()
    batch = max(1, min(1024, 2**20 // positions))  # moves at a time: a photo has 50,000 positions
    return _together(
        check(model, ranks.share(images), brute_force=brute_force, batch_size=batch, progress=True, **bound)
    )


def _together(found: Verification) -> Verification:
    """Add up what the ranks have found, each on its share of the images."""
    from unshift import ranks
    from unshift.verification import Verification

    parts = [Verification(**part) for part in ranks.gathered_json([asdict(found)])]
    possible = [part.moves if part.possible is None else part.possible for part in parts]
    return Verification(
        sum(part.images for part in parts),
        sum(part.moves for part in parts),
        sum(part.mismatches for part in parts),
        sum(part.ties for part in parts),
        found.brute_force,
        None if all(part.possible is None for part in parts) else sum(possible),
    )


def _print_grounds(results: list[Verification]) -> None:
    """Say what the verdict rests on, beside what was computed."""
    if not all(result.brute_force for result in results):
        print(
            "  Proven, not computed: the scores of a moved image are the moved scores (integer sums have no\n"
            "  order). Computed for each move: the choice on those scores, the tie rule, the restored image."
        )
    if left := [result for result in results if not result.complete]:
        tied = max(result.ties for result in left)
        rest = f"of the {tied:,} tied images they do not" if tied else "no image was tied"
        print(
            "  Not checked: the moves left out. Where one score is highest they follow from the same argument;\n"
            f"  {rest}. --all checks every move."
        )
