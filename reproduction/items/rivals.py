"""The alternatives, on the same images under the same shifts.

Claim: Among methods that leave the classifier as it is, a restorer keeps most of its accuracy at any shift. The table
    marks where another method is better.
Paper: no comparison.
Cost: 1 min on MNIST; 3 min on CIFAR-10, most of it ResNet-18. ``python -m reproduction fetch rivals`` trains the rivals
    that need it, once, in 50 min.

A frozen LeNet-5 on digits, shifted or rotated, a frozen ResNet-18 that others trained on photos with and without a
margin, and ResNet-20 trained several times by one recipe. A new row is one function here and its name in ROWS, or
anywhere else with ``--method module:function``.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.nn import functional as F

import unshift
from reproduction import classifiers, plots
from reproduction.classifiers import Frozen, Recipe, frozen
from reproduction.images import images_of, labelled
from reproduction.records import Options, Result, percent
from reproduction.spatial_transformer import SpatialTransformer
from reproduction.tables import Block, Picture, Row, Style, Table
from reproduction.translation import FACTS, Memo, training_note
from unshift import apply, undo
from unshift.coordinates import draw_shifts, rotate
from unshift.data import DataError, dataset, prepare, root, to_float
from unshift.files import write_atomically
from unshift.progress import tracked

SHIFTS: dict[str, int | None] = {"unshifted": 0, "up to 1": 1, "up to 4": 4, "up to 8": 8, "any shift": None}
ANGLES: dict[str, float] = {"upright": 0, "up to 15°": 15, "up to 45°": 45, "up to 90°": 90, "any angle": 180}
"""The moves of each column: the largest shift in pixels, or the largest angle in degrees."""
SEED = 0
TURNS = 36
"""Rotations that methods of many passes try."""
Views = Callable[[Tensor], Iterator[Tensor]]
"""From a batch of images to what the classifier sees of it, one batch for each view."""


@dataclass(frozen=True)
class Setting:
    """A classifier, its images, and the restorer before it."""

    title: str
    data: str
    classifier: str
    restorer: str
    count: int
    many: int
    """Number of images for methods of more than nine passes."""
    rotated: bool = False
    """Whether images are rotated instead of shifted."""


RESNET18, RESNET20 = "resnet18-cifar10-autoattack", "resnet20-cifar10"
_PADDED, _PHOTOS = "CIFAR-10 test, padded to 40x40", "CIFAR-10 test, 32x32"
SETTINGS = {
    "mnist": Setting("MNIST test, 32x32", "mnist", "lenet5-mnist", "mnist", 10_000, 1000),
    "mnist-rotated": Setting(
        "MNIST test, rotated at 28x28, then enlarged to 224x224",
        "mnist",
        "lenet5-mnist",
        "mnist-rotation",
        1000,
        1000,
        True,
    ),
    "cifar10-padded": Setting(_PADDED, "cifar10", RESNET18, "cifar10", 2000, 50),
    "cifar10-plain": Setting(_PHOTOS, "cifar10", RESNET18, "cifar10-seam", 2000, 50),
    "cifar10-trained": Setting(_PHOTOS, "cifar10", f"{RESNET20}-plain", "cifar10-seam", 10_000, 100),
}


class Contest:
    """The images of a setting, and what methods need to know of it."""

    def __init__(self, case: str, options: Options) -> None:
        self.case, self.options, self.setting = case, options, SETTINGS[case]
        self.restorer: Any = unshift.load(self.setting.restorer)
        self.preparation = self.restorer.trained_on["preparation"]
        count = 4 if options.quick and self.setting.rotated else self.setting.count
        self.images, self.labels = labelled(self.setting.data, options, self.preparation, count)
        self.frozen: Frozen = frozen(self.setting.classifier, options)
        self.plain = classifiers.resized(self.frozen.model) if self.setting.rotated else self.frozen.model
        self.model = Memo(self.plain)

    @cached_property
    def known(self) -> Tensor:
        """10,000 training images; 200 if they are large."""
        count = (8 if self.options.quick else 200) if self.setting.rotated else 10_000
        return to_float(prepare(images_of(self.setting.data, self.options, "train").images[:count], self.preparation))

    def moved(self) -> dict[str, Tensor]:
        """Return the images of each column, each moved by its own random shift or angle."""
        n, size = len(self.images), (self.images.shape[2], self.images.shape[3])
        if not self.setting.rotated:
            draws = {at: torch.Generator().manual_seed(SEED) for at in SHIFTS}
            return {at: apply(self.images, draw_shifts(size, n, SHIFTS[at], draws[at])) for at in SHIFTS}
        share = 2 * torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED)) - 1
        digits, _ = labelled(self.setting.data, self.options, {}, n)
        return {at: prepare(rotate(digits, most * share), self.preparation) for at, most in ANGLES.items()}


def _as_it_is(images: Tensor) -> Iterator[Tensor]:
    yield images


def mean(logits: Tensor) -> Tensor:
    """Return the mean probabilities of all views. Logits are ``(views, batch, classes)``."""
    return logits.softmax(2).mean(0)


def most_confident(logits: Tensor) -> Tensor:
    """Return the probabilities of the view with the most probable class."""
    probabilities = logits.softmax(2)
    return probabilities[probabilities.amax(2).argmax(0), torch.arange(logits.shape[1])]


def least_energy(logits: Tensor) -> Tensor:
    """Return the probabilities of the view with the least energy, the negative log-sum-exp of the logits."""
    return logits.softmax(2)[logits.logsumexp(2).argmax(0), torch.arange(logits.shape[1])]


@dataclass(frozen=True)
class Rival:
    """A method: it shows views of each image to a classifier, and combines the logits to probabilities."""

    name: str
    model: Callable[[Tensor], Tensor]
    views: Views = _as_it_is
    combine: Callable[[Tensor], Tensor] = mean
    passes: int = 1
    parameters: int = 0
    """Parameters that it adds to the classifier."""
    labels: bool = False
    """True if it learns from labels."""
    retrained: bool = False
    """True if the classifier itself is trained."""
    training: dict[str, Any] = field(default_factory=dict)
    count: int | None = None
    """Number of images to measure on, if all would take too long."""
    style: Style = "plain"

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Return the probabilities of a batch."""
        return self.combine(torch.stack([self.model(view) for view in self.views(images)]))


