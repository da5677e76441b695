"""An object anywhere in a larger scene.

Claim: An object anywhere in a larger scene is found and cut out for a frozen classifier: the same window bit for bit
    wherever the scene is shifted.
Paper: objects fill the image.
Cost: 13 min.

Digits of MNIST are pasted at random places of scenes, among pieces of other digits, and LeNet-5 gets the window that
the restorer cuts out. Baselines: the window at the true place, and the whole scene scaled down to the classifier's
size. ``rivals`` compares with template matching and with a spatial transformer that is trained with labels. ``objects``
pastes photos of CIFAR-10 into photographs: a restorer is fitted on one set of photographs, and measured on another.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import util
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import unshift
from reproduction import plots
from reproduction.classifiers import Recipe, frozen, train
from reproduction.images import images_of, labelled
from reproduction.photographs import open_photograph, photographs, to_tensor
from reproduction.records import Options, Result, percent
from reproduction.spatial_transformer import SpatialTransformer
from reproduction.tables import Block, Picture, Row, Table
from unshift.coordinates import Pose, Scene, draw_shifts
from unshift.data import prepare, resize, to_float
from unshift.evaluation import accuracy, predict
from unshift.shifts import format_size
from unshift.training.scenes import Background, Scenes, clutter, cut

NAME = "mnist-scene"
CASES = {"mnist-scene": ("mnist-10k", "lenet5-mnist"), "rivals": ("mnist", "lenet5-mnist")}
CASES["objects"] = ("cifar10", "photographs", "resnet20-cifar10-plain")
KINDS = [((64, 64), 6), ((64, 64), 0), ((128, 128), 6), ((96, 160), 6), ((128, 128), 24), ((96, 160), 22)]
"""Sizes of scenes, and the number of pieces of other digits in each."""
SIZE, WINDOW = (64, 64), (32, 32)
LARGER = 1000
"""Digits in scenes of other sizes."""
OBJECTS = 12000
"""Objects in photographs to train on."""
DRAWS = 3
"""Circular shifts of each scene whose predictions are compared."""
PICTURES = ("scene", "true place", "restored")


def scenes_of(digits: Tensor, size: tuple[int, int], pieces: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return a scene for each digit, among pieces of other digits, and the place of the digit in it.

    Args:
        digits: ``(n, 1, 32, 32)``.
        size: Size of the scenes.
        pieces: Number of 8x8 pieces in each scene; they may lie on the digit.
        seed: Seed of the places.
    """
    make = Scenes(size, WINDOW, digits.shape[1:], partial(clutter, pieces=pieces), value=0.0)
    scenes, pose = make.posed(digits, torch.Generator().manual_seed(seed))
    return scenes, pose.shift


def measure(case: str, options: Options) -> Result:
    """Return accuracies in percent: scene scaled down, window at the true place, window of the restorer."""
    if case == "objects":
        return _objects(options)
    restorer: Any = unshift.load(NAME)
    digits, labels = labelled("mnist-10k", options, restorer.trained_on["preparation"], 30 if options.quick else None)
    behind = frozen("lenet5-mnist", options)
    if case == "rivals":
        return _rivals(restorer, behind.model, digits[:4000], labels[:4000], options)
    scenes, _ = scenes_of(digits[:LARGER], SIZE, 6, options.seeds[0])
    checked = unshift.verify(restorer, scenes[: 1 if options.quick else 4], moves=8 if options.quick else None)
    shifted = [resize(x, WINDOW) for x in _shifted(restorer, scenes)]
    restored = [restorer(x) for x in _shifted(restorer, scenes)]
    return {
        "data": "MNIST test, digits of 32x32",
        "seeds": list(options.seeds),
        "classifier": behind.title,
        "restorer": NAME,
        "trained": restorer.metadata["scenes"]["size"],
        "scenes": [_accuracies(restorer, behind.model, digits, labels, kind, options) for kind in KINDS],
        "consistent": {
            "images": len(scenes),
            "bare": _consistency(behind.model, shifted),
            "restored": _consistency(behind.model, restored),
        },
        "verified": checked.as_dict(),
        "pictures": _pictures(restorer, digits[:10], options.seeds[0]),
    }


