"""Write the page as a folder of static files, for any file server: the page, runtime, models, samples, and a
manifest.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import json
import logging
import math
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import unshift
from unshift import classifiers
from unshift.coordinates import Pose
from unshift.data import DataError, dataset, prepare, root, to_float
from unshift.data.catalogue import DATASETS
from unshift.data.sequences import MEANING, encode, oriented
from unshift.demo.runtime import VERSION
from unshift.exact import Curve
from unshift.files import pretrained, write_atomically
from unshift.pose_network import strided_correlation
from unshift.shifts import apply

PAGE, SAMPLES = (Path(__file__).with_name(name) for name in ("page", "samples"))
PER_CLASS = 5
GENOMES, PAGES = "mitogenome", "pages"
START = (-5, 9)  # the shift that the page opens with: 5 up, 9 right
WAVES = [[wave(math.radians(degrees)) for degrees in range(46)] for wave in (math.cos, math.sin)]
"""cos and sin of 0 to 45 degrees. Browsers may differ in the last bit, so the page takes Python's values."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Choice:
    """A dataset on the page, with its restorers and its classifier."""

    name: str
    title: str
    noun: str
    restorer: str
    classifier: str
    rotation: str | None = None  # restorer of rotations, for images of its own size
    pose: str | None = None  # restorer of shifts and rotations together, for the images of `restorer`
    scene: str | None = None  # restorer of scenes, which cuts out the images of `restorer`
    drawn: bool = False  # whether visitors can draw an image


CHOICES = (
    Choice(
        "mnist", "Digits", "digit", "mnist", "lenet5-mnist", "mnist-rotation", "mnist-pose", "mnist-scene", drawn=True
    ),
    Choice("fashion-mnist", "Clothes", "garment", "fashion-mnist", "lenet5-fashion-mnist"),
    Choice("cifar10", "Photos", "photo", "cifar10-seam", "resnet20-cifar10-plain"),
)
"""The datasets of the page. Those whose images are missing are left out."""


def samples(choice: Choice) -> Tensor | None:
    """Return the first five test images of each class, ``uint8`` ``(n, c, h, w)``; None without the data set.

    Image ``i`` is of class ``i`` modulo the number of classes. The package holds those of Fashion-MNIST with one class
    per column (MIT; see ``LICENSE-FASHION-MNIST``). CIFAR-10 has no stated licence: it is read from the data folder.
    """
    path = SAMPLES / f"{choice.name}.png"
    if path.is_file():
        pixels = torch.from_numpy(np.array(Image.open(path)))
        rows: Tensor = pixels.unflatten(0, (PER_CLASS, -1)).unflatten(2, (10, -1))  # row, y, column, x
        return rows.movedim(2, 1).flatten(0, 1)[:, None].contiguous()
    try:
        test_set = dataset(choice.name, "test", download=False)
    except DataError:
        return None
    assert test_set.labels is not None
    firsts = [(test_set.labels == label).nonzero().flatten()[:PER_CLASS] for label in range(len(test_set.classes))]
    chosen: Tensor = test_set.images[torch.stack(firsts, 1).flatten()]
    return chosen


