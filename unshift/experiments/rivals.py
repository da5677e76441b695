"""Every alternative that a user would pick, on the same images under the same shifts. Not in the paper.

A frozen LeNet-5 on digits, a frozen ResNet-18 that others trained on photos with and without a margin, and, for what
has to be trained, a ResNet-20 trained in the same way each time. What each way costs stands beside what it gives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift import Chain, Restorer, apply
from unshift.coordinates import draw_shifts
from unshift.data import dataset, prepare, to_float
from unshift.experiments import plots
from unshift.experiments.accuracy_table import training
from unshift.experiments.answers import Remembering
from unshift.experiments.cases import frozen_classifier, images_of
from unshift.experiments.record import Block, Case, Experiment, Options, Picture, Result, Results, Row, Table
from unshift.experiments.rival_methods import Rival, centred, correlated, shifted_copies
from unshift.experiments.spatial_transformer import RECIPES, trained_transformer
from unshift.progress import tracked

SCOPES: tuple[int | None, ...] = (0, 1, 4, 8, None)
COLUMNS = ("unshifted", "up to 1", "up to 4", "up to 8", "any shift")
SEED = 0


@dataclass(frozen=True)
class Contest:
    """Images, and all who classify them."""

    data: str
    images: Tensor
    labels: Tensor
    classifier: str
    about: dict[str, Any]
    rivals: Sequence[Rival]
    progress: bool


def _load(
    case: str, title: str, data: str, name: str, restored: str, count: int, many: int, options: Options
) -> Contest:
    """Load a classifier and its rivals; what takes 81 passes is measured on ``many`` of ``count`` images."""
    test, restorer = images_of(data, options), unshift.load(restored)
    preparation = restorer.trained_on["preparation"]
    images = to_float(prepare(test.images[:count], preparation))
    assert test.labels is not None
    labels = test.labels[:count]
    model, said, about = frozen_classifier(name, images, labels, options)
    known = images_of(data, options) if options.quick else dataset(data, "train")
    mean = to_float(prepare(known.images[:10_000], preparation)).mean(0)
    rivals = [
        Rival("nothing", model, style="bare"),
        _restored(restored, restorer, model),
        Rival("test-time augmentation, 9 shifts", model, shifted_copies(1), 9),
        Rival("test-time augmentation, 81 shifts", model, shifted_copies(4), 81, count=many),
        Rival("centre of mass", model, centred(mean)),
        Rival("phase correlation, mean image", model, correlated(mean, "phase")),
        Rival("cross-correlation, mean image", model, correlated(mean, "cross")),
    ]
    if case in RECIPES:
        rivals.append(_transformed(case, model, options))
    if data == "mnist":
        rivals.append(_retrained("trained with any shift", "lenet5-mnist-shifts", images, labels, options))
    return Contest(title, images, labels, said, about, rivals, options.progress)


def _transformed(case: str, model: Any, options: Options) -> Rival:
    classifier: Any = model.classifier if isinstance(model, Remembering) else model
    transformer = trained_transformer(case, quick=options.quick, progress=options.progress)
    return Rival(
        "spatial transformer, trained with labels",
        nn.Sequential(transformer, classifier),
        parameters=sum(p.numel() for p in transformer.parameters()),
        labels=True,
        training={} if options.quick else asdict(RECIPES[case]),
    )


def _retrained(said: str, name: str, images: Tensor, labels: Tensor, options: Options) -> Rival:
    model, _, about = frozen_classifier(name, images, labels, options)
    return Rival(said, model, labels=True, retrained=True, training=about)


def _restored(name: str, restorer: Restorer | Chain, model: Callable[[Tensor], Tensor]) -> Rival:
    network: Any = restorer.scorer
    size = sum(p.numel() for p in unshift.ShiftEstimator(**network.describe()["network"]).parameters())
    return Rival(f"unshift ({name})", model, lambda x: iter([restorer(x)]), parameters=size, style="restored")


def _load_trained(count: int, options: Options) -> Contest:
    """Load the ResNet-20 that is shipped, and those that were trained like it, but to bear shifts."""
    test, name = images_of("cifar10", options), "cifar10-seam"
    images = to_float(test.images[:count])
    assert test.labels is not None
    labels = test.labels[:count]
    model, said, about = frozen_classifier("resnet20-cifar10-plain", images, labels, options)
    rivals = [Rival("nothing", model, style="bare"), _restored(name, unshift.load(name), model)]
    for way, kind in (
        ("trained with any shift", "shifts"),
        ("adaptive polyphase sampling", "polyphase"),
        ("anti-aliasing (BlurPool)", "blurred"),
    ):
        rivals.append(_retrained(way, f"resnet20-cifar10-{kind}", images, labels, options))
    return Contest("CIFAR-10 test, 32x32", images, labels, said, about, rivals, options.progress)


def _measure(contest: Contest) -> Result:
    """Return each rival's accuracies at all scopes, and what it costs."""
    size = (contest.images.shape[2], contest.images.shape[3])
    shifted = [
        apply(contest.images, draw_shifts(size, len(contest.images), scope, torch.Generator().manual_seed(SEED)))
        for scope in SCOPES
    ]
    entries = [_entry(rival, shifted, contest) for rival in contest.rivals]
    return {
        "data": contest.data,
        "images": len(contest.images),
        "seed": SEED,
        "classifier": contest.classifier,
        "training": contest.about,
        "rivals": entries,
    }