# --- The methods: from a contest to a rival -------------------------------------------------------------------------


def nothing(contest: Contest) -> Rival:
    """The bare classifier."""
    return Rival("nothing", contest.model, style="bare")


def restored(contest: Contest) -> Rival:
    """Our restorer before the classifier."""
    restorer, name = contest.restorer, contest.setting.restorer
    weights = restorer.scorer.state_dict().items()
    parameters = sum(tensor.numel() for key, tensor in weights if key.endswith(("weight", "bias")))
    views: Views = lambda x: iter([restorer(x)])  # noqa: E731
    return Rival(f"unshift ({name})", contest.model, views, parameters=parameters, style="restored")


def _large(contest: Contest, name: str, views: Views, passes: int, combine: Any = mean) -> Rival:
    """A method of many passes: on fewer images, and without a memo that would hold all views."""
    count = 4 if contest.options.quick else contest.setting.many
    return Rival(f"{name}, {passes:,} passes", contest.plain, views, combine, passes, count=count)


def augmented(contest: Contest, reach: int) -> Rival:
    """Test-time augmentation: the mean over all shifts of up to ``reach`` pixels along both axes."""
    passes, views = (2 * reach + 1) ** 2, shifted_copies(reach)
    if passes > 9:
        return _large(contest, "test-time augmentation", views, passes)
    count = None if contest.case == "mnist" else 500
    return Rival(f"test-time augmentation, {passes} passes", contest.frozen.model, views, passes=passes, count=count)


def shifted_copies(reach: int) -> Views:
    """Return all shifts of up to ``reach`` pixels along both axes."""

    def views(images: Tensor) -> Iterator[Tensor]:
        for shift in itertools.product(range(-reach, reach + 1), repeat=2):
            yield torch.roll(images, shift, (2, 3))

    return views


def searched(contest: Contest, name: str, combine: Callable[[Tensor], Tensor], step: int = 1) -> Rival:
    """All poses of an image: the mean of the group, or the pose that makes the frozen classifier most certain.

    The latter is the objective of inverse transformation search, here without its heuristics: every shift in steps of
    ``step`` pixels, or each of 36 rotations, is tried.
    """
    if contest.setting.rotated:
        return _large(contest, name, rotated_copies, TURNS, combine)
    size = contest.images.shape[2:]
    step = 8 if contest.options.quick else step

    def views(images: Tensor) -> Iterator[Tensor]:
        for shift in itertools.product(*(range(0, n, step) for n in size)):
            yield torch.roll(images, shift, (2, 3))

    return _large(contest, name, views, math.prod(math.ceil(n / step) for n in size), combine)


