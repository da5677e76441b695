"""Measure how often a restorer is right, and what a frozen classifier gains by it.

Without a classifier, this is the share of unmoved images that the restorer leaves as they are. Where moves are undone
exactly, moved images have the same share: every shift of an image is restored to the same image.

With a classifier, it is also the accuracy on images that are moved at random, up to each of --scopes, without and with
the restorer. The moves are those that the restorer undoes: shifts, turns, rotations. With --seeds 2 or more, it is also
the share of images that get the same verdict under all random moves. At scope 0 nothing moves; at all other scopes, a
restorer that undoes turns gets any turn.

The classes are those of the data: of a folder, its subfolders in alphabetical order (cat/1.jpg and dog/2.jpg are of the
classes 0 and 1), of a .npz file, the numbers in its array 'labels'. The output names them: the classifier's logits
have to be in that order.

The confidence is compared with the share that is restored exactly (expected calibration error, 15 bins), and the errors
among the 90% of the images with the highest confidence are counted. --report draws both. With --min-confidence,
images of a lower confidence go to the classifier unchanged.

With --moves zeros, edge or crop, images lose the pixels that leave them. The rates are then those of moves up to the
largest of --scopes, found to the pixel. Crops are windows that leave that many pixels on every side.

The images are prepared like those the restorer was trained on; --size, --crop, --channels and --pad change that.

A shipped classifier gets the restored images scaled to the size it takes. Your own takes images (batch,
channel, height, width) with values in 0..1, all of the size the restorer works on, and returns logits
(batch, classes). It is a TorchScript file (torch.jit.save), a torch.export file ending in .pt2, or
module:function, called without arguments, that returns an nn.Module. All three run code that comes with
them: use only what you trust.

\b
Examples:
  unshift evaluate --data mnist --restorer mnist --report report/
  unshift evaluate --data mnist --restorer mnist-paper --classifier lenet5-mnist --seeds 3
  unshift evaluate --data photos/ --restorer photos.safetensors --classifier resnet.pt2 --size 224
  unshift evaluate --data cifar10 --restorer cifar10 --classifier mymodels:resnet --scopes 0,4
  unshift evaluate --data mnist --restorer mnist --classifier lenet5-mnist --moves zeros --scopes 0-4
  unshift evaluate --data mnist --restorer mnist-rotation --classifier lenet5-mnist --limit 500
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshift.cli import options
from unshift.cli.classifiers import OneSize, at_its_size, load_classifier, try_classifier
from unshift.cli.prepared_data import Remembered, open_for
from unshift.cli.printing import named, percent, print_json, print_table, rates_line, reliability_line

if TYPE_CHECKING:
    from torch import Tensor

    from unshift.data import ImageSource
    from unshift.evaluation import ScopeRow
    from unshift.restorer import Chain, Restorer

Seeds = Annotated[int, typer.Option(min=1, help="Random moves of each image; consistency needs two.")]
Report = Annotated[
    Path | None,
    typer.Option(help="Folder for a page with the calibration plot and the curve of risk against coverage."),
]
DEFAULT_SCOPES = {"pixels": range(9), "degrees": (0, 10, 20, 45, 90, 180)}


def evaluate(
    data: options.Data,
    restorer: options.Model,
    classifier: options.Classifier = None,
    split: options.Split = None,
    scopes: options.Scopes = None,
    seeds: Seeds = 1,
    moves: options.RealMoves = options.Loss.circular,
    limit: options.Limit = None,
    size: options.Size = None,
    crop: options.Crop = False,
    channels: options.Channels = None,
    pad: options.Pad = None,
    min_confidence: options.MinConfidence = 0.0,
    report: Report = None,
    as_json: options.Json = False,
) -> None:
    """Measure a restorer, and what a classifier gains by it."""
    from unshift.data.reading import open_reader
    from unshift.evaluation import judged_on, rates_from
    from unshift.experiments.reliability_plots import write_reliability
    from unshift.ranks import is_first
    from unshift.reliability import reliability
    from unshift.weights import load

    model = load(restorer)
    _check_whole(model, restorer)
    net = at_its_size(load_classifier(classifier), classifier) if classifier else None
    found = open_for(model, data, split, limit, size, crop, channels, pad)
    unit = model.stages[0].coordinates.unit  # of a chain, a scope limits the first stage's move
    tried = scopes if scopes is not None else DEFAULT_SCOPES.get(unit, range(9))
    _check_scopes(scopes or [], unit, found.images)
    left = _left(model, moves, tried)
    if net is not None:
        _try(net, str(classifier), found, left)
    own = Remembered(model.trained_on.get("prints", []))
    reader = open_reader(found.images).through(own.look)
    reader = reader.through(OneSize(str(classifier))) if net is not None else reader
    judged = judged_on(model, reader.through(left), progress=True)
    rates, worth = rates_from(judged).as_dict(), reliability(judged.confidence, judged.right)
    model.min_confidence = min_confidence
    passed = float((judged.confidence < min_confidence).double().mean())
    rows = [] if net is None else _accuracies(net, model, found, tried, seeds, moves)
    own.warn(restorer, "the rates say how well it knows them, not how well it does on others")
    if report is not None and is_first():
        write_reliability(report, f"{found.name}, restorer {restorer}", worth.as_dict())
    if as_json:
        about = {"data": found.name, "restorer": restorer, "classifier": classifier, "unit": unit}
        about |= {"classes": list(found.classes), "rates": rates, "reliability": worth.as_dict(), "passed": passed}
        print_json({**about, "scopes": [{**r.as_dict(), "effect": r.effect} for r in rows]})
        return
    print(f"{found.name}, restorer {restorer}: {rates_line(rates, model.coordinates.step)}")
    print(reliability_line(worth))
    if min_confidence:
        print(f"below a confidence of {min_confidence:g} pass unchanged: {percent(passed)}")
    if rows:
        how = "" if moves is options.Loss.circular else f", {moves.value}"
        print(f"\naccuracy of {classifier} in %, images moved at random by up to {_words(model, unit)}{how}:\n")
        _print_scopes(rows, unit, found.classes)


def _check_whole(model: Restorer | Chain, name: str) -> None:
    """Refuse restorers of scenes: images do not say where in them the object is, or are objects themselves."""
    window = model.stages[0].coordinates.window
    if window is not None:
        raise ValueError(
            f"evaluate moves whole images and sees whether they come back; {name} finds a window of "
            f"{'x'.join(map(str, window))} in a scene, and no image here says where in it the object is. "
            "`unshift reproduce scenes` makes scenes and measures on them; `unshift restore` cuts windows out of yours"
        )


def _check_scopes(scopes: Sequence[int | None], unit: str, images: Any) -> None:
    """Refuse scopes beyond the largest move there is."""
    from unshift.shifts import times

    size, asked = images[0].shape[1:], max((scope for scope in scopes if scope is not None), default=0)
    largest, of = (180, "rotations") if unit == "degrees" else (max(size) - 1, f"images of {times(size)}")
    if asked > largest:
        raise ValueError(f"--scopes goes up to {asked} {unit}, and {of} move by {largest} at most; any is any move")


def _try(net: Callable[[Tensor], Tensor], name: str, found: ImageSource, left: Callable[[Tensor], Tensor]) -> None:
    """Refuse images without labels, and a classifier that does not take them, before the work."""
    if found.labels is None:
        raise ValueError(
            f"{found.name} has no labels, and accuracy needs them: a subfolder per class, or 'labels' in a .npz"
        )
    try_classifier(net, name, left(_two(found.images, OneSize(name))), int(found.labels.max()) + 1)


def _accuracies(
    net: Callable[[Tensor], Tensor],
    model: Restorer | Chain,
    found: ImageSource,
    scopes: Sequence[int | None],
    seeds: int,
    moves: options.Loss,
) -> list[ScopeRow]:
    """Return the accuracies without and with the restorer, a row for each scope."""
    from unshift.data import to_float
    from unshift.data.reading import open_reader
    from unshift.evaluation import accuracy_over_scopes

    assert found.labels is not None
    images = open_reader(found.images).through(to_float)
    return accuracy_over_scopes(
        net, images, found.labels, model, scopes=scopes, seeds=range(seeds), moves=moves.value, progress=True
    )


def _print_scopes(rows: Sequence[ScopeRow], unit: str, classes: Sequence[str]) -> None:
    """Print accuracies, a column for each scope, and which class is which."""
    seeds = len(rows[0].seeds)
    lines = {
        "without": [f"{100 * sum(r.without) / seeds:.2f}" for r in rows],
        "with": [f"{100 * sum(r.restored) / seeds:.2f}" for r in rows],
        "effect": [f"{100 * r.effect:+.2f}" for r in rows],
    }
    if seeds > 1:
        lines["consistent without"] = [f"{100 * r.consistent_without:.2f}" for r in rows]
        lines["consistent with"] = [f"{100 * r.consistent_restored:.2f}" for r in rows]
    head = [f"scope, {unit}", *("any" if r.scope is None else str(r.scope) for r in rows)]
    print_table(head, [[name, *cells] for name, cells in lines.items()], right=range(1, len(head)))
    if classes:
        print(f"\nclasses: {named((f'{at} {name}' for at, name in enumerate(classes)), most=10)}")


def _left(model: Restorer | Chain, moves: options.Loss, scopes: Sequence[int | None]) -> Callable[[Tensor], Tensor]:
    """Return what images go through before they are judged: nothing, or moves that lose pixels, taken back."""
    import torch

    from unshift.moves import Moves

    if moves is options.Loss.circular:
        return _same
    kind: Any = moves.value
    real = Moves(kind, model.coordinates, None if None in scopes else max(scope or 0 for scope in scopes))
    return functools.partial(real.left, generator=torch.Generator().manual_seed(0))


def _same(images: Tensor) -> Tensor:
    return images


def _two(images: Any, checked: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the first two images."""
    import torch

    from unshift.data import to_float

    return to_float(torch.cat([checked(images[row][None]) for row in range(min(2, len(images)))]))


def _words(model: Restorer | Chain, unit: str) -> str:
    """Say what a scope limits, and what it does not."""
    limited = "angle" if unit == "degrees" else "shift"
    free = " and ".join(sorted(model.coordinates.reads - {limited}))
    return f"this many {unit}, with any {free} (none at 0)" if free else f"this many {unit}"