def _entry(rival: Rival, shifted: list[Tensor], contest: Contest) -> dict[str, Any]:
    count = min(rival.count or len(contest.images), len(contest.images))
    said = []
    for images in tracked(shifted, rival.name, "scopes", contest.progress):
        said.append(torch.cat([rival(batch) for batch in images[:count].split(100)]))
    if isinstance(rival.model, Remembering):
        rival.model.save()
    right = [100 * float((scores.argmax(1) == contest.labels[:count]).double().mean()) for scores in said]
    verdicts = torch.stack([scores.argmax(1) for scores in said])
    bits = torch.stack([(scores == said[0]).all(1) for scores in said])
    return {
        "name": rival.name,
        "style": rival.style,
        "images": count,
        "accuracy": right,
        "consistent": 100 * float((verdicts == verdicts[0]).all(0).double().mean()),
        "same_bits": 100 * float(bits.all(0).double().mean()),
        "milliseconds": _milliseconds(rival, contest.images),
        "passes": rival.passes,
        "parameters": rival.parameters,
        "labels": rival.labels,
        "retrained": rival.retrained,
        "training": rival.training,
    }


@torch.no_grad()
def _milliseconds(rival: Rival, images: Tensor, repeats: int = 5) -> float:
    """Return the least time that an image of a batch of 50 takes: its views, and as many passes of the classifier."""
    batch = images[:50]
    model: Any = rival.model.classifier if isinstance(rival.model, Remembering) else rival.model
    tasks = (lambda: list(rival.views(batch)), lambda: model(batch.contiguous(memory_format=torch.channels_last)))
    least = []
    for task in tasks:
        times = []
        for _ in range(repeats):
            begun = time.perf_counter()
            task()
            times.append(time.perf_counter() - begun)
        least.append(min(times))
    return 1000 * (least[0] + rival.passes * least[1]) / len(batch)


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    entries = result["rivals"]
    columns = [*COLUMNS, "consistent", "same bits", "ms/image", "passes", "parameters added", "labels", "retrained"]
    rated = [_rated(entry) for entry in entries]
    compared = [row for row, entry in zip(rated, entries, strict=True) if entry["images"] == result["images"]]
    best = [max(column) for column in zip(*compared, strict=True)]
    rows = []
    for entry, values in zip(entries, rated, strict=True):
        few = "" if entry["images"] == result["images"] else f" (n = {entry['images']:,})"
        forms = ["{:.2f}*" if value == top and not few else "{:.2f}" for value, top in zip(values, best, strict=True)]
        said = ["yes" if entry[key] else "no" for key in ("labels", "retrained")]
        cells = [*entry["accuracy"], entry["consistent"], entry["same_bits"], entry["milliseconds"]]
        counted = [f"{entry['passes']}", f"{entry['parameters']:,}"]
        rows.append(Row(entry["name"] + few, [*cells, *counted, *said], entry["style"], [*forms, *["{}"] * 4]))
    notes = [
        f"{result['classifier']}: accuracy in %, {result['data']}, n = {result['images']:,}, the same images for all, "
        f"each shifted circularly by its own random shift, seed {result['seed']}. *: best of its column, rows of "
        "fewer images left out. Consistent: "
        "images with one verdict in all five columns; same bits: with the same probabilities, bit for bit. "
        "Parameters: those of what is added to the classifier.",
        _wins([entry for entry in entries if entry["images"] == result["images"]]),
        *filter(None, [training(result), *(_trained(entry) for entry in entries if entry.get("training"))]),
    ]
    alt = f"Accuracy at any shift against the time an image takes, {result['data']}"
    return [Table("", columns, rows, notes), Picture(f"rivals-{case}", alt, lambda: _draw(result))]


