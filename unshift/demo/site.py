"""Write the page as a folder of static files, for any file server.

index.html, *.js, style.css      the page, copied from ``page/``
runtime/                         onnxruntime-web
models/*.onnx                    the restorers and the classifiers
samples/*.bin                    sample images, as float32 values
samples/*.fa                     sample genomes
manifest.json                    the datasets, their models and their samples
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift import classifiers
from unshift.coordinates import Pose
from unshift.data import prepare, to_float
from unshift.data.catalogue import DATASETS
from unshift.demo import genomes
from unshift.demo.models import export_module, put
from unshift.demo.runtime import VERSION
from unshift.demo.samples import CHOICES, Choice, samples
from unshift.shifts import apply

__all__ = ["write"]

PAGE = Path(__file__).with_name("page")
START = (-5, 9)
"""The shift that the page opens with: 5 up, 9 right."""
WAVES = [[wave(math.radians(degrees)) for degrees in range(46)] for wave in (math.cos, math.sin)]
"""cos and sin of 0 to 45 degrees. Browsers may differ in the last bit, so the page takes Python's values."""

Progress = Callable[[str], None]


def write(
    folder: Path,
    runtime: Mapping[str, Path],
    progress: Progress = lambda _: None,
    choices: Sequence[Choice] | None = None,
    sequences: bool = True,
) -> None:
    """Write the page.

    Args:
        folder: The folder to write to; it may hold an older page.
        runtime: The result of :func:`unshift.demo.runtime.runtime_files`.
        progress: Called with a line before each long step.
        choices: The datasets of the page. Default: all whose images are present.
        sequences: Whether the page has the genomes tab.
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
        "genomes": genomes.put_genomes(folder, progress) if sequences else None,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _entry(choice: Choice, folder: Path, progress: Progress) -> dict[str, Any]:
    """Write the models and samples of a dataset; return its entry in the manifest."""

    def export_restorer(name: str, size: Sequence[int] | None = None) -> str:
        return put(folder, name, partial(unshift.export, name, scores=True, size=size), progress)

    def export_classifier(name: str, module: nn.Module, example: Tensor) -> str:
        batch = {0: torch.export.Dim("batch")}
        return put(folder, name, lambda path: export_module(module, example, path, batch), progress)

    def write_floats(place: str, images: Tensor) -> None:
        (folder / place).write_bytes(images.contiguous().numpy().astype("<f4").tobytes())

    images, classifier, restorer = samples(choice), classifiers.load(choice.classifier), unshift.load(choice.restorer)
    assert images is not None
    preparation = restorer.trained_on.get("preparation", {})
    prepared = to_float(prepare(images, preparation))
    dataset = DATASETS[choice.name]
    labels = [i % len(dataset.classes) for i in range(len(prepared))]
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
        "licence": dataset.licence,
        "classes": list(dataset.classes),
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
