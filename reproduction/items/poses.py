"""Shift and turn at once: images turned and shifted at random.

Claim: Shift and turn are undone together: quarter turns bit for bit, any angle once the digit is centred. Of photos,
    quarter turns are undone bit for bit, but the network that judges them is not strong enough to find them all.
Paper: shifts or rotations, not both.
Cost: 2 min for each case of digits, 10 min for photos.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction import plots
from reproduction.classifiers import WEIGHTS, frozen
from reproduction.images import labelled
from reproduction.records import Options, Result, percent
from reproduction.tables import Block, Picture, Row, Table
from reproduction.translation import Memo
from unshift.data.catalogue import find
from unshift.evaluation import accuracy, predict

CASES = {
    "turns": ("mnist-10k", "lenet5-mnist"),
    "pose": ("mnist-10k", "lenet5-mnist"),
    "photos": ("cifar10", "resnet18-cifar10-autoattack"),
}
RESTORERS = {"turns": "mnist-turns", "pose": "mnist-pose", "photos": "cifar10-turns"}
TITLES = {"mnist-10k": "MNIST test, 32x32", "cifar10": "CIFAR-10 test, 32x32"}
ROWS = ("upright", "moved", "restored")


def measure(case: str, options: Options) -> Result:
    """Return accuracies in percent, upright and moved, bare and restored, and how many restored images differ."""
    name, (data, behind_it) = RESTORERS[case], CASES[case]
    path = WEIGHTS / f"{name}.safetensors"  # of reproduction.train.cifar10_turns; the others are shipped
    restorer: Any = unshift.load(path if path.exists() else name)
    images, labels = labelled(data, options, restorer.trained_on["preparation"])
    behind = frozen(behind_it, options)
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
        "data": TITLES[data],
        "images": len(images),
        "seeds": list(options.seeds),
        "classifier": behind.title,
        "restorer": name,
        "undoes": coordinates.labels.undoes,
        "upright": 100 * accuracy(classifier, images, labels),
        "bare": bare,
        "restored": [percent(verdict == labels) for verdict in verdicts],
        "consistent": percent((same == same[0]).all(0)),
        "verified": unshift.verify(restorer, images[:few], moves=moves, progress=options.progress).as_dict(),
        "pictures": _pictures(restorer, images[:16], options.seeds[0]),
    } | (by_class(restorer, images, labels) if case == "photos" else {})


def by_class(restorer: Any, images: Tensor, labels: Tensor) -> Result:
    """Return the share of upright images that stay upright, by class and in percent, and by epoch of the training."""
    stays = torch.cat([restorer.estimate(part).turn == 0 for part in images.split(500)])
    names = find("cifar10").classes
    held = [100 * epoch["exact"] for epoch in restorer.metadata["history"]]
    groups = {name: stays[labels == at] for at, name in enumerate(names)}
    shares = {name: percent(group) if len(group) else 0.0 for name, group in groups.items()}
    return {"turns_found": {"all": percent(stays), **shares}, "held_out_by_epoch": held}


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
        f"seeds {result['seeds']}; each image moved by its own random pose. `{result['restorer']}` undoes "
        f"{result['undoes']}.",
    ]
    for key in ("verified", "forced"):  # records of 0.2 have both: scores moved, and images moved
        if checked := result.get(key):
            notes.append(
                f"Bit for bit: {checked['images']:,} images under {checked['moves'] // checked['images']:,} exact "
                f"moves each, {checked['mismatches']:,} mismatches, {checked['ties']:,} ties."
            )
    if found := result.get("turns_found"):
        notes.append("Turns found, in %: " + ", ".join(f"{name} {share:.1f}" for name, share in found.items()) + ".")
        held = ", ".join(f"{share:.1f}" for share in result["held_out_by_epoch"])
        notes.append(f"Turns found among the training photos held out, in %, after each epoch of training: {held}.")
    draw = (lambda: plots.image_rows(result["pictures"], 2.2)) if "pictures" in result else None
    alt = f"Digits upright, moved and restored by {result['restorer']}"
    return [Table("", ["accuracy"], rows, notes), Picture(f"poses-{case}", alt, draw)]
