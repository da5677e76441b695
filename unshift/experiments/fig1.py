"""Figure 1: the accuracy that is lost at every single shift in [-3, 3] x [-3, 3].

Claim: a few pixels cost the bare classifier tens of points, and the restored one nothing at all.
"""

from __future__ import annotations

from typing import Any

import torch
from tqdm.auto import tqdm

from unshift import Restorer, apply
from unshift.evaluation import predict
from unshift.experiments.setting import Remembering, Setting

__all__ = ["CASES", "PAPER", "run", "text"]

CASES = ("mnist", "cifar10-vgg16", "fashion-mnist")
PAPER = {"mnist": 59, "cifar10-vgg16": 11}
"""The paper: its two nets lose "more than" so many points when the input moves by at most 3 pixels."""


def run(setting: Setting, reach: int = 3, restored_images: int = 1000) -> dict[str, Any]:
    """Return the loss of accuracy (points) at each shift, bare and behind the first restorer.

    The restorer is run on the first ``restored_images`` only: what it gives is the same at every shift.
    """
    name, restorer = next(iter(setting.restorers.items()))
    images, labels = setting.images[: setting.bare], setting.labels[: setting.bare]
    classifier = Remembering(setting.classifier)
    clean = predict(classifier, images) == labels
    few, few_labels = images[:restored_images], labels[:restored_images]
    still = _restored(restorer, few)
    clean_restored = predict(classifier, still) == few_labels
    bare, restored = [], []
    offsets = range(-reach, reach + 1)
    grid = [(down, right) for down in offsets for right in offsets]
    for down, right in tqdm(grid, desc="shifts", unit="shift", disable=None if setting.progress else True):
        moved = apply(images, torch.tensor([[down, right]]).expand(len(images), 2))
        bare.append(_points(predict(classifier, moved) == labels, clean))
        back = _restored(restorer, moved[: len(few)])
        restored.append(_points(predict(classifier, back) == few_labels, clean_restored))
    side = len(offsets)
    return {
        **setting.describe(),
        "seeds": [],  # every shift, none of them drawn
        "restorer": name,
        "clean": 100 * float(clean.double().mean()),
        "restored_images": len(few),
        "offsets": list(offsets),
        "lost_without": [bare[i * side : (i + 1) * side] for i in range(side)],
        "lost_restored": [restored[i * side : (i + 1) * side] for i in range(side)],
    }


def text(result: dict[str, Any]) -> str:
    """Return what the figure says in a sentence or two."""
    lost, back = (max(map(max, result[key])) for key in ("lost_without", "lost_restored"))
    return (
        f"{result['classifier']} on {result['data']}, each image at all {len(result['offsets']) ** 2} shifts of up to "
        f"{result['offsets'][-1]} pixels: the worst one costs {lost:.2f} points of accuracy bare (n = "
        f"{result['bare_images']:,}) and {back:.2f} behind {result['restorer']} (n = {result['restored_images']:,})"
    )


def _restored(restorer: Restorer, images: torch.Tensor) -> torch.Tensor:
    return torch.cat([restorer(batch) for batch in images.split(256)])  # all at once would take gigabytes


def _points(right: torch.Tensor, before: torch.Tensor) -> float:
    return 100 * float(before.double().mean() - right.double().mean())
