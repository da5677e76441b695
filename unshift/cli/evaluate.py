"""Measure how often a restorer is right, and the gain of a frozen classifier behind it.

Without arguments, measure the restorer mnist and the classifier lenet5-mnist on the MNIST test digits that come with
the package, and write report/index.html. This takes about a minute and needs no download.

The rates are measured on unmoved images: the share that the restorer leaves exactly as they are. If it undoes moves
exactly, they hold for moved images too. With --border zeros, edge or crop, the images lose as many pixels as the
largest moves would take.

With a classifier, the main result is its accuracy on randomly moved images, without and with the restorer. Each --scope
limits the moves: shifts up to that many pixels, rotations up to that many degrees. Scope 0 moves nothing; at every
other scope, turns are not limited. With --repeats 2 or more, "consistent" is the share of images whose predicted class
is the same for all their random moves.

The images are prepared like the training images of the restorer; --size, --crop, --channels and --pad change that. A
restorer for any size gets image files at their original size, as in `unshift restore`. The classifier gets images
(batch, channel, height, width) with values in 0..1, and returns logits (batch, classes) in the order of the labels: for
a folder, its subfolders in alphabetical order; for an .npz file, the numbers in its array 'labels'. It is a shipped
one, a TorchScript file (torch.jit.save), a torch.export file ending in .pt2, or module:function, called without
arguments, which returns an nn.Module. The last three run code: use only files that you trust.

\b
Examples:
  unshift evaluate
  unshift evaluate photos/ -r photos.safetensors -c resnet.pt2 --size 224 --report report/
  unshift evaluate cifar10 -r cifar10 -c mymodels:resnet --scope 0,4 --repeats 3
  unshift evaluate mnist -r mnist -c lenet5-mnist --border zeros --scope 0-4
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from unshift.cli import options, report
from unshift.cli.classifiers import adapt_images, load_classifier, try_classifier
from unshift.cli.errors import warn
from unshift.cli.options import moves_option, output_option
from unshift.cli.outputs import check_folder, join_names, percent, print_json, print_table, rates_line, reliability_line
from unshift.cli.prepared_data import TrainingImages, open_for

if TYPE_CHECKING:
    from torch import Tensor

    from unshift.evaluation import ScopeRow
    from unshift.restorer import Chain, Estimate, Restorer

DATA, RESTORER, CLASSIFIER, REPORT = "mnist-10k", "mnist", "lenet5-mnist", Path("report")
"""The defaults if no data is given."""
DEFAULT_SCOPES = {"pixels": range(9), "degrees": (0, 10, 20, 45, 90, 180)}
SCOPE_HELP = "Limits of the random moves: 0-8, or 0,2,4, or any. Default: 0-8 pixels, or 0,10,20,45,90,180 degrees."
REPORT_HELP = "Write a page with tables and figures to this folder."


def evaluate(
    data: options.Data = "",
    restorer: options.Model = "",
    classifier: options.Classifier = None,
    min_confidence: options.MinConfidence = None,
    device: options.Device = "cpu",
    scope: Annotated[Any, moves_option(parser=options.read_scopes, metavar="LIST", help=SCOPE_HELP)] = None,
    repeats: Annotated[int, moves_option(min=1, metavar="N", help="Random moves of each image at each scope.")] = 1,
    border: options.Borders = options.Border.circular,
    split: options.Split = None,
    limit: options.Limit = None,
    size: options.Size = None,
    crop: options.Crop = False,
    channels: options.Channels = None,
    pad: options.Pad = None,
    report_folder: Annotated[Path | None, output_option("--report", metavar="DIR", help=REPORT_HELP)] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure a restorer, and the gain of a classifier behind it."""
    started = time.monotonic()
    if data and not restorer:
        raise ValueError("--restorer is missing: give a shipped restorer's name, or a file that `fit` wrote")
    if not data and not report_folder:
        if report.can_draw():
            report_folder = REPORT
        else:
            warn(f"no report is written: it {report.NEEDS}")
    if report_folder:
        if not report.can_draw():
            raise ValueError(f"--report {report.NEEDS}")
        check_folder(report_folder)
    if not restorer:
        data, restorer, classifier = DATA, RESTORER, classifier or CLASSIFIER
    data = data or DATA
    from unshift import distributed as ranks
    from unshift import evaluation
    from unshift.data import to_float
    from unshift.data.reading import open_reader
    from unshift.data.sequences import is_fasta
    from unshift.files import load

    device = ranks.device(device)
    model: Any = OnDevice(load(restorer, min_confidence=min_confidence), device)
    least, model.restorer.min_confidence = model.restorer.min_confidence, 0.0  # the rates are those of all images
    if model.coordinates.labels.scenes:
        raise ValueError(
            f"evaluate moves whole images, but {restorer} cuts a window out of a scene, and labels do not give its "
            "position; `python -m reproduction scenes`, in a clone of the repository, measures on generated scenes"
        )
    source = open_for(model.restorer, data, split, limit, size, crop, channels, pad)
    unit = model.stages[0].coordinates.labels.unit  # in a chain, a scope limits the moves of the first stage
    scopes = scope if scope is not None else DEFAULT_SCOPES.get(unit, range(9))
    _check_scopes(scope or [], unit, source.images)
    lose_pixels = _pixel_loss(model, border, scopes)
    training = TrainingImages(model.restorer)
    reader = open_reader(source.images).mapped(training.check)
    network, labels = None, source.labels
    if classifier:
        if labels is None:
            raise ValueError(
                f"{source.name} has no labels, and accuracy needs them: a subfolder per class, or 'labels' in a .npz"
            )
        network = adapt_images(load_classifier(classifier, device), device)
        first = _first(source.images, 2)
        try_classifier(network, classifier, lose_pixels(first), int(labels.max()) + 1)
        reader = reader.mapped(functools.partial(_check_size, first.shape[1:]))
    settings: dict[str, Any] = {"progress": not quiet, "batch_size": 256 if hasattr(source.images, "shape") else 16}
    judged = evaluation.judged_on(model, reader.mapped(lose_pixels), **settings)
    rates = evaluation.rates_from(judged).as_dict()
    reliability = evaluation.reliability(judged.confidence, judged.right)
    model.restorer.min_confidence = least
    rows: list[ScopeRow] = []
    if network is not None and labels is not None:
        settings |= {"scopes": scopes, "seeds": range(repeats), "moves": border.value}
        images = open_reader(source.images).mapped(to_float)
        rows = evaluation.accuracy_over_scopes(network, images, labels, model, **settings)
    training.warn(restorer, "the rates do not show how well it does on other images")
    results: dict[str, Any] = {
        **{"data": source.name, "restorer": restorer, "classifier": classifier},
        **{"unit": unit, "border": border.value, "classes": list(source.classes)},
        "rates": rates,
        "reliability": reliability.as_dict(),
        "passed": float((judged.confidence < least).double().mean()),
        "scopes": [{**row.as_dict(), "effect": row.effect} for row in rows],
    }
    table = _accuracy_table(rows, unit)
    if not as_json:
        things, step = ("genomes", "base") if is_fasta(Path(data)) else ("images", model.coordinates.labels.step)
        print(f"{source.name}, restorer {restorer}: {rates_line(rates, step, things)}")
        print(reliability_line(reliability))
        if least:
            print(f"left unchanged, with a confidence below {least:g}: {percent(results['passed'])}")
        if rows:
            lost = "" if border is options.Border.circular else f", {border.value}"
            unlimited = sorted(model.coordinates.labels.reads - {"angle" if unit == "degrees" else "shift"})
            with_any = f", with any {' and '.join(unlimited)} (none at 0)" if unlimited else ""
            print(f"\naccuracy of {classifier} in %, random moves up to each scope{with_any}{lost}:\n")
            print_table([], [[name, *cells] for name, cells in table.items()], right=range(1, len(rows) + 1))
        classes = [f"{number} {name}" for number, name in enumerate(source.classes) if str(number) != name]
        if rows and classes:
            print(f"\nclasses: {join_names(classes, most=10)}")
    if report_folder and ranks.is_first():
        first = _first(source.images, report.MAP_IMAGES)
        figures = report.measure(model, network, first, labels, border.value, not quiet)
        page = report.write(report_folder, results | figures, table, time.monotonic() - started)
        results |= {"report": str(page), **({"map": figures["map"]} if "map" in figures else {})}
        if not as_json:
            print(f"\nreport: {page}")
    if as_json:
        print_json(results)