def write(
    folder: Path,
    runtime: Mapping[str, Path],
    progress: Progress = lambda _: None,
    choices: Sequence[Choice] | None = None,
    others: bool = True,
) -> None:
    """Write the page to ``folder``, which may hold an older one.

    ``progress`` is called with a line before each long step; ``choices`` are the datasets, by default all whose images
    are present; with ``others``, the page has the tabs of genomes and pages.
    """
    for name in ("runtime", "models", "samples"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for path in PAGE.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    # Renamed to .js and .wasm: not every server knows the type of .mjs.
    for name, source in runtime.items():
        shutil.copyfile(source, folder / "runtime" / ("ort.wasm" if name.endswith(".wasm") else "ort.js"))
    if choices is None:
        choices = [choice for choice in CHOICES if samples(choice) is not None]
        for choice in CHOICES:
            if choice not in choices:
                progress(f"no {choice.title.lower()} on the page: `unshift data get {choice.name}` downloads them")
    manifest = {
        "unshift": unshift.__version__,
        "runtime": VERSION,
        "start": list(START),
        "waves": WAVES,
        "entries": [_entry(choice, folder, progress) for choice in choices],
        "genomes": _genomes(folder, progress) if others else None,
        "pages": _pages(folder, progress) if others and PAGES in pretrained() else None,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _entry(choice: Choice, folder: Path, progress: Progress) -> dict[str, Any]:
    """Write the models and samples of a dataset; return its entry in the manifest."""

    def export_restorer(name: str, size: Sequence[int] | None = None) -> str:
        return write_cached(folder, name, partial(unshift.export, name, scores=True, size=size), progress)

    def export_classifier(name: str, module: nn.Module, example: Tensor) -> str:
        batch = {0: torch.export.Dim("batch")}
        return write_cached(folder, name, lambda path: export_module(module, example, path, batch), progress)

    def write_floats(place: str, images: Tensor) -> None:
        (folder / place).write_bytes(images.contiguous().numpy().astype("<f4").tobytes())

    images, classifier, restorer = samples(choice), classifiers.load(choice.classifier), unshift.load(choice.restorer)
    assert images is not None
    preparation = restorer.trained_on.get("preparation", {})
    prepared = to_float(prepare(images, preparation))
    about = DATASETS[choice.name]
    labels = [i % len(about.classes) for i in range(len(prepared))]
    size = list(prepared.shape[2:])
    models: dict[str, Any] = {
        "classifier": export_classifier(choice.classifier, classifier, prepared[:2]),
        "restorer": export_restorer(choice.restorer),
    }
    write_floats(f"samples/{choice.name}.bin", prepared)
    entry: dict[str, Any] = {
        "name": choice.name,
        "title": choice.title,
        "noun": choice.noun,
        "drawn": choice.drawn,
        "licence": about.licence,
        "classes": list(about.classes),
        "channels": prepared.shape[1],
        "size": size,
        "labels": labels,
        "samples": f"samples/{choice.name}.bin",
        "classifier": choice.classifier,
        "models": models,
        "first": _first_sample(restorer, classifier, prepared, labels),
    }
    if choice.rotation:
        large = unshift.load(choice.rotation).trained_on["preparation"]["resize"]
        small = nn.Sequential(nn.Upsample(tuple(size), mode="bilinear"), classifier)
        write_floats(f"samples/{choice.name}-native.bin", to_float(images))
        entry["rotation"] = {
            "size": large,
            "native": list(images.shape[2:]),
            "samples": f"samples/{choice.name}-native.bin",
            "models": {
                "classifier": export_classifier(f"{choice.classifier}-{large[0]}", small, torch.zeros(2, 1, *large)),
                "restorer": export_restorer(choice.rotation),
            },
        }
    if choice.pose:
        poser = unshift.load(choice.pose)
        assert poser.trained_on.get("preparation", {}) == preparation
        centre = poser.stages[0].coordinates
        origin = int(centre.candidate(Pose(torch.zeros(1, 2, dtype=torch.int64)), tuple(size)))
        entry["pose"] = {
            "origin": list(divmod(origin, size[1])),  # the position that stands for no shift
            "models": {**models, "restorer": export_restorer(choice.pose)},
        }
    if choice.scene:
        assert unshift.load(choice.scene).coordinates.describe()["window"] == size
        scene = [2 * n for n in size]
        entry["scene"] = {
            "size": scene,
            "window": size,
            "start": [n // 4 for n in size],
            "models": {**models, "restorer": export_restorer(choice.scene, scene)},
        }
    return entry


def _genomes(folder: Path, progress: Progress) -> dict[str, Any]:
    """Write the model and the sample of the genomes tab; return their entry in the manifest.

    The page itself breaks ties as :mod:`unshift.exact.choice` does, and rotates the text. The sample holds two fish
    of genera that ``mitogenome`` was not trained on, turned, the first on the other strand.
    """
    stage = unshift.load(GENOMES).stages[0]
    windows = Windows(stage.scorer)
    place = "samples/mitogenomes.fa"
    (folder / place).write_bytes(gzip.decompress((SAMPLES / "mitogenomes.fa.gz").read_bytes()))
    return {
        "model": write_cached(folder, f"{GENOMES}-windows", partial(export_windows, windows), progress),
        "sample": place,
        "taps": windows.taps,
        "margin": windows.margin,
        **_confidence(stage),
        "letters": {letter: encode(letter).flatten().tolist() for letter in MEANING},
        "complement": {letter: oriented(letter, 0, 1) for letter in MEANING},
    }


def _pages(folder: Path, progress: Progress) -> dict[str, Any]:
    """Write the model of the pages tab; return its entry in the manifest. The page itself turns and reduces images."""
    restorer: Any = unshift.load(PAGES)
    evidence = Evidence(restorer.scorer)
    return {
        "model": write_cached(folder, f"{PAGES}-evidence", partial(export_evidence, evidence), progress),
        "reach": restorer.scorer.least,
        "fraction": restorer.scorer.fraction,
        "longest": restorer.coordinates.longest,
        "least": restorer.min_confidence,
        **_confidence(restorer),
    }


def _confidence(stage: Any) -> dict[str, Any]:
    """Return the data from which the page computes a confidence."""
    knots = [[0, 0], *(stage.curve.describe() if stage.curve else []), [Curve.WHOLE, Curve.WHOLE]]
    return {"unit": stage.scorer.score_unit, "knots": [[x / Curve.WHOLE, y / Curve.WHOLE] for x, y in knots]}


def _first_sample(restorer: nn.Module, classifier: nn.Module, images: Tensor, labels: list[int]) -> int:
    """Return the sample to open with: misclassified at START, classified correctly once restored, restored exactly."""
    moved = apply(images, torch.tensor(START).expand(len(images), -1))
    with torch.no_grad():
        restored, truth = restorer(moved), torch.tensor(labels)
        good = (classifier(restored).argmax(1) == truth) & (classifier(moved).argmax(1) != truth)
        exact = (restored == images).flatten(1).all(1)
    # Prefer class 7 (a 7, a sneaker, a horse): these show a shift well.
    order = sorted(range(len(images)), key=lambda i: labels[i] != 7)
    return max(order, key=lambda i: int(good[i]) * 2 + int(exact[i]))


def export_module(
    module: nn.Module, example: Tensor, path: Path, dynamic: dict[int, Any], names: Sequence[str] = ("images", "logits")
) -> None:
    """Export a module that maps one tensor to one tensor; the axes in ``dynamic`` may have any length."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)  # the exporter's messages are for its developers
    settings: dict[str, Any] = {"dynamo": True, "external_data": False, "verbose": False}
    settings |= {"input_names": [names[0]], "output_names": [names[1]], "dynamic_shapes": (dynamic,)}
    try:
        with warnings.catch_warnings(action="ignore"):
            torch.onnx.export(module, (example,), path, **settings)
    finally:
        logger.setLevel(before)


def write_cached(folder: Path, name: str, export: Callable[[Path], object], progress: Callable[[str], None]) -> str:
    """Write a model to the page's folder, from the cache if it is there, and return its path relative to ``folder``.

    ``export`` writes the model to a path; ``progress`` is called with a line before that.
    """
    place = f"models/{name}.onnx"
    cached = root() / "demo" / f"{name}-{_fingerprint()}.onnx"
    if cached.is_file():
        (folder / place).write_bytes(cached.read_bytes())
        return place
    progress(f"exporting {name} (once, then cached)")
    with tempfile.TemporaryDirectory() as scratch:
        export(Path(scratch) / "model.onnx")
        content = (Path(scratch) / "model.onnx").read_bytes()
    (folder / place).write_bytes(content)
    # If the data folder is read-only, the model is exported again next time.
    with contextlib.suppress(OSError):
        for old in cached.parent.glob(f"{name}-{'[0-9a-f]' * 16}.onnx"):
            old.unlink()
        write_atomically(cached, content)
    return place


@functools.cache
def _fingerprint() -> str:
    """Return a hash of everything that an export may depend on: our sources, our weights, PyTorch's version."""
    package = Path(unshift.__file__).parent
    digest = hashlib.sha256(torch.__version__.encode())
    for pattern in ("*.py", "*.safetensors"):
        for path in sorted(package.rglob(pattern)):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class Windows(nn.Module):
    """Score windows ``(batch, 4, margin + length + margin)``: float32 ``(batch, length)`` that hold integers.

    Each window comes with a margin of its circle. The graph therefore needs no wrap-around and takes any length, and a
    genome is scored window by window in bounded memory.
    """

    def __init__(self, scorer: Any) -> None:
        super().__init__()
        self.scorer, widths = scorer, [layer.weight.shape[-1] for layer in scorer.local]
        assert all(width % 2 for width in widths)
        self.taps, self.margin = max(widths), sum(width // 2 for width in widths)

    def forward(self, windows: Tensor) -> Tensor:
        """Score the positions between the margins."""
        return last_sums(self.scorer, windows).squeeze(1)


class Evidence(nn.Module):
    """The evidence at each position of an image of any size: float32 ``(batch, positions)`` that hold integers."""

    def __init__(self, scorer: Any) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, images: Tensor) -> Tensor:
        """Return the sums of the last layer, of which the score is the mean."""
        return last_sums(self.scorer, images).flatten(1)


def last_sums(scorer: Any, images: Tensor) -> Tensor:
    """Return the sums of a scorer's last layer, without padding: integers in float32, because none reaches 2^24."""
    features = (images * scorer.pixel_scale).round().clamp(-scorer.largest, scorer.largest)
    for layer in scorer.local:
        assert layer.worst < 2**24
        weight, bias = layer.weight.to(torch.float32), layer.bias.to(torch.float32)
        sums = strided_correlation(features, weight, bias, layer.stride or 1)
        if layer.divisor is None:
            return sums
        if layer.activation == "abs":
            sums = sums.abs()
        least = -scorer.largest if layer.activation == "none" else 0
        # No sum reaches 2^24, so larger divisors give the same quotients.
        divisor = layer.divisor.clamp(max=2**24).to(torch.float32).view(-1, *[1] * scorer.axes)
        features = sums.div(divisor).floor().clamp(least, scorer.largest)
    raise AssertionError("the last layer has no divisor")


def export_windows(windows: Windows, path: Path) -> None:
    """Export the graph of both strands of a window of any length."""
    example = torch.zeros(2, 4, 2 * windows.margin + 100)
    length = torch.export.Dim("length", min=2 * windows.margin + 1)
    export_module(windows, example, path, {2: length}, ("windows", "scores"))


def export_evidence(evidence: Evidence, path: Path) -> None:
    """Export the graph of one image of any size that has a position."""
    least = evidence.scorer.least
    sides = {axis: torch.export.Dim(name, min=least) for axis, name in ((2, "height"), (3, "width"))}
    export_module(evidence, torch.zeros(1, 1, least + 100, least + 60), path, sides, ("images", "scores"))