def rotated_copies(images: Tensor) -> Iterator[Tensor]:
    """Return 36 rotations, sampled at the 32x32 pixels that the classifier sees only."""
    for turn in range(TURNS):
        c, s = math.cos(2 * math.pi * turn / TURNS), math.sin(2 * math.pi * turn / TURNS)
        grid = F.affine_grid(torch.tensor([[[c, -s, 0.0], [s, c, 0.0]]]), [1, 1, 32, 32], align_corners=False)
        yield F.grid_sample(images, grid.expand(len(images), -1, -1, -1), align_corners=False)


def oriented(contest: Contest, name: str, angle: Callable[[Tensor], Tensor]) -> Rival:
    """Rotate an image by an angle that follows from its grey values, to the circular mean of upright images."""
    directions = torch.deg2rad(angle(contest.known))
    wanted = torch.rad2deg(torch.atan2(directions.sin().mean(), directions.cos().mean()))
    return Rival(name, contest.model, lambda images: iter([rotate(images, wanted - angle(images))]))


def principal_axis(images: Tensor) -> Tensor:
    """Return the direction of each image's longest axis, in degrees counter-clockwise from the right, ``(batch,)``.

    The second moments of the grey values give the axis; the sign of the third moment gives its direction.
    """
    grey = images.double().mean(1)
    size = grey.shape[-1]
    along = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    mass = grey.sum((1, 2)).clamp(min=1e-12)
    right = along[None, None, :] - ((grey * along).sum((1, 2)) / mass)[:, None, None]
    up = -along[None, :, None] - ((grey * -along[:, None]).sum((1, 2)) / mass)[:, None, None]
    across, tall, mixed = ((grey * moment).sum((1, 2)) for moment in (right * right, up * up, right * up))
    angle = 0.5 * torch.atan2(2 * mixed, across - tall)
    reach = right * angle.cos()[:, None, None] + up * angle.sin()[:, None, None]
    reverse = torch.where((grey * reach**3).sum((1, 2)) < 0, math.pi, 0.0)
    return torch.rad2deg(angle + reverse)


def intensity_direction(images: Tensor) -> Tensor:
    """Return the direction in which an image is brightest, in degrees: the first angular harmonic of its grey values.

    Grey values are weighted by the square of their distance from the middle.
    """
    grey, n = images.double().mean(1), images.shape[-1]
    along = torch.arange(n, dtype=torch.float64) - (n - 1) / 2
    weight = grey * (along**2 + along[:, None] ** 2).sqrt()
    return torch.rad2deg(torch.atan2((weight * -along[:, None]).sum((1, 2)), (weight * along).sum((1, 2))))


def centre_of_mass(contest: Contest) -> Rival:
    """Shift the circular centre of mass to that of the mean training image."""
    return Rival("centre of mass", contest.model, centred(contest.known.mean(0)))


def centred(mean: Tensor) -> Views:
    """Return images shifted by whole pixels so that their centre of mass is that of ``mean``."""

    def centre(images: Tensor) -> Tensor:
        mass = images.double().sum(1)
        return torch.stack([-torch.fft.fft(mass.sum(3 - axis))[:, 1].angle() for axis in (1, 2)], 1)

    def views(images: Tensor) -> Iterator[Tensor]:
        size = torch.tensor(images.shape[2:])
        yield undo(images, ((centre(images) - centre(mean[None])) * size / (2 * torch.pi)).round().long())

    return views


def correlation(contest: Contest, rule: Literal["phase", "cross"]) -> Rival:
    """Shift to the highest correlation with the mean training image."""
    return Rival(
        f"{rule}{'-' if rule == 'cross' else ' '}correlation, mean image",
        contest.model,
        correlated(contest.known.mean(0), rule),
    )


