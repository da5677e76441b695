"""3-D translation ("3D Voxelization Images"): bodies of digits shifted along three axes.

Claim: the same restorer, with one axis more. The paper shows pictures; measured here are the accuracy of a
small 3-D classifier over scopes 0..8, as in Table 1, and how often a volume comes back to where it was.
``python -m unshift.experiments.volumes`` trains the shipped classifier again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import unshift
from unshift import apply
from unshift.data.volumes import mnist3d
from unshift.evaluation import accuracy_over_scopes, predict, random_shifts, restoration_rates
from unshift.experiments.setting import Setting

__all__ = ["run", "text", "volume_setting"]

CLASSIFIER = "voxels3d-mnist3d"


def volume_setting(*, train: bool = False, quick: bool = False, progress: bool = True) -> Setting:
    """Return 3D-MNIST, regenerated, with the shipped classifier and restorer; ``train`` fits the restorer anew."""
    from unshift.experiments.classifiers import shipped

    test = mnist3d("test")
    assert test.labels is not None
    count = 12 if quick else len(test.images)
    if train:
        some = mnist3d("train").images[: 64 if quick else None]
        options: dict[str, Any] = {"epochs": 1} if quick else {}
        restorers = {"paper": unshift.fit(some, "paper", data_name="mnist3d", progress=progress, **options)}
    else:
        restorers = {"mnist3d": unshift.load("mnist3d")}
    images, labels = test.images[:count], test.labels[:count]
    name = "3-D conv net (shipped)"
    return Setting(
        "3D-MNIST, regenerated, test, 32x32x32",
        images,
        labels,
        shipped()[CLASSIFIER](),
        name,
        restorers,
        progress=progress,
    )


def run(setting: Setting, scopes: range = range(9)) -> dict[str, Any]:
    """Classify at each scope with and without, and measure the restorer itself. Accuracies in percent."""
    name, restorer = next(iter(setting.restorers.items()))
    table = accuracy_over_scopes(
        setting.classifier,
        setting.images,
        setting.labels,
        restorer,
        scopes=scopes,
        seeds=setting.seeds,
        batch_size=50,
        progress=setting.progress,
    )
    return {
        **setting.describe(),
        "restorer": name,
        "scopes": list(scopes),
        "without": [100 * sum(row.without) / len(row.without) for row in table],
        "restored": [100 * sum(row.restored) / len(row.restored) for row in table],
        "effect": [100 * row.effect for row in table],
        "same_at_every_scope": len({value for row in table for value in row.restored}) == 1,
        "rates": restoration_rates(restorer, setting.images, batch_size=50).as_dict(),
        "pictures": _pictures(setting),
    }


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


def rows(result: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the table as labelled rows of text."""
    return [
        ("shift up to (voxels)", [str(s) for s in result["scopes"]]),
        (f"{result['classifier']}, bare", [f"{v:.2f}" for v in result["without"]]),
        (f"with unshift ({result['restorer']})", [f"{v:.2f}" for v in result["restored"]]),
        ("effect", [f"{v:+.2f}" for v in result["effect"]]),
    ]


def text(result: dict[str, Any]) -> str:
    """Return the table for a terminal."""
    table = rows(result)
    wide = max(len(label) for label, _ in table)
    lines = [f"{label:<{wide}}  " + " ".join(f"{cell:>7}" for cell in cells) for label, cells in table]
    rates = result["rates"]
    lines.append(
        f"accuracy in %, {result['data']}, n = {result['images']:,}; restored exactly: {100 * rates['exact']:.1f}%, "
        f"within 1 voxel along every axis: {100 * rates['within_1']:.1f}%"
    )
    return "\n".join(lines)


def _make(epochs: int = 12, seed: int = 0) -> None:
    """Train the shipped 3-D classifier; 500 held-out training volumes say how good it is."""
    from unshift.experiments.classifiers import save_classifier, train_classifier

    train = mnist3d("train")
    assert train.labels is not None
    order = torch.randperm(len(train.images), generator=torch.Generator().manual_seed(seed))
    held, kept = order[:500], order[500:]
    options: dict[str, Any] = {"epochs": epochs, "seed": seed, "learning_rate": 0.003}
    model = train_classifier("voxels3d", train.images[kept], train.labels[kept], **options)
    found = predict(model, train.images[held])
    metadata = {
        "architecture": "voxels3d",
        "data": "mnist3d (3D-MNIST, regenerated), 32x32x32",
        "train_images": len(kept),
        **options,
        "validation_images": len(held),
        "validation_accuracy": float((found == train.labels[held]).double().mean()),
        "torch": torch.__version__,
    }
    save_classifier(model, Path(__file__).parent / "weights" / f"{CLASSIFIER}.safetensors", metadata)
    print(json.dumps(metadata))


if __name__ == "__main__":
    _make()
