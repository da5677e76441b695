"""Photographs of sources that no restorer was trained on.

Claim: 98% are restored exactly, at 224x224 and at their own sizes, and at most 0.2% wrong at a confidence above 0.9.
Paper: pads photos by 4 pixels.
Cost: 5 min.

The test photographs of :mod:`reproduction.photographs`. A border is uniform if the first and the last row (or column)
have the same colour: no seam is visible there, and the original position is a matter of convention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction.photographs import open_photograph, photographs, squares, to_tensor
from reproduction.records import Options, Result
from reproduction.tables import Block, Row, Table
from unshift.coordinates.shifts import circular_distance

CASES = {"photos": ("photographs",)}
RESTORERS = ("photos", "cifar10-seam")
SIDE, CONFIDENT = 224, 0.9
UNIFORM = 6
"""Largest standard deviation within the two edges together, of 255, that counts as uniform."""
SHORT = 800
"""Larger photographs are scaled down to this many pixels along their shorter side."""


def measure(case: str, options: Options) -> Result:
    """Return how many photographs are restored exactly, by size and kind. A quick run takes noise."""
    if options.quick:
        native = list(torch.randint(0, 256, (4, 3, 40, 48), generator=torch.Generator().manual_seed(0)).byte())
        scaled = list(torch.stack(native)[..., :40])
    else:
        paths = photographs("test")
        scaled = list(squares(paths, SIDE))
        native = [to_tensor(open_photograph(path, SHORT)) for path in paths]
    rows = []
    for size, images in {f"{SIDE}x{SIDE}": scaled, "own size": native}.items():
        uniform = torch.tensor([has_uniform_border(image) for image in images])
        for name in RESTORERS:
            restorer = unshift.load(name)
            restorer.trained_on.pop("size", None)  # no warnings of an unusual size
            distance, confidence = zip(*(_judge(restorer, image) for image in images), strict=True)
            judged = torch.tensor(distance), torch.tensor(confidence)
            for kind, chosen in {
                "all": uniform | True,
                "seam on both axes": ~uniform,
                "uniform border": uniform,
            }.items():
                rows.append({"size": size, "restorer": name, "kind": kind, **_rates(*judged, chosen)})
    return {"photographs": len(native), "rows": rows}


def has_uniform_border(image: Tensor) -> bool:
    """Return whether opposite edges of an image have one and the same colour, along either axis."""
    pixels = image.float()
    edges = [torch.stack([pixels[:, 0], pixels[:, -1]], 1), torch.stack([pixels[:, :, 0], pixels[:, :, -1]], 1)]
    return any(float(edge.flatten(1).std(1).max()) < UNIFORM for edge in edges)


def _judge(restorer: Any, image: Tensor) -> tuple[int, float]:
    estimate = restorer.estimate(image[None])
    return int(circular_distance(estimate.shift, tuple(image.shape[1:])).max()), float(estimate.confidence)


def _rates(distance: Tensor, confidence: Tensor, chosen: Tensor) -> Result:
    wrong, sure = distance[chosen] > 0, confidence[chosen] > CONFIDENT
    near = int((distance[chosen] <= 1).sum())
    return {"images": len(wrong), "exact": int((~wrong).sum()), "within_1": near, "wrong": int((wrong & sure).sum())}


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return a row for each restorer, size and kind."""
    result = results[case]
    rows = []
    for row in result["rows"]:
        shares = [100 * row[key] / max(1, row["images"]) for key in ("exact", "within_1")]
        style = "restored" if (row["restorer"], row["kind"]) == ("photos", "all") else "plain"
        values = [row["size"], row["kind"], row["images"], *shares, row["wrong"]]
        rows.append(Row(row["restorer"], values, style, ["{}", "{}", "{}", "{:.1f}", "{:.1f}", "{}"]))
    note = (
        f"{result['photographs']} photographs of npm packages, each once: the square in the middle, scaled to "
        f"{SIDE}x{SIDE}, or the whole at its own size (at most {SHORT:,} pixels along the shorter side). Exact and "
        f"within a pixel in %; wrong: photographs restored to another place at a confidence above {CONFIDENT}. Uniform "
        "border: opposite edges have one colour, so no seam shows along that axis."
    )
    return [Table("", ["size", "kind", "n", "exact", "within 1", f"wrong > {CONFIDENT}"], rows, [note], left=2)]
