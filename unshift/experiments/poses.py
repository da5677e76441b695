"""Shift and turn at once: images turned and shifted at random, before a classifier that knows upright ones only.

Three cases: digits under quarter turns with any circular shift, all of it undone bit for bit; digits under any angle
with any circular shift, where the centre is found first, then the turn; and photos under quarter turns and shifts,
before a ResNet-18 that others trained, beside equiadapt's canonicalizer where that is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

import unshift
from unshift.coordinates import Pose
from unshift.data import dataset, prepare, to_float
from unshift.evaluation import accuracy, predict
from unshift.experiments import equiadapt_rival, photo_turns, plots
from unshift.experiments.answers import Remembering
from unshift.experiments.cases import frozen_classifier, images_of
from unshift.experiments.classifiers import shipped
from unshift.experiments.record import Block, Case, Experiment, Options, Picture, Result, Results, Row, Table

ROWS = ("upright", "moved", "restored")


@dataclass(frozen=True)
class Posed:
    """Images, a frozen classifier and the restorer that undoes their pose."""

    title: str
    images: Tensor
    labels: Tensor
    classifier: Any
    classifier_name: str
    name: str
    restorer: Any
    seeds: tuple[int, ...]
    exact: int
    """images that are restored under every quarter turn and a sample of shifts, and compared bit for bit"""
    forced: int = 0
    """images that are sent through the whole restorer under ``moves``"""
    moves: int | None = None
    """how many moves of each; None: all"""
    canonicalizer: Callable[[Tensor], Tensor] | None = None
    """a rival that undoes turns alone"""


def _load(name: str, options: Options) -> Posed:
    """Return MNIST's test digits with the shipped LeNet-5 and restorer ``name``."""
    test = dataset("mnist-10k", "test")
    assert test.labels is not None
    restorer = unshift.load(name)
    count = 40 if options.quick else len(test.images)
    images = to_float(prepare(test.images[:count], restorer.trained_on["preparation"]))
    seeds = options.seeds[:1] if options.quick else options.seeds
    classifier, exact = shipped()["lenet5-mnist"](), 2 if options.quick else 25
    return Posed(
        "MNIST test, 32x32", images, test.labels[:count], classifier, "LeNet-5 (shipped)", name, restorer, seeds, exact
    )


def _load_photos(count: int, options: Options) -> Posed:
    """Return CIFAR-10's first test photos on a margin, a ResNet-18 of others, and a restorer that is trained here."""
    test = images_of("cifar10", options)
    assert test.labels is not None
    images, labels = to_float(prepare(test.images[:count], photo_turns.PREPARATION)), test.labels[:count]
    classifier, said, _ = frozen_classifier("resnet18-cifar10-autoattack", images, labels, options)
    theirs = equiadapt_rival.is_installed() and not options.quick
    return Posed(
        "CIFAR-10 test, padded to 40x40",
        images,
        labels,
        classifier,
        said,
        photo_turns.NAME,
        photo_turns.photo_turns(quick=options.quick, progress=options.progress),
        options.seeds[:1] if options.quick else options.seeds,
        2 if options.quick else 25,
        1 if options.quick else 2,
        20 if options.quick else None,
        equiadapt_rival.canonicalizer(progress=options.progress) if theirs else None,
    )


def _measure(case: Posed) -> Result:
    """Measure, in percent: upright, moved and bare, moved and restored; and whether it is one image, bit for bit."""
    coordinates, size = case.restorer.coordinates, tuple(case.images.shape[2:])
    bare, restored, verdicts, poses = [], [], [], []
    for seed in case.seeds:
        poses.append(coordinates.draw(size, len(case.images), None, torch.Generator().manual_seed(seed)))
        moved = coordinates.move(case.images, poses[-1])
        bare.append(100 * accuracy(case.classifier, moved, case.labels))
        verdicts.append(predict(lambda batch: case.classifier(case.restorer(batch)), moved))
        restored.append(100 * float((verdicts[-1] == case.labels).double().mean()))
    same = torch.stack(verdicts)
    result = {
        "data": case.title,
        "images": len(case.images),
        "seeds": list(case.seeds),
        "classifier": case.classifier_name,
        "restorer": case.name,
        "undoes": coordinates.undoes,
        "upright": 100 * accuracy(case.classifier, case.images, case.labels),
        "bare": bare,
        "restored": restored,
        "consistent": 100 * float((same == same[0]).all(0).double().mean()),
        "verified": unshift.verify(case.restorer, case.images[: case.exact], brute_force=False).as_dict(),
        "pictures": _pictures(case),
    }
    if case.forced:
        forced = unshift.verify(case.restorer, case.images[: case.forced], brute_force=True, moves=case.moves)
        result |= {"forced": forced.as_dict(), **_turned(case, poses)}
    if isinstance(case.classifier, Remembering):
        case.classifier.save()
    return result


