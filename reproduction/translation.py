"""Accuracy over translation scopes, bare and restored: the measurement of Tables 1 and 2, Figure 4 and others.

Both get the same images under the same shifts. If the classifier is large and there are many shifts, the bare
classifier gets the first ``bare`` test images only; the restored accuracy is then measured on all of them too.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

import unshift
from reproduction import plots
from reproduction.classifiers import frozen
from reproduction.images import images_of
from reproduction.records import Options, Result
from reproduction.tables import Picture, Row, Table
from unshift import Chain, Restorer, apply
from unshift.data import prepare, to_float
from unshift.evaluation import accuracy, accuracy_over_scopes, random_shifts, restoration_rates
from unshift.progress import tracked

__all__ = ["SETTINGS", "Case", "Memo", "Setting", "curve", "load", "measure", "table", "training_note"]

FACTS = {"preparation", "epochs", "small_epochs", "scope", "window", "train_images", "parameters"}
FACTS |= {"validation_accuracy", "validation_images", "seed", "torch", "source", "licence", "sha256", "recipe"}
"""Facts about a classifier's training that a record keeps."""


@dataclass(frozen=True)
class Case:
    """A test set, a frozen classifier, and the restorers to put before it."""

    title: str
    images: Tensor
    labels: Tensor
    classifier: Callable[[Tensor], Tensor]
    classifier_title: str
    restorers: Mapping[str, Restorer | Chain]
    options: Options
    bare: int = 10_000
    """Number of images that the bare classifier sees shifted: the first of them."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the classifier's training."""
    classes: tuple[str, ...] = ()

    def describe(self) -> Result:
        """Return what a reader needs to repeat the run, as plain data."""
        return {
            "data": self.title,
            "images": len(self.images),
            "bare_images": min(self.bare, len(self.images)),
            "classifier": self.classifier_title,
            "training": {key: value for key, value in self.about.items() if key in FACTS},
            "restorers": list(self.restorers),
            "seeds": list(self.options.seeds),
        }


@dataclass(frozen=True)
class Setting:
    """The names of what a case consists of."""

    title: str
    data: str
    classifier: str
    restorers: tuple[str, ...]
    bare: int = 10_000

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the data and weights that must be on this computer."""
        return (self.data, self.classifier)


_PADDED, _PHOTOS = "CIFAR-10 test, padded to 40x40", "CIFAR-10 test, 32x32"
_DIGITS = "MNIST test, 32x32"
SETTINGS = {
    "mnist": Setting(_DIGITS, "mnist-10k", "lenet5-mnist", ("mnist", "mnist-paper")),
    "mnist-augmented": Setting(_DIGITS, "mnist-10k", "lenet5-mnist-augmented", ("mnist",)),
    "cifar10-vgg16": Setting(_PADDED, "cifar10", "vgg16-cifar10", ("cifar10",), 1000),
    "cifar10-resnet18": Setting(_PADDED, "cifar10", "resnet18-cifar10-autoattack", ("cifar10",), 1000),
    "cifar10-densenet-bc100": Setting(_PADDED, "cifar10", "densenet-bc100-cifar10", ("cifar10",), 1000),
    "cifar10-mobilenet-v2": Setting(_PADDED, "cifar10", "mobilenet-v2-cifar10", ("cifar10",), 1000),
    "cifar10-plain": Setting(_PHOTOS, "cifar10", "resnet20-cifar10-plain", ("cifar10-seam",), 2000),
    "cifar10-resnet18-plain": Setting(_PHOTOS, "cifar10", "resnet18-cifar10-autoattack", ("cifar10-seam",), 1000),
    "fashion-mnist": Setting("Fashion-MNIST test, 32x32", "fashion-mnist", "lenet5-fashion-mnist", ("fashion-mnist",)),
}
"""The cases of the paper, and ours."""


def needs(*names: str) -> dict[str, tuple[str, ...]]:
    """Return what each of these cases needs on this computer."""
    return {name: SETTINGS[name].needs for name in names}


def load(name: str, options: Options) -> Case:
    """Return a case of :data:`SETTINGS`."""
    setting = SETTINGS[name]
    restorers = {each: unshift.load(each) for each in setting.restorers}
    test = images_of(setting.data, options)
    assert test.labels is not None
    images = to_float(prepare(test.images, next(iter(restorers.values())).trained_on["preparation"]))
    behind = frozen(setting.classifier, options)
    model, title = Memo(behind.model), setting.title + (", quick" if options.quick else "")
    made = Case(title, images, test.labels, model, behind.title, restorers, options, setting.bare, behind.about)
    return replace(made, classes=test.classes)


class Memo:
    """A classifier that classifies each image once in a run.

    The last bit of a large network's logits may depend on the other images of the batch. With this, the accuracy
    depends on the images alone. It also saves time: most restored images are the same at every shift.
    """

    def __init__(self, model: Callable[[Tensor], Tensor]) -> None:
        self.model = model
        self.logits: dict[bytes, Tensor] = {}

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits of a batch."""
        keys = [hashlib.blake2b(image.numpy().tobytes(), digest_size=16).digest() for image in images.contiguous()]
        new = {key: row for row, key in enumerate(keys) if key not in self.logits}
        if new:
            unseen = images[list(new.values())]
            if unseen.ndim == 4:
                unseen = unseen.contiguous(memory_format=torch.channels_last)
            self.logits.update(zip(new, self.model(unseen), strict=True))
        return torch.stack([self.logits[key] for key in keys])


