"""Write the page as a folder of static files: any file server can host it, none of them needs to know Python.

index.html, *.js, style.css      the page, as it stands in ``page/``
runtime/                         onnxruntime-web
models/*.onnx                    restorers, and the classifiers, which the page runs behind them and alone
samples/*.bin, manifest.json     pictures, as the float32 values that Python computes, and what is what
samples/*.fa                     genomes
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift.coordinates import Pose
from unshift.data import prepare, to_float
from unshift.data.catalogue import DATASETS
from unshift.demo import genomes
from unshift.demo.models import put_classifier, put_restorer
from unshift.demo.runtime import VERSION
from unshift.demo.samples import CHOICES, Choice, samples
from unshift.experiments.classifiers import shipped
from unshift.shifts import apply
from unshift.weights import pretrained

__all__ = ["offered", "write"]

PAGE = Path(__file__).with_name("page")
START = (-5, 9)  # the shift that greets: 5 up, 9 right
WAVES = [[wave(math.radians(degrees)) for degrees in range(46)] for wave in (math.cos, math.sin)]
"""cos and sin of whole degrees as Python has them: browsers may differ in the last bit, and turn pixels by these."""


def offered() -> list[Choice]:
    """Return the choices that this installation can offer: classifier shipped, restorer shipped, pictures there."""
    classifiers, restorers = shipped(), pretrained()
    return [
        entry
        for entry in CHOICES
        if entry.classifier in classifiers and entry.restorer in restorers and samples(entry) is not None
    ]


def write(
    folder: Path,
    runtime: Mapping[str, Path],
    progress: Callable[[str], None] = lambda _: None,
    entries: Sequence[Choice] | None = None,
    sequences: bool = True,
) -> None:
    """Write the page.

    Args:
        folder: Where to. It may hold an older page.
        runtime: What :func:`unshift.demo.runtime.runtime_files` returns.
        progress: Called with a line for each step that takes long.
        entries: The choices on the page. Default: all that are offered.
        sequences: Whether the page has its tab of genomes.

    Raises:
        ValueError: If the packages that export models are not installed.
    """
    needs = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if needs:
        raise ValueError(f"the demo exports its models and needs {' and '.join(needs)}: pip install 'unshift[demo]'")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("runtime", "models", "samples"):
        (folder / name).mkdir(exist_ok=True)
    for path in PAGE.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    # As .js and .wasm, types that every server knows: .mjs is not one of them.
    for name, source in runtime.items():
        shutil.copyfile(source, folder / "runtime" / ("ort.wasm" if name.endswith(".wasm") else "ort.js"))
    if entries is None:
        entries = offered()
        for entry in CHOICES:
            if entry not in entries and samples(entry) is None:
                progress(f"no {entry.title.lower()} on the page: `unshift data get {entry.name}` downloads them")
    made = [_entry(entry, folder, progress) for entry in entries]
    manifest = {
        "unshift": unshift.__version__,
        "runtime": VERSION,
        "start": list(START),
        "waves": WAVES,
        "entries": made,
        "genomes": genomes.put_genomes(folder, progress) if sequences and genomes.RESTORER in pretrained() else None,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _entry(entry: Choice, folder: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    """Write one choice's pictures and models; return what the page must know of it."""
    pictures, classifier, restorer = samples(entry), shipped()[entry.classifier](), unshift.load(entry.restorer)
    assert pictures is not None
    ready = to_float(prepare(pictures, restorer.trained_on.get("preparation", {})))
    about = DATASETS[entry.name]
    labels = [i % len(about.classes) for i in range(len(ready))]
    size = list(ready.shape[2:])
    models: dict[str, Any] = {
        "classifier": put_classifier(folder, entry.classifier, classifier, ready[:2], progress),
        "restorer": put_restorer(folder, entry.restorer, progress),
    }
    _floats(folder / "samples" / f"{entry.name}.bin", ready)
    found: dict[str, Any] = {
        "name": entry.name,
        "title": entry.title,
        "noun": entry.noun,
        "drawn": entry.drawn,
        "light_on_dark": entry.light_on_dark,
        "about": about.summary(),
        "licence": about.licence,
        "classes": list(about.classes),
        "channels": ready.shape[1],
        "size": size,
        "labels": labels,
        "samples": f"samples/{entry.name}.bin",
        "restorer": entry.restorer,
        "classifier": entry.classifier,
        "models": models,
        "first": _telling(restorer, classifier, ready, labels),
    }
    if entry.rotation in pretrained():
        turner = unshift.load(entry.rotation)
        large = turner.trained_on["preparation"]["resize"]
        small = nn.Sequential(nn.Upsample(tuple(size), mode="bilinear"), classifier)
        _floats(folder / "samples" / f"{entry.name}-native.bin", to_float(pictures))
        found["rotation"] = {
            "size": large,
            "native": list(pictures.shape[2:]),
            "samples": f"samples/{entry.name}-native.bin",
            "restorer": entry.rotation,
            "models": {
                "classifier": put_classifier(
                    folder, f"{entry.classifier}-{large[0]}", small, torch.zeros(2, 1, *large), progress
                ),
                "restorer": put_restorer(folder, entry.rotation, progress),
            },
        }
    if entry.pose in pretrained():
        poser = unshift.load(entry.pose)
        assert poser.trained_on.get("preparation", {}) == restorer.trained_on.get("preparation", {})
        still = poser.stages[0].coordinates.candidate(Pose(torch.zeros(1, 2, dtype=torch.int64)), tuple(size))
        found["pose"] = {
            "restorer": entry.pose,
            "origin": list(divmod(int(still), size[1])),  # where in the map of scores no shift stands
            "models": {**models, "restorer": put_restorer(folder, entry.pose, progress)},
        }
    if entry.scene in pretrained():
        found["scene"] = _scene(entry.scene, folder, size, models, progress)
    return found


def _scene(
    name: str, folder: Path, window: list[int], models: dict[str, Any], progress: Callable[[str], None]
) -> dict[str, Any]:
    """Write the restorer that finds images of size ``window`` in scenes; return what the page must know of it."""
    assert unshift.load(name).coordinates.window == tuple(window)
    size = [2 * n for n in window]
    return {
        "restorer": name,
        "size": size,
        "window": window,
        "start": [n // 4 for n in window],
        "models": {**models, "restorer": put_restorer(folder, name, progress, size)},
    }


def _floats(path: Path, images: Tensor) -> None:
    path.write_bytes(images.contiguous().numpy().astype("<f4").tobytes())


def _telling(restorer: nn.Module, classifier: nn.Module, images: Tensor, labels: list[int]) -> int:
    """Return the picture to greet with: at START wrong alone, right once restored, and restored to the pixel."""
    moved = apply(images, torch.tensor(START).expand(len(images), -1))
    with torch.no_grad():
        restored, truth = restorer(moved), torch.tensor(labels)
        good = (classifier(restored).argmax(1) == truth) & (classifier(moved).argmax(1) != truth)
        exact = (restored == images).flatten(1).all(1)
    # Those of class 7 first, a 7, a sneaker, a horse: they make good starts.
    order = sorted(range(len(images)), key=lambda i: labels[i] != 7)
    return max(order, key=lambda i: int(good[i]) * 2 + int(exact[i]))
