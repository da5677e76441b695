"""Figure 1: the accuracy that is lost at every single shift in [-3, 3] x [-3, 3].

Claim: a few pixels cost the bare classifier tens of points, and the restored one nothing at all.
"""

from __future__ import annotations

from typing import Any

import torch
from tqdm.auto import tqdm

from unshift import Restorer, apply
from unshift.evaluation import predict
from unshift.experiments.setting import Setting

__all__ = ["CASES", "run"]

CASES = ("mnist", "cifar10-vgg16", "fashion-mnist")


def run(setting: Setting, reach: int = 3, restored_images: int = 1000) -> dict[str, Any]:
    """Return the loss of accuracy (points) at each shift, bare and behind the first restorer.

    The restorer is run on the first ``restored_images`` only: what it gives is the same at every shift.
    """
    name, restorer = next(iter(setting.restorers.items()))
    images, labels = setting.images[: setting.bare], setting.labels[: setting.bare]
    clean = predict(setting.classifier, images) == labels
    few, few_labels = images[:restored_images], labels[:restored_images]
    still = _restored(restorer, few)
    clean_restored = predict(setting.classifier, still) == few_labels
    bare, restored = [], []
    offsets = range(-reach, reach + 1)
    grid = [(down, right) for down in offsets for right in offsets]
    for down, right in tqdm(grid, desc="shifts", unit="shift", disable=None if setting.progress else True):
        moved = apply(images, torch.tensor([[down, right]]).expand(len(images), 2))
        bare.append(_points(predict(setting.classifier, moved) == labels, clean))
        back = _restored(restorer, moved[: len(few)])
        restored.append(_points(predict(setting.classifier, back) == few_labels, clean_restored))
    side = len(offsets)
    return {
        **setting.describe(),
        "restorer": name,
        "clean": 100 * float(clean.double().mean()),
        "restored_images": len(few),
        "offsets": list(offsets),
        "lost_without": [bare[i * side : (i + 1) * side] for i in range(side)],
        "lost_restored": [restored[i * side : (i + 1) * side] for i in range(side)],
    }


def _restored(restorer: Restorer, images: torch.Tensor) -> torch.Tensor:
    return torch.cat([restorer(batch) for batch in images.split(256)])  # all at once would take gigabytes


def _points(right: torch.Tensor, before: torch.Tensor) -> float:
    return 100 * float(before.double().mean() - right.double().mean())