def _accuracies(
    restorer: Any,
    classifier: nn.Module,
    digits: Tensor,
    labels: Tensor,
    kind: tuple[tuple[int, int], int],
    options: Options,
) -> Result:
    size, pieces = kind
    count = len(digits) if size == SIZE else min(LARGER, len(digits))
    totals: dict[str, list[float]] = {"bare": [], "true": [], "restored": [], "within_1": []}
    for seed in options.seeds:
        right = dict.fromkeys(totals, 0.0)
        for at in range(0, count, 500):  # thousands of large scenes do not fit in memory together
            rows = slice(at, min(at + 500, count))
            scenes, place = scenes_of(digits[rows], size, pieces, seed * 100_003 + at)
            estimate = restorer.estimate(scenes)
            off = restorer.coordinates.distance(Pose(estimate.shift - place), size)
            windows = {
                "bare": resize(scenes, WINDOW),
                "true": cut(scenes, place, WINDOW),
                "restored": restorer.undo(scenes, estimate),
            }
            for name, images in windows.items():
                right[name] += accuracy(classifier, images, labels[rows]) * len(images)
            right["within_1"] += float((off <= 1).sum())
        for name, total in right.items():
            totals[name].append(100 * total / count)
    return {"size": list(size), "pieces": pieces, "images": count, **totals}


def _shifted(restorer: Any, scenes: Tensor) -> list[Tensor]:
    """Return the scenes under random circular shifts, one batch for each draw."""
    generators = [torch.Generator().manual_seed(draw) for draw in range(DRAWS)]
    poses = [restorer.coordinates.draw(SIZE, len(scenes), None, generator) for generator in generators]
    return [restorer.coordinates.redo(scenes, pose) for pose in poses]


def _consistency(classifier: Callable[[Tensor], Tensor], draws: list[Tensor]) -> float:
    """Return the percentage of images with the same prediction in all draws."""
    predicted = torch.stack([predict(classifier, images) for images in draws])
    return percent((predicted == predicted[0]).all(0))


def _pictures(restorer: Any, digits: Tensor, seed: int) -> Result:
    scenes, place = scenes_of(digits, SIZE, 6, seed)
    windows = (cut(scenes, place, WINDOW), restorer(scenes))
    # Windows are enlarged pixel by pixel, so that they have the size of scenes.
    shown = (scenes, *(x.repeat_interleave(2, 2).repeat_interleave(2, 3) for x in windows))
    return {name: plots.grey(x) for name, x in zip(PICTURES, shown, strict=True)}


# --- Rivals ---------------------------------------------------------------------------------------------------------


def _rivals(restorer: Any, classifier: nn.Module, digits: Tensor, labels: Tensor, options: Options) -> Result:
    """Return accuracies with and without pieces of other digits, consistency over shifts, and milliseconds a scene."""
    train_set = images_of("mnist", options, "train")
    learnt = prepare(train_set.images, {"resize": list(WINDOW)})
    transformer, seconds = _transformer(learnt, train_set.labels, classifier, options)
    crowded, place = scenes_of(digits, SIZE, 6, 0)
    empty, _ = scenes_of(digits, SIZE, 0, 0)
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "scaled down to 32x32": lambda x: classifier(resize(x, WINDOW)),
        f"unshift ({NAME})": lambda x: classifier(restorer(x)),
        "spatial transformer, trained with labels": transformer,
    }
    if util.find_spec("skimage"):
        template = to_float(learnt).mean(0)[0]
        ways["mean digit, normalised cross-correlation"] = lambda x: classifier(_matched(x, template))
    draws, rows = _shifted(restorer, crowded[:1000]), {}
    for name, classify in ways.items():
        classify(crowded[:64])
        started = time.perf_counter()
        classify(crowded[:64])
        milliseconds = 1000 * (time.perf_counter() - started) / len(crowded[:64])
        rows[name] = {
            "pieces": 100 * accuracy(classify, crowded, labels),
            "alone": 100 * accuracy(classify, empty, labels),
            "consistent": _consistency(classify, draws),
            "ms": milliseconds,
        }
    true = {"pieces": 100 * accuracy(classifier, cut(crowded, place, WINDOW), labels)}
    rows["window at the true place"] = {**true, "alone": 100 * accuracy(classifier, digits, labels)}
    return {"data": "MNIST test", "images": len(digits), "seed": 0, "training_seconds": seconds, "rows": rows}


