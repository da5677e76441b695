"""Figure 5, 3-D translation ("3D Voxelization Images"): bodies of digits shifted along three axes.

Claim: the same restorer, with one axis more. The paper shows pictures; measured here are the accuracy of a
small 3-D classifier over scopes 0..8, as in Table 1, and how often a volume comes back to where it was.
``python -m unshift.experiments.fig5`` trains the shipped classifier again.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import unshift
from unshift import apply
from unshift.data.volumes import mnist3d
from unshift.evaluation import predict, random_shifts
from unshift.experiments import scopes
from unshift.experiments.classifiers import Recipe, save_classifier, shipped, train_classifier
from unshift.experiments.setting import Setting

__all__ = ["CASE", "run", "setting", "text"]

CASE = "mnist3d"
CLASSIFIER = "voxels3d-mnist3d"


def setting(
    case: str = CASE,
    *,
    train: bool = False,
    quick: bool = False,
    seeds: tuple[int, ...] = (0,),
    progress: bool = True,
) -> Setting:
    """Return 3D-MNIST, regenerated, with the shipped classifier and restorer; ``train`` fits the restorer anew."""
    test = mnist3d("test")
    assert test.labels is not None
    count = 12 if quick else len(test.images)
    if train:
        some = mnist3d("train").images[: 64 if quick else None]
        options: dict[str, Any] = {"epochs": 1} if quick else {}
        restorers = {"paper": unshift.fit(some, "paper", data_name=case, progress=progress, **options)}
    else:
        restorers = {"mnist3d": unshift.load("mnist3d")}
    classifier = shipped()[CLASSIFIER]()
    return Setting(
        "3D-MNIST, regenerated, test, 32x32x32",
        test.images[:count],
        test.labels[:count],
        classifier,
        "3-D conv net (shipped)",
        restorers,
        seeds[:1] if quick else seeds,
        about=classifier.about,  # type: ignore[arg-type]
        progress=progress,
    )


def run(setting: Setting) -> dict[str, Any]:
    """Classify at each scope with and without, and measure the restorer itself. Accuracies in percent."""
    return {**scopes.measure(setting, list(range(9)), batch_size=50), "pictures": _pictures(setting)}


def _pictures(setting: Setting, count: int = 6) -> dict[str, Any]:
    """Return the first volumes original, shifted and restored."""
    restorer = next(iter(setting.restorers.values()))
    images = setting.images[:count]
    shift = random_shifts(len(images), 3, 8, setting.seeds[0])
    shifted = apply(images, shift)
    restored = restorer(shifted)
    shown = {"original": images, "shifted": shifted, "restored": restored}
    return {
        "labels": setting.labels[:count].tolist(),
        "applied": shift.tolist(),
        "verdict_shifted": predict(setting.classifier, shifted).tolist(),
        "verdict_restored": predict(setting.classifier, restored).tolist(),
        **{key: (value[:, 0] * 255).round().to(torch.uint8).tolist() for key, value in shown.items()},
    }


def rows(result: dict[str, Any]) -> scopes.Rows:
    """Return the table as labelled rows of text."""
    return scopes.lines(result, "voxels")


def text(result: dict[str, Any]) -> str:
    """Return the table for a terminal."""
    return scopes.text(rows(result), result)


def _make(epochs: int = 12, seed: int = 0) -> None:
    """Train the shipped 3-D classifier; 500 held-out training volumes say how good it is."""
    train = mnist3d("train")
    assert train.labels is not None
    order = torch.randperm(len(train.images), generator=torch.Generator().manual_seed(seed))
    held, kept = order[:500], order[500:]
    recipe = Recipe("voxels3d", epochs=epochs, seed=seed)
    model = train_classifier(recipe, train.images[kept], train.labels[kept])
    found = predict(model, train.images[held])
    metadata = {
        **asdict(recipe),
        "data": "mnist3d (3D-MNIST, regenerated), 32x32x32",
        "train_images": len(kept),
        "validation_images": len(held),
        "validation_accuracy": float((found == train.labels[held]).double().mean()),
        "torch": torch.__version__,
    }
    save_classifier(model, Path(__file__).parent / "weights" / f"{CLASSIFIER}.safetensors", metadata)
    print(json.dumps(metadata))


if __name__ == "__main__":
    _make()