def measure(case: Case, scopes: list[int], *, bare: int | None = None, batch_size: int = 200) -> Result:
    """Classify at each scope and seed, bare and behind each restorer.

    Args:
        case: Test set, classifier and restorers.
        scopes: The largest shifts, in pixels.
        bare: Number of images that the bare classifier sees shifted. Default: as the case has it.
        batch_size: Images at a time.

    Returns:
        Accuracies in percent, and their spread over seeds.
    """
    case = replace(case, bare=min(bare or case.bare, len(case.images)))
    images, labels, options = case.images[: case.bare], case.labels[: case.bare], case.options
    result: Result = {**case.describe(), "scopes": scopes, "restored": {}}
    for name, restorer in case.restorers.items():
        rows = accuracy_over_scopes(
            case.classifier,
            images,
            labels,
            restorer,
            scopes=scopes,
            seeds=options.seeds,
            batch_size=batch_size,
            progress=options.progress,
        )
        result["without"] = [_percent(row.without) for row in rows]
        result["without_spread"] = [_spread(row.without) for row in rows]
        result["consistent_without"] = [100 * row.consistent_without for row in rows]
        result["restored"][name] = {
            "accuracy": [_percent(row.restored) for row in rows],
            "spread": [_spread(row.restored) for row in rows],
            "effect": [100 * row.effect for row in rows],
            "consistent": [100 * row.consistent_restored for row in rows],
            "same_at_every_scope": len({value for row in rows for value in row.restored}) == 1,
            "rates": restoration_rates(restorer, case.images, batch_size=batch_size).as_dict(),
        }
        if case.bare < len(case.images):
            result["restored"][name]["all"] = _on_all(case, restorer, scopes, batch_size)
    return result


def _on_all(case: Case, restorer: Restorer | Chain, scopes: list[int], batch_size: int) -> Result:
    """Measure on the whole test set: bare where images are not shifted, restored at every scope with the first seed."""
    images, labels, seed = case.images, case.labels, case.options.seeds[0]
    without = accuracy(case.classifier, images, labels, batch_size=batch_size)
    restored = []
    for scope in tracked(scopes, "all images", "scopes", case.options.progress):
        shifted = apply(images, random_shifts(len(images), images.ndim - 2, scope, seed))
        restored.append(accuracy(lambda x: case.classifier(restorer(x)), shifted, labels, batch_size=batch_size))
    return {
        "images": len(images),
        "seed": seed,
        "without": 100 * without,
        "accuracy": [100 * value for value in restored],
        "effect": 100 * (restored[0] - without),
        "same_at_every_scope": len(set(restored)) == 1,
    }


def _percent(values: tuple[float, ...]) -> float:
    return 100 * sum(values) / len(values)


def _spread(values: tuple[float, ...]) -> float | None:
    """Return the standard deviation over seeds, in points."""
    return 100 * statistics.stdev(values) if len(values) > 1 else None


def table(result: Result, paper: Mapping[str, Any] | None = None, unit: str = "pixels") -> Table:
    """Return a measurement as a table with one column for each scope.

    Args:
        result: The result of :func:`measure`.
        paper: The paper's ``classifier``, its accuracies ``without`` at each scope, and the one ``restored``.
        unit: Unit of a shift.
    """
    several = len(result["seeds"]) > 1
    rows = [Row(f"{result['classifier']}, bare", result["without"], "bare")]
    if several:
        rows.append(Row("spread over seeds", result["without_spread"], "detail", "±{:.2f}"))
    for name, entry in result["restored"].items():
        rows.append(Row(f"with unshift ({name})", entry["accuracy"], "restored"))
        rows.append(Row("effect", entry["effect"], "detail", "{:+.2f}"))
        if on_all := entry.get("all"):
            rows.append(Row(f"with unshift, all {on_all['images']:,}", on_all["accuracy"], "restored"))
    if several:
        rows.append(Row("consistent, bare", result["consistent_without"], "aside"))
        for name, entry in result["restored"].items():
            rows.append(Row(f"consistent, unshift ({name})", entry["consistent"], "aside"))
    if paper:
        rows.append(Row(f"paper: {paper['classifier']}, bare", paper["without"], "paper"))
        rows.append(Row("paper: with its restorer", [paper["restored"]] * len(paper["without"]), "paper"))
    note = (
        f"Accuracy in %, {result['data']}, n = {result['bare_images']:,}, random circular shifts in both directions, "
        f"seed{'s' if several else ''} {', '.join(map(str, result['seeds']))}."
    )
    notes = [note, *(_effect_note(result, name) for name in result["restored"]), training_note(result)]
    columns = [str(scope) for scope in result["scopes"]]
    return Table(f"shift up to ({unit})", columns, rows, [text for text in notes if text])