def _trained(entry: dict[str, Any]) -> str:
    """Say how a rival was trained; nothing if that is not known."""
    about, name = entry["training"], str(entry["name"])
    if "through" not in about:  # a classifier of its own
        return training(entry).replace("Classifier", name[0].upper() + name[1:], 1)
    return (
        f"Spatial transformer: {about['epochs']} epochs on {about['images']:,} images at any shift, through a "
        f"frozen `{about['through']}`, seed {about['seed']}."
    )


def _rated(entry: dict[str, Any]) -> list[float]:
    """Return what can be ranked, the more the better."""
    return [*entry["accuracy"], entry["consistent"], entry["same_bits"], -entry["milliseconds"]]


def _wins(entries: list[dict[str, Any]]) -> str:
    """Say where a rival does better than unshift."""
    ours = next(entry for entry in entries if entry["style"] == "restored")
    names = [*COLUMNS, "consistent", "same bits", "time"]
    won = []
    for entry in entries:
        better = zip(names, _rated(entry), _rated(ours), strict=True)
        if columns := [name for name, theirs, our in better if theirs > our]:
            won.append(f"{entry['name']} ({', '.join(columns)})")
    return f"Better than {ours['name']}: {'; '.join(won) or 'none'}."


def _draw(result: Result) -> bytes:
    figure, axes = plots.axes(7.2, 4.2)
    colours = {"bare": plots.BARE, "restored": plots.RESTORED}
    for entry in result["rivals"]:
        x, y, colour = entry["milliseconds"], entry["accuracy"][-1], colours.get(entry["style"], "#6b7280")
        axes.plot(x, y, "o", color=colour, ms=8 if entry["style"] == "restored" else 6)
        far = entry["passes"] > 9  # at the right edge: its name goes to the left
        place: Any = {"xytext": (-7, -12), "ha": "right"} if far else {"xytext": (6, 4)}
        axes.annotate(entry["name"], (x, y), **place, textcoords="offset points", fontsize=8, color=colour)
    axes.set_xscale("log")
    axes.margins(x=0.25, y=0.12)
    axes.set_xlabel("ms an image, classifier included")
    axes.set_ylabel("accuracy at any shift (%)")
    axes.set_title(f"{result['classifier']}, {result['data']}, n = {result['images']:,}", fontsize=10, loc="left")
    return plots.png(figure)


def _photos(name: str, title: str, restorer: str) -> Case:
    resnet = "resnet18-cifar10-autoattack"
    return Case(name, "cifar10", partial(_load, name, title, "cifar10", resnet, restorer, 500, 100))


EXPERIMENT = Experiment(
    name="rivals",
    title="every alternative, on the same images",
    claim="Of what leaves the classifier as it is, a restorer keeps most of its accuracy at any shift; the table says "
    "where another way is better.",
    cost="5 min on MNIST, 40 min on CIFAR-10, most of it ResNet-18; 50 min of training come on top, once",
    cases=[
        Case(
            "mnist",
            "mnist",
            partial(_load, "mnist", "MNIST test, 32x32", "mnist", "lenet5-mnist", "mnist", 10_000, 2000),
        ),
        _photos("cifar10-padded", "CIFAR-10 test, padded to 40x40", "cifar10"),
        _photos("cifar10-plain", "CIFAR-10 test, 32x32", "cifar10-seam"),
        Case("cifar10-trained", "cifar10", partial(_load_trained, 10_000)),
    ],
    measure=_measure,
    show=_show,
)
