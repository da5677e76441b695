"""Check exactness: every move of every image is restored to the same image, bit for bit.

Each moved image goes through the whole restorer, and the restored bits are compared. The moves are those that the
restorer undoes exactly: all shifts; all shifts and turns; for rotations, the quarter turns. A photo has as many shifts
as pixels, so the check is limited to --seconds by default: random moves, the same ones in each run, and the same share
of the time for every image. --all checks every move. The exit code is 1 if any result differs.

The images are prepared like the training images of the restorer; --size, --crop, --channels and --pad change that. A
restorer for any size gets image files at their original size.

With --min-confidence, images with a lower confidence stay unchanged, so their moves count as mismatches.

\b
Examples:
  unshift verify mnist-10k --restorer mnist
  unshift verify photos/ --restorer photos.safetensors --seconds 20
  unshift verify mnist-10k --restorer mnist-turns --limit 100 --all
  unshift verify genomes.fa --restorer mitogenome --max-moves 50
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from unshift.cli import options
from unshift.cli.outputs import print_json
from unshift.cli.prepared_data import open_for, takes_any_size


def verify(
    data: options.Data,
    restorer: options.Model,
    seconds: Annotated[float, typer.Option(min=1, metavar="S", help="Approximate time limit.")] = 60.0,
    max_moves: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Check at most N moves of each image.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Check every move of every image.")] = False,
    min_confidence: options.MinConfidence = None,
    split: options.Split = None,
    limit: options.Limit = None,
    size: options.Size = None,
    crop: options.Crop = False,
    channels: options.Channels = None,
    pad: options.Pad = None,
    device: options.Device = "cpu",
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check that all moves are undone, bit for bit."""
    from unshift import distributed as ranks
    from unshift.files import load
    from unshift.testing import Verification
    from unshift.testing import verify as check

    model = load(restorer, min_confidence=min_confidence)
    source = open_for(model, data, split, limit, size, crop, channels, pad)
    images = source.load(mixed=takes_any_size(model)).images
    ranks.check_enough(len(images))
    device = ranks.device(device)
    share: Any = ranks.share(images)
    share = share.to(device) if hasattr(share, "to") else [image.to(device) for image in share]
    started = time.monotonic()
    limit_seconds = None if everything else seconds
    checked = check(model.to(device), share, moves=max_moves, seconds=limit_seconds, progress=not quiet)
    parts = ranks.gathered_json([asdict(checked)])
    result = Verification(**{key: sum(part[key] for part in parts) for key in parts[0]})
    elapsed = time.monotonic() - started
    if as_json:
        about = {"data": source.name, "restorer": restorer, "undoes": model.coordinates.labels.undoes}
        print_json({**about, **result.as_dict(), "seconds": round(elapsed, 1)})
    else:
        print(f"{source.name}, restorer {restorer}: {'exact' if result.exact else 'NOT EXACT'}")
        print(f"  It undoes {model.coordinates.labels.undoes}.")
        print(f"  {result}")
        if not result.complete:
            print("  The moves were a random sample; --all checks every move.")
        print(f"  {elapsed:.1f} s")
    if not result.exact:
        raise typer.Exit(1)