def _effect_note(result: Result, name: str) -> str:
    """Return a note with the exact rate of a restorer, and its effect on images that are not shifted."""
    entry = result["restored"][name]
    rates, on_all = entry["rates"], entry.get("all")
    n, effect = (on_all["images"], on_all["effect"]) if on_all else (result["images"], entry["effect"][0])
    flat = entry["same_at_every_scope"] and (on_all is None or on_all["same_at_every_scope"])
    bare = f", bare {on_all['without']:.2f}%" if on_all else ""
    return (
        f"{name}: {100 * rates['exact']:.2f}% of {rates['images']:,} images are restored exactly, "
        f"{100 * rates['within_1']:.2f}% to within 1 pixel; the effect on unshifted images is {effect:+.2f} points "
        f"(n = {n:,}{bare}); the accuracy is {'the same' if flat else 'NOT the same'} at every scope and seed."
    )


def training_note(result: Mapping[str, Any], subject: str = "Classifier") -> str:
    """Return how the classifier of a result was trained; an empty string if that is not known."""
    about = result["training"]
    if "source" in about:
        return (
            f"{subject}: {about['parameters']:,} parameters, trained by others: {about['source']} "
            f"({about['licence']}; SHA-256 {about['sha256'][:16]}…)."
        )
    if "validation_accuracy" not in about:
        return ""
    small = f"{about['small_epochs']:g} epochs at half size and " if about.get("small_epochs") else ""
    seen = f" through random windows of {about['window']}x{about['window']}" if about.get("window") else ""
    held = f"{100 * about['validation_accuracy']:.2f}% accuracy on {about['validation_images']:,} held-out images"
    size = f"{about['parameters']:,} parameters, " if "parameters" in about else ""
    return f"{subject}: {size}{small}{about['epochs']:g} epochs on {about['train_images']:,} images{seen}, {held}."


def curve(name: str, results: list[Result], paper: Mapping[str, Any] | None = None) -> Picture:
    """Return accuracy against scope as a picture.

    Args:
        name: Name of the picture's file.
        results: The result of one classifier, or of several to compare, the first of them dashed.
        paper: As for :func:`table`.
    """

    def draw() -> bytes:
        figure, axes = plots.axes(7.2, 3.9)
        scopes = results[0]["scopes"]
        if paper:
            axes.plot(scopes, paper["without"], color=plots.PAPER, ls=":", label=f"paper: {paper['classifier']}, bare")
        for result, dash in zip(results, ("--", "-") if len(results) > 1 else ("-",), strict=True):
            spread = [value or 0.0 for value in result["without_spread"]]
            bare = f"{result['classifier']}, bare"
            axes.errorbar(scopes, result["without"], yerr=spread, fmt=f"o{dash}", color=plots.BARE, label=bare, ms=5)
            markers = (f"s{dash}",) if len(results) > 1 else ("o-", "s--", "^:")
            for (restorer, entry), marker in zip(result["restored"].items(), markers, strict=False):
                label = f"{result['classifier']}, with unshift ({restorer})"
                axes.plot(scopes, entry["accuracy"], marker, color=plots.RESTORED, label=label, ms=4)
            about = result["training"]  # a window on a margin moves what it shows, up to the margin
            trained = dict(about.get("preparation", ())).get("pad", 0) if about.get("window") else about.get("scope")
            axes.axvspan(0, trained or 0, color=plots.PAPER, alpha=0.15, lw=0)
        lowest = min(value for result in [*results, paper or results[0]] for value in result["without"])
        axes.set_ylim(0 if lowest < 50 else 10 * (lowest // 10) - 5, 103)
        axes.set_xlabel("largest random circular shift (pixels)")
        axes.set_ylabel("accuracy (%)")
        axes.legend(frameon=False, loc="lower left", fontsize=8.5)
        draws = len(results[0]["seeds"])
        title = f"{results[0]['data']}, n = {results[0]['bare_images']:,}"
        axes.set_title(title + (f", {draws} draws of the shifts" if draws > 1 else ""), fontsize=10, loc="left")
        return plots.png(figure)

    return Picture(name, f"Accuracy against the size of the shift, {results[0]['data']}", draw)