class OnDevice:
    """A restorer that computes on ``device``, for images in main memory."""

    def __init__(self, restorer: Restorer | Chain, device: str) -> None:
        self.restorer, self.device = restorer.to(device), device

    def __getattr__(self, name: str) -> Any:
        return getattr(self.restorer, name)

    def __call__(self, images: Tensor) -> Tensor:
        """Restore images."""
        restored: Tensor = self.restorer(images.to(self.device))
        return restored.cpu()

    def estimate(self, images: Tensor) -> Estimate:
        """Estimate poses."""
        estimate = self.restorer.estimate(images.to(self.device))
        return estimate._replace(**{k: v.cpu() for k, v in estimate._asdict().items() if v is not None})


def _check_scopes(scopes: Sequence[int | None], unit: str, images: Any) -> None:
    """Raise a ``ValueError`` if a scope is beyond the largest move."""
    from unshift.shifts import format_size

    size, largest = images[0].shape[1:], max((scope for scope in scopes if scope is not None), default=0)
    limit, subject = (180, "rotations") if unit == "degrees" else (max(size) - 1, f"images of {format_size(size)}")
    if largest > limit:
        raise ValueError(f"--scope goes up to {largest} {unit}, but {subject} move by {limit} at most; any = no limit")


def _pixel_loss(model: Any, border: options.Border, scopes: Sequence[int | None]) -> Callable[[Tensor], Tensor]:
    """Return a function that removes the pixels that moves up to the largest scope would lose, if they lose any."""
    import torch

    from unshift.coordinates.lossy import Moves

    if border is options.Border.circular:
        return lambda images: images
    kind: Any = border.value
    moves = Moves(kind, model.coordinates, None if None in scopes else max(scope or 0 for scope in scopes))
    return functools.partial(moves.lose_pixels, generator=torch.Generator().manual_seed(0))


