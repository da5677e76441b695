"""A restorer trained on few photos of one's own.

Claim: From 100 photos, a fit that starts from ``photos`` is no worse than ``photos``, and takes less than a minute.
Paper: no such fit.
Cost: 15 min.

Compares the preset ``seam`` from random weights, ``fit(start=load("photos"))`` on the same photos, and ``photos``
itself, on other photos of the same kind: crops of the test photographs, or CIFAR-10's test images.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction.images import images_of
from reproduction.photographs import photographs, squares
from reproduction.records import Options, Result
from reproduction.tables import Block, Row, Table
from unshift.evaluation import restoration_rates

CASES = {"photographs": ("photographs",), "cifar10": ("cifar10",)}
SIDE = 128
COUNTS = {"photographs": (20, 100, 200), "cifar10": (20, 100, 500, 5000)}
MEASURED = {"photographs": 117, "cifar10": 5000}


def measure(case: str, options: Options) -> Result:
    """Return the exact rates by number of photos and start. A quick run takes noise or a few images."""
    photos = _photos(case, options)
    last = 4 if options.quick else MEASURED[case]
    # In a seeded order: neighbours come from one package.
    photos = photos[torch.randperm(len(photos), generator=torch.Generator().manual_seed(0))]
    own, other = photos[:-last], photos[-last:]
    photos_restorer = unshift.load("photos")
    photos_restorer.trained_on.pop("size", None)
    rows = [{"count": 0, "start": "photos", **_rates(photos_restorer, other), "seconds": 0.0}]
    for count in [12] if options.quick else COUNTS[case]:
        for start in ("noise", "photos"):
            begun = time.monotonic()
            chosen: Any = {"start": photos_restorer} if start == "photos" else {"preset": "seam"}
            chosen |= {"epochs": 1} if options.quick else {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # so few images are near guessing, which is the point
                restorer = unshift.fit(own[:count], **chosen, validation=0.2, drop_unusable=True, progress=False)
            seconds = time.monotonic() - begun
            rows.append({"count": count, "start": start, **_rates(restorer, other), "seconds": seconds})
    return {"data": case, "measured": len(other), "size": list(other.shape[2:]), "rows": rows}


def _photos(case: str, options: Options) -> Tensor:
    if options.quick:
        return torch.randint(0, 256, (16, 3, 32, 32), generator=torch.Generator().manual_seed(0)).byte()
    return squares(photographs("test"), SIDE) if case == "photographs" else images_of(case, options).images


def _rates(restorer: Any, images: Tensor) -> Result:
    return restoration_rates(restorer, images, batch_size=64).as_dict()


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return one row for each fit."""
    result = results[case]
    rows = [
        Row(
            "photos, not trained on" if not row["count"] else f"{row['count']:,}, from {row['start']}",
            [100 * row["exact"], 100 * row["within_1"], row["seconds"]],
            "restored" if row["start"] == "photos" else "plain",
            ["{:.1f}", "{:.1f}", "{:.0f}"],
        )
        for row in result["rows"]
    ]
    note = (
        f"{result['data']}, {'x'.join(map(str, result['size']))}: restored exactly and within a pixel in %, of "
        f"{result['measured']:,} others. A fifth of the photos is held out for the choice of the epoch."
    )
    return [Table("photos to train on", ["exact", "within 1", "seconds"], rows, [note])]