def _transformer(
    digits: Tensor, labels: Tensor | None, classifier: nn.Module, options: Options
) -> tuple[nn.Module, float]:
    """Train a spatial transformer, and the classifier behind it, on scenes like those of the restorer, with labels."""
    assert labels is not None
    torch.manual_seed(0)
    network = nn.Sequential(SpatialTransformer(1, SIZE[0], WINDOW), copy.deepcopy(classifier)).train().requires_grad_()
    make, generator = Scenes(SIZE, WINDOW, digits.shape[1:], "clutter", value=0.0), torch.Generator().manual_seed(0)

    def loss_of(network: nn.Module, batch: Tensor, truth: Tensor) -> Tensor:
        return F.cross_entropy(network(make.posed(batch, generator)[0]), truth)

    begun = time.process_time()
    recipe = Recipe("spatial transformer", epochs=4, batch_size=64, learning_rate=0.001, weight_decay=0.0)
    train(network, digits, labels, recipe, loss_of=loss_of, progress=options.progress)
    return network.eval(), round(time.process_time() - begun, 1)


def _matched(scenes: Tensor, template: Tensor) -> Tensor:
    """Cut out the windows where normalised cross-correlation with a template is highest."""
    from skimage.feature import match_template

    places = []
    for scene in scenes[:, 0].numpy():
        scores = torch.from_numpy(match_template(scene, template.numpy(), pad_input=True, mode="wrap"))
        places.append(torch.tensor(divmod(int(scores.argmax()), scores.shape[1])) - torch.tensor(WINDOW) // 2)
    return cut(scenes, torch.stack(places), WINDOW)


# --- Objects in photographs -------------------------------------------------------------------------------------------


def on_photographs(split: str, options: Options) -> Background:
    """Return a background: random parts of the photographs of a split, scaled to 128 pixels along the shorter side."""
    photos = [torch.rand(3, 128, 160, generator=torch.Generator().manual_seed(0))]
    if not options.quick:
        photos = [to_float(to_tensor(open_photograph(path, 128))) for path in photographs(split)]
    photos = [photo for photo in photos if min(photo.shape[1:]) >= SIZE[0]]

    def background(objects: Tensor, size: Sequence[int], value: float, generator: torch.Generator) -> Tensor:
        parts = []
        for row in torch.randint(len(photos), (len(objects),), generator=generator).tolist():
            room = [n - m + 1 for n, m in zip(photos[row].shape[1:], size, strict=True)]
            parts.append(cut(photos[row][None], draw_shifts(room, 1, None, generator), size))
        return torch.cat(parts)

    return background


def _objects(options: Options) -> Result:
    """Fit on objects in photographs; return accuracies on other objects in other photographs."""
    behind, count = frozen("resnet20-cifar10-plain", options), 60 if options.quick else OBJECTS
    own, test = (images_of("cifar10", options, split, few=60) for split in ("train", "test"))
    learnt: Any = {"scene": SIZE, "background": on_photographs("train", options), "epochs": 1 if options.quick else 3}
    begun = time.monotonic()
    restorer = unshift.fit(
        own.images[:count], "scene", coordinates=Scene(WINDOW), **learnt, data_name="cifar10", progress=options.progress
    )
    seconds = round(time.monotonic() - begun, 1)
    objects, labels = to_float(test.images[:LARGER]), test.labels
    assert labels is not None
    make = Scenes(SIZE, WINDOW, objects.shape[1:], on_photographs("test", options), None)
    scenes, pose = make.posed(objects, torch.Generator().manual_seed(0))
    estimate = restorer.estimate(scenes)
    off = restorer.coordinates.distance(Pose(estimate.shift - pose.shift), SIZE)
    windows = {
        "scene scaled down to 32x32": resize(scenes, WINDOW),
        "window at the true place": cut(scenes, pose.shift, WINDOW),
        "with unshift": restorer.undo(scenes, estimate),
    }
    return {
        "images": len(objects),
        "trained": {"images": count, "epochs": learnt["epochs"], "seconds": seconds},
        "classifier": behind.title,
        "rates": {name: 100 * accuracy(behind.model, x, labels[: len(objects)]) for name, x in windows.items()},
        "exact": 100 * float((off == 0).double().mean()),
        "within_1": 100 * float((off <= 1).double().mean()),
        "same": _consistency(behind.model, [restorer(x) for x in _shifted(restorer, scenes[:200])]),
    }


def _objects_table(result: Result) -> Table:
    located = {"with unshift": [result["exact"], result["within_1"], result["same"]]}
    rows = [
        Row(name, [rate, *located.get(name, [None] * 3)], style="restored" if name in located else "plain")
        for name, rate in result["rates"].items()
    ]
    trained = result["trained"]
    note = (
        f"{result['classifier']}, accuracy in %, n = {result['images']:,} CIFAR-10 test images, seed 0, each at a "
        "random place of a part of 64x64 pixels of a test photograph (of other sources). The restorer is "
        f"fitted on {trained['images']:,} training images in training photographs, without labels, "
        f"{trained['epochs']} epochs, {trained['seconds']:.0f} s. Same prediction under {DRAWS} shifts: 200 scenes."
    )
    return Table("", ["accuracy", "located exactly", "within 1", "same prediction"], rows, [note])


# --- Tables ---------------------------------------------------------------------------------------------------------


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table, and pictures of scenes with their windows."""
    result = results[case]
    if case != "mnist-scene":
        return [(_rivals_table if case == "rivals" else _objects_table)(result)]
    scenes, checked, same = result["scenes"], result["verified"], result["consistent"]
    columns = [f"{format_size(row['size'])}, {row['pieces'] or 'no'} pieces" for row in scenes]
    labels: dict[str, tuple[str, Any]] = {
        "bare": ("scene scaled down to 32x32", "bare"),
        "true": ("window at the true place", "plain"),
        "restored": (f"with unshift ({result['restorer']})", "restored"),
        "within_1": ("located to within a pixel", "detail"),
    }
    rows = [Row(label, [fmean(row[key]) for row in scenes], style=style) for key, (label, style) in labels.items()]
    notes = [
        f"{result['classifier']}, accuracy in %, {result['data']}, each at a random place of its scene; pieces are 8x8 "
        f"pixels of other digits, at random places, also on the digit. n = "
        f"{', '.join(format(row['images'], ',') for row in scenes)}; mean over draws with seeds {result['seeds']}. "
        f"Trained on scenes of {format_size(result['trained'])}, without labels.",
        f"Same prediction under {DRAWS} random circular shifts of the scene (64x64, 6 pieces, n = {same['images']:,}): "
        f"{same['restored']:.2f}% with unshift, {same['bare']:.2f}% scaled down. Bit for bit: {checked['images']:,} "
        f"scenes of 64x64 under {checked['moves'] // checked['images']:,} circular shifts each, "
        f"{checked['mismatches']:,} windows differ.",
    ]
    draw = (lambda: plots.image_rows(result["pictures"], 3.2)) if "pictures" in result else None
    return [Table("", columns, rows, notes), Picture("scenes", "Scenes, and the windows cut out of them", draw)]


def _rivals_table(result: Result) -> Table:
    keys = ("pieces", "alone", "consistent", "ms")
    rows = [
        Row(name, [row.get(key) for key in keys], style="restored" if name.startswith("unshift") else "plain")
        for name, row in result["rows"].items()
    ]
    note = (
        f"LeNet-5, accuracy in %, {result['data']}, n = {result['images']:,}, seed {result['seed']}, each digit at a "
        "random place of a 64x64 scene. Same prediction: under three random circular shifts of each of the first 1,000 "
        "scenes. The spatial transformer and the classifier behind it are trained with labels, four epochs on scenes "
        f"like those of the restorer ({result['training_seconds']:.0f} s of CPU). Template: the mean training digit, "
        "scikit-image, with wrap-around. Milliseconds a scene in batches of 64, classifier included."
    )
    return Table("", ["6 pieces", "no pieces", "same prediction", "ms a scene"], rows, [note])