def _first(images: Any, count: int) -> Tensor:
    """Return the first images as one float tensor: up to ``count``, without those of another size than the first."""
    import torch

    from unshift.data import to_float

    first = [images[row][None] for row in range(min(count, len(images)))]
    return to_float(torch.cat([image for image in first if image.shape == first[0].shape]))


def _check_size(shape: tuple[int, ...], images: Tensor) -> Tensor:
    """Return ``images``. Raise a ``ValueError`` if they have another shape."""
    if images.shape[1:] != shape:
        raise ValueError(
            f"a classifier takes images of one size, got {tuple(shape)} and {tuple(images.shape[1:])}: give one with "
            "--size HxW, or omit --classifier"
        )
    return images


def _accuracy_table(rows: Sequence[ScopeRow], unit: str) -> dict[str, list[str]]:
    """Return accuracies as text, one column per scope; the first row is the head."""
    table = {
        f"scope, {unit}": ["any" if row.scope is None else str(row.scope) for row in rows],
        "without": [f"{100 * fmean(row.without):.2f}" for row in rows],
        "with": [f"{100 * fmean(row.restored):.2f}" for row in rows],
        "effect": [f"{100 * row.effect:+.2f}" for row in rows],
    }
    if rows and len(rows[0].seeds) > 1:
        table["consistent without"] = [f"{100 * row.consistent_without:.2f}" for row in rows]
        table["consistent with"] = [f"{100 * row.consistent_restored:.2f}" for row in rows]
    return table