def _turned(case: Posed, poses: list[Pose]) -> Result:
    """Measure how often the pose is right, how the restorer was trained, and what a rival makes of turns alone."""
    found = case.restorer.estimate(case.images)
    upright, there = found.turn == 0, (found.shift == 0).all(1)
    told, network = case.restorer.metadata, case.restorer.scorer.describe()["network"]
    result: Result = {
        "exact": 100 * float((upright & there).double().mean()),
        "turn_right": 100 * float(upright.double().mean()),
        "parameters": sum(p.numel() for p in unshift.ShiftEstimator(**network).parameters()),
        "training": {key: told[key] for key in ("epochs_run", "train_images", "validation", "seed", "seconds")},
        "turned_bare": [],
    }
    if case.canonicalizer is not None:
        result["equiadapt"] = {**equiadapt_rival.RECIPE, "versions": equiadapt_rival.versions()}
        result["equiadapt"] |= {"turned": [], "moved": []}
    for pose in poses:
        alone = case.restorer.coordinates.move(case.images, Pose(torch.zeros_like(pose.shift), pose.turn))
        result["turned_bare"].append(100 * accuracy(case.classifier, alone, case.labels))
        if case.canonicalizer is not None:
            canonical: Any = lambda batch: case.classifier(case.canonicalizer(batch))  # noqa: E731
            both = case.restorer.coordinates.move(case.images, pose)
            for key, images in (("turned", alone), ("moved", both)):
                result["equiadapt"][key].append(100 * accuracy(canonical, images, case.labels))
    return result


def _pictures(case: Posed, count: int = 16) -> dict[str, Any]:
    images = case.images[:count]
    coordinates = case.restorer.coordinates
    generator = torch.Generator().manual_seed(case.seeds[0])
    moved = coordinates.move(images, coordinates.draw(tuple(images.shape[2:]), len(images), None, generator))
    shown = (images, moved, case.restorer(moved))
    return {name: (255 * x.mean(1)).round().to(torch.uint8).tolist() for name, x in zip(ROWS, shown, strict=True)}


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    checked = result["verified"]
    rows = [
        Row("upright, bare", [result["upright"]], style="plain"),
        Row("moved, bare", [fmean(result["bare"])], style="bare"),
        Row(f"moved, with unshift ({result['restorer']})", [fmean(result["restored"])], style="restored"),
        Row("same verdict under all draws", [result["consistent"]], style="detail"),
    ]
    kind = "photo" if "forced" in result else "digit"
    notes = [
        f"{result['classifier']}, accuracy in %, {result['data']}, n = {result['images']:,}, mean over draws with "
        f"seeds {result['seeds']}; each {kind} moved by its own random pose. `{result['restorer']}` undoes "
        f"{result['undoes']}.",
        f"Restored bit for bit: {checked['images']:,} {kind}s under {checked['moves'] // checked['images']:,} exact "
        f"moves each, {checked['mismatches']:,} mismatches, {checked['ties']:,} tied.",
    ]
    if "forced" in result:
        rows += _turned_rows(result)
        notes += _turned_notes(result)
    draw = partial(plots.rows, result["pictures"], 2.2) if "pictures" in result else None
    alt = f"{kind.capitalize()}s upright, moved and restored by {result['restorer']}"
    return [Table("", ["accuracy"], rows, notes), Picture(f"poses-{case}", alt, draw)]


def _turned_rows(result: Result) -> list[Row]:
    rows = [
        Row("shift and turn exactly right", [result["exact"]], style="detail"),
        Row("turn right", [result["turn_right"]], style="detail"),
        Row("turned only, bare", [fmean(result["turned_bare"])], style="bare"),
    ]
    if theirs := result.get("equiadapt"):
        name = f"equiadapt {theirs['versions']['equiadapt']}"
        rows += [
            Row(f"turned only, with {name}", [fmean(theirs["turned"])]),
            Row(f"moved, with {name}, which undoes no shift", [fmean(theirs["moved"])]),
        ]
    return rows


def _turned_notes(result: Result) -> list[str]:
    forced, learnt, theirs = result["forced"], result["training"], result.get("equiadapt")
    notes = [
        f"Through the whole network: {forced['images']} photos under {'all ' if forced['complete'] else ''}"
        f"{forced['moves'] // forced['images']:,} moves each, {forced['mismatches']:,} mismatches. Photos that are "
        "turned only, unshift restores to the same ones.",
        f"`{result['restorer']}`: {result['parameters']:,} parameters, {learnt['epochs_run']} epochs on "
        f"{learnt['train_images']:,} upright photos without labels, seed {learnt['seed']}; on "
        f"{learnt['validation']['images']:,} held-out training photos "
        f"{100 * learnt['validation']['exact']:.2f}% exact.",
    ]
    if theirs:
        notes.append(
            "equiadapt: its group-equivariant canonicalizer for quarter turns "
            f"({theirs['network']['num_layers']} layers of {theirs['network']['out_channels']} fields), trained by its "
            "prior alone, without labels: "
            f"{theirs['epochs']} epoch on {theirs['images']:,} photos; torchvision {theirs['versions']['torchvision']}."
        )
    return notes


EXPERIMENT = Experiment(
    name="poses",
    title="shift and turn at once",
    claim="Shift and turn are undone together: quarter turns bit for bit, any angle after the centre.",
    cost="5 min for MNIST, quarter turns and any angle; 5 min for CIFAR-10, and 10 min of training, once",
    cases=[
        Case("turns", "mnist", partial(_load, "mnist-turns")),
        Case("pose", "mnist", partial(_load, "mnist-pose")),
        Case("photo-turns", "cifar10", partial(_load_photos, 1000)),
    ],
    measure=_measure,
    show=_show,
)
