"""Shift and turn at once: images turned and shifted at random.

Claim: Shift and turn are undone together: quarter turns bit for bit, any angle once the digit is centred.
Paper: shifts or rotations, not both.
Cost: 2 min for each case.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction import plots
from reproduction.classifiers import frozen
from reproduction.images import labelled
from reproduction.records import Options, Result
from reproduction.tables import Block, Picture, Row, Table
from reproduction.translation import Memo
from unshift.evaluation import accuracy, predict

CASES = {"turns": ("mnist-10k", "lenet5-mnist"), "pose": ("mnist-10k", "lenet5-mnist")}
RESTORERS = {"turns": "mnist-turns", "pose": "mnist-pose"}
ROWS = ("upright", "moved", "restored")


def measure(case: str, options: Options) -> Result:
    """Return accuracies in percent, upright and moved, bare and restored, and how many restored images differ."""
    restorer: Any = unshift.load(RESTORERS[case])
    images, labels = labelled("mnist-10k", options, restorer.trained_on["preparation"])
    behind = frozen("lenet5-mnist", options)
    classifier = Memo(behind.model)
    coordinates, size = restorer.coordinates, tuple(images.shape[2:])
    bare, verdicts = [], []
    for seed in options.seeds:
        pose = coordinates.draw(size, len(images), None, torch.Generator().manual_seed(seed))
        moved = coordinates.redo(images, pose)
        bare.append(100 * accuracy(classifier, moved, labels))
        verdicts.append(predict(lambda x: classifier(restorer(x)), moved))
    same = torch.stack(verdicts)
    few, moves = (2, 20) if options.quick else (25, 500)
    return {
        "data": "MNIST test, 32x32",
        "images": len(images),
        "seeds": list(options.seeds),
        "classifier": behind.title,
        "restorer": RESTORERS[case],
        "undoes": coordinates.labels.undoes,
        "upright": 100 * accuracy(classifier, images, labels),
        "bare": bare,
        "restored": [100 * float((verdict == labels).double().mean()) for verdict in verdicts],
        "consistent": 100 * float((same == same[0]).all(0).double().mean()),
        "verified": unshift.verify(restorer, images[:few], moves=moves, progress=options.progress).as_dict(),
        "pictures": _pictures(restorer, images[:16], options.seeds[0]),
    }


def _pictures(restorer: Any, images: Tensor, seed: int) -> Result:
    pose = restorer.coordinates.draw(tuple(images.shape[2:]), len(images), None, torch.Generator().manual_seed(seed))
    moved = restorer.coordinates.redo(images, pose)
    shown = zip(ROWS, (images, moved, restorer(moved)), strict=True)
    return {name: plots.grey(x) for name, x in shown}


# --- Tables ---------------------------------------------------------------------------------------------------------


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table and the picture."""
    result = results[case]
    rows = [
        Row("upright, bare", [result["upright"]]),
        Row("moved, bare", [fmean(result["bare"])], style="bare"),
        Row(f"moved, with unshift ({result['restorer']})", [fmean(result["restored"])], style="restored"),
        Row("same prediction for all draws", [result["consistent"]], style="detail"),
    ]
    notes = [
        f"{result['classifier']}, accuracy in %, {result['data']}, n = {result['images']:,}, mean over draws with "
        f"seeds {result['seeds']}; each digit moved by its own random pose. `{result['restorer']}` undoes "
        f"{result['undoes']}.",
    ]
    for key in ("verified", "forced"):  # records of 0.2 have both: scores moved, and images moved
        if checked := result.get(key):
            notes.append(
                f"Bit for bit: {checked['images']:,} digits under {checked['moves'] // checked['images']:,} exact "
                f"moves each, {checked['mismatches']:,} mismatches, {checked['ties']:,} ties."
            )
    draw = (lambda: plots.image_rows(result["pictures"], 2.2)) if "pictures" in result else None
    alt = f"Digits upright, moved and restored by {result['restorer']}"
    return [Table("", ["accuracy"], rows, notes), Picture(f"poses-{case}", alt, draw)]