def correlated(mean: Tensor, rule: Literal["phase", "cross"]) -> Views:
    """Return images shifted to the highest cross-correlation, or phase correlation, with ``mean``."""
    wanted = torch.fft.rfft2(mean.double())

    def views(images: Tensor) -> Iterator[Tensor]:
        product = (torch.fft.rfft2(images.double()) * wanted.conj()).sum(1)
        if rule == "phase":
            product = product / product.abs().clamp_min(1e-12)
        size = images.shape[2:]
        best = torch.fft.irfft2(product, s=tuple(size)).flatten(1).argmax(1)
        yield undo(images, torch.stack([best // size[1], best % size[1]], 1))

    return views


_DIGITS = Recipe("spatial transformer", "mnist", (("resize", [32, 32]),), epochs=4, scope=None)
_PHOTO = replace(_DIGITS, data="cifar10", preparation=(), batch_size=64, learning_rate=0.001)
_MARGIN = replace(_PHOTO, preparation=(("pad", 4),))
TRANSFORMERS = {
    "mnist": ("lenet5-mnist", _DIGITS),
    # Trained before a small network, and put before a large one, through which a step takes ten times as long.
    **{f"cifar10-padded-class-{n}": (f"{RESNET20}-plain", replace(_MARGIN, epochs=n)) for n in (1, 2, 4)},
    **{f"cifar10-padded-shift-{n}": ("", replace(_MARGIN, epochs=n, scope=0)) for n in (1, 4, 16)},
    "cifar10-plain-shift-16": ("", replace(_PHOTO, epochs=16, scope=0)),
}
"""For each transformer, the frozen classifier whose loss it learns from, and the recipe.

Without a classifier it learns from the shifts themselves, which the training then applies: the loss is 1 - cos of the
error, a whole turn being the size of the image.
"""


def transformed(contest: Contest, name: str) -> Rival:
    """A spatial transformer for images at any shift, trained through a frozen classifier or on the shifts."""
    through, recipe = TRANSFORMERS[name]
    transformer, path = new_transformer(name), transformer_path(name)
    if not contest.options.quick:
        if not path.exists():
            raise DataError(f"{path} is missing; `python -m reproduction fetch transformer-{name}` trains it")
        transformer.load_state_dict(load_file(path))
    return Rival(
        f"spatial transformer, loss of the {'class' if through else 'shift'}, {recipe.epochs:g} epochs",
        nn.Sequential(transformer.eval(), contest.frozen.model),
        parameters=sum(p.numel() for p in transformer.parameters()),
        labels=bool(through),
        training={} if contest.options.quick else {**asdict(recipe), "through": through},
        count=None if contest.case == "mnist" else 500,
    )


def transformer_path(name: str) -> Any:
    """Return where a trained spatial transformer is kept."""
    return root() / "rivals" / f"transformer-{name}.safetensors"


def new_transformer(name: str) -> SpatialTransformer:
    """Return an untrained spatial transformer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SpatialTransformer(*((1, 32) if name == "mnist" else (3, 40 if "padded" in name else 32)))


def make_transformer(name: str, *, progress: bool = True) -> None:
    """Train a spatial transformer on all training images, and save it."""
    through, recipe = TRANSFORMERS[name]
    transformer, path = new_transformer(name).train(), transformer_path(name)
    train_set = dataset(recipe.data, "train")
    assert train_set.labels is not None
    loss_of = _loss_of_class(through) if through else _loss_of_shift(torch.Generator().manual_seed(0))
    images = prepare(train_set.images, dict(recipe.preparation))
    classifiers.train(transformer, images, train_set.labels, recipe, loss_of=loss_of, progress=progress)
    write_atomically(path, to_bytes({key: tensor.contiguous() for key, tensor in transformer.state_dict().items()}))


def _loss_of_class(through: str) -> Any:
    model: Any = classifiers.load(through).requires_grad_(False)
    model = model.to(memory_format=torch.channels_last)
    return lambda network, images, labels: F.cross_entropy(model(network(images)), labels)


def _loss_of_shift(generator: torch.Generator) -> Any:
    def loss_of(network: Any, images: Tensor, labels: Tensor) -> Tensor:
        shift = draw_shifts(tuple(images.shape[2:]), len(images), None, generator)
        wanted = shift * (2 * torch.pi / images.shape[-1])
        return (1 - (network.angles(apply(images, shift)) - wanted).cos()).mean()

    return loss_of


def retrained(contest: Contest, name: str, classifier: str) -> Rival:
    """A classifier that was trained to be robust to shifts."""
    other = frozen(classifier, contest.options)
    about = {key: value for key, value in other.about.items() if key in FACTS}
    return Rival(name, Memo(other.model), labels=True, retrained=True, training=about)


_AUGMENTED = [partial(augmented, reach=1), partial(augmented, reach=4)]
_SEARCHED = [
    partial(searched, name="mean over all poses", combine=mean),
    partial(searched, name="most confident pose", combine=most_confident),
    partial(searched, name="pose of least energy", combine=least_energy),
]
_PLACED = [centre_of_mass, partial(correlation, rule="phase"), partial(correlation, rule="cross")]
_FEW = partial(searched, name="most confident of every fourth shift", combine=most_confident, step=4)
_TRANSFORMED = {
    case: [partial(transformed, name=name) for name in TRANSFORMERS if name.startswith(case)] for case in SETTINGS
}
ROWS: dict[str, list[Callable[[Contest], Rival]]] = {
    "mnist": [
        *(nothing, restored, *_AUGMENTED, *_SEARCHED, *_PLACED, *_TRANSFORMED["mnist"]),
        partial(retrained, name="trained with any shift", classifier="lenet5-mnist-shifts"),
    ],
    "mnist-rotated": [
        *(nothing, restored, *_SEARCHED),
        partial(oriented, name="principal axis", angle=principal_axis),
        partial(oriented, name="direction of intensity", angle=intensity_direction),
    ],
    "cifar10-padded": [nothing, restored, *_AUGMENTED, _FEW, *_PLACED, *_TRANSFORMED["cifar10-padded"]],
    "cifar10-plain": [nothing, restored, *_AUGMENTED, _FEW, *_PLACED, *_TRANSFORMED["cifar10-plain"]],
    "cifar10-trained": [
        nothing,
        restored,
        partial(retrained, name="trained with any shift", classifier=f"{RESNET20}-shifts"),
        partial(retrained, name="adaptive polyphase sampling", classifier=f"{RESNET20}-polyphase"),
        partial(retrained, name="anti-aliasing (BlurPool)", classifier=f"{RESNET20}-blurred"),
    ],
}
"""The rows of each table, in order."""
_TRAINED = {
    "mnist": ["lenet5-mnist-shifts"],
    "cifar10-trained": [f"{RESNET20}-{kind}" for kind in ("shifts", "polyphase", "blurred")],
}
CASES = {
    case: (
        *(setting.data, setting.classifier, *_TRAINED.get(case, [])),
        *(f"transformer-{name}" for name in TRANSFORMERS if name.startswith(case)),
    )
    for case, setting in SETTINGS.items()
}


# --- Measurement ----------------------------------------------------------------------------------------------------


def measure(case: str, options: Options) -> Result:
    """Return the accuracies of each method at all scopes, in percent, and its cost."""
    contest = Contest(case, options)
    moved = contest.moved()
    return {
        "data": contest.setting.title,
        "images": len(contest.images),
        "seed": SEED,
        "classifier": contest.frozen.title,
        "training": {key: value for key, value in contest.frozen.about.items() if key in FACTS},
        "columns": list(moved),
        "rivals": [
            _entry(make(contest), list(moved.values()), contest)
            for make in (*ROWS[case], *map(_named, options.methods))
        ],
    }


def _named(method: str) -> Callable[[Contest], Rival]:
    """Return the function that ``--method module:function`` names."""
    module, _, function = method.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        made: Callable[[Contest], Rival] = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--method needs module:function, such as mine:mirrored, got {method!r} ({error})") from error
    return made


def _entry(rival: Rival, shifted: list[Tensor], contest: Contest) -> Result:
    count = min(rival.count or len(contest.images), len(contest.images))
    probabilities = []
    for images in tracked(shifted, rival.name, "scopes", contest.options.progress):
        probabilities.append(torch.cat([rival(batch) for batch in images[:count].split(100)]))
    verdicts = torch.stack([each.argmax(1) for each in probabilities])
    bits = torch.stack([(each == probabilities[0]).all(1) for each in probabilities])
    facts = ("name", "style", "passes", "parameters", "labels", "retrained", "training")
    return {
        **{key: getattr(rival, key) for key in facts},
        "images": count,
        "accuracy": [percent(each == contest.labels[:count]) for each in verdicts],
        "consistent": percent((verdicts == verdicts[0]).all(0)),
        "same_bits": percent(bits.all(0)),
        "milliseconds": _milliseconds(rival, contest.images),
    }


@torch.no_grad()
def _milliseconds(rival: Rival, images: Tensor, repeats: int = 5) -> float:
    """Return the least time for an image of a batch of 50: its views, and the passes through the classifier."""
    batch = images[:50]
    model: Any = rival.model.model if isinstance(rival.model, Memo) else rival.model
    least = []
    for task in (lambda: list(rival.views(batch)), lambda: model(batch.contiguous(memory_format=torch.channels_last))):
        times = []
        for _ in range(repeats):
            begun = time.perf_counter()
            task()
            times.append(time.perf_counter() - begun)
        least.append(min(times))
    return 1000 * (least[0] + rival.passes * least[1]) / len(batch)


# --- Tables ---------------------------------------------------------------------------------------------------------


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table, and accuracy against time."""
    result = results[case]
    entries = result["rivals"]
    names = result["columns"]
    columns = [*names, "consistent", "same bits", "ms/image", "passes", "parameters added", "labels", "retrained"]
    rated = [_rated(entry) for entry in entries]
    whole = [entry for entry in entries if entry["images"] == result["images"]]
    best = [max(column) for column in zip(*(_rated(entry) for entry in whole), strict=True)]
    rows = []
    for entry, values in zip(entries, rated, strict=True):
        few = "" if entry in whole else f" (n = {entry['images']:,})"
        forms = ["{:.2f}*" if value == top and not few else "{:.2f}" for value, top in zip(values, best, strict=True)]
        flags = ["yes" if entry[key] else "no" for key in ("labels", "retrained")]
        cells = [*entry["accuracy"], entry["consistent"], entry["same_bits"], entry["milliseconds"]]
        cells += [f"{entry['passes']}", f"{entry['parameters']:,}", *flags]
        rows.append(Row(entry["name"] + few, cells, entry["style"], [*forms, *["{}"] * 4]))
    how = (
        "rotated by its own random angle"
        if "rotated" in result["data"]
        else "shifted circularly by its own random shift"
    )
    notes = [
        f"{result['classifier']}: accuracy in %, {result['data']}, n = {result['images']:,}, the same images for all, "
        f"each {how}, seed {result['seed']}. *: best of its column, without rows "
        "of fewer images. Consistent: images with the same prediction in all five columns; same bits: with the same "
        "probabilities, bit for bit. Parameters: added to the classifier.",
        _better(whole, names),
        training_note(result),
        *(_training(entry) for entry in entries if entry.get("training")),
    ]
    alt = f"Accuracy at {names[-1]} against the time per image, {result['data']}"
    picture = Picture(f"rivals-{case}", alt, lambda: _draw(result))
    return [Table("", columns, rows, [note for note in notes if note]), picture]


def _training(entry: dict[str, Any]) -> str:
    about, name = entry["training"], str(entry["name"])
    if "through" not in about:
        return training_note(entry, name[0].upper() + name[1:])
    loss = f"the loss of a frozen `{about['through']}`" if about["through"] else "the loss of the shift"
    return (
        f"{name[0].upper()}{name[1:]}: on all training images of {about['data']} at any shift, by {loss}, "
        f"seed {about['seed']}."
    )


def _rated(entry: dict[str, Any]) -> list[float]:
    """Return the numbers that are compared; more is better."""
    return [*entry["accuracy"], entry["consistent"], entry["same_bits"], -entry["milliseconds"]]


def _better(entries: list[dict[str, Any]], columns: list[str]) -> str:
    """Return which methods are better than unshift, and in which columns."""
    ours = next(entry for entry in entries if entry["style"] == "restored")
    names = [*columns, "consistent", "same bits", "time"]
    won = []
    for entry in entries:
        better = zip(names, _rated(entry), _rated(ours), strict=True)
        if columns := [name for name, theirs, our in better if theirs > our]:
            won.append(f"{'no restorer' if entry['style'] == 'bare' else entry['name']} ({', '.join(columns)})")
    return f"Better than {ours['name']}: {'; '.join(won) or 'none'}."


def _draw(result: Result) -> bytes:
    figure, axes = plots.axes(7.2, 4.2)
    colours = {"bare": plots.BARE, "restored": plots.RESTORED}
    for entry in result["rivals"]:
        x, y, colour = entry["milliseconds"], entry["accuracy"][-1], colours.get(entry["style"], "#6b7280")
        axes.plot(x, y, "o", color=colour, ms=8 if entry["style"] == "restored" else 6)
        far = entry["passes"] > 9  # near the right edge: put the name on the left
        place: Any = {"xytext": (-7, -12), "ha": "right"} if far else {"xytext": (6, 4)}
        axes.annotate(entry["name"], (x, y), **place, textcoords="offset points", fontsize=8, color=colour)
    axes.set_xscale("log")
    axes.margins(x=0.25, y=0.12)
    axes.set_xlabel("ms per image, classifier included")
    axes.set_ylabel("accuracy under any move (%)")
    axes.set_title(f"{result['classifier']}, {result['data']}, n = {result['images']:,}", fontsize=10, loc="left")
    return plots.png(figure)
