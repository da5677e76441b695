"""Figure 3: images as they are, shifted by up to a quarter of their size, and restored.

Claim: whatever the shift, the restored picture is one and the same.
"""

from __future__ import annotations

from typing import Any

from unshift import apply
from unshift.evaluation import predict, random_shifts
from unshift.experiments.setting import Setting

__all__ = ["CASES", "run"]

CASES = ("mnist", "cifar10-vgg16", "fashion-mnist", "cifar10-plain")


def run(setting: Setting, count: int = 10) -> dict[str, Any]:
    """Return ``count`` test images original, shifted and restored, with the classifier's verdicts."""
    name, restorer = next(iter(setting.restorers.items()))
    images = setting.images[:count]
    scope = min(images.shape[2:]) // 4
    shift = random_shifts(len(images), images.ndim - 2, scope, setting.seeds[0])
    shifted = apply(images, shift)
    estimate = restorer.estimate(shifted)
    restored = restorer(shifted)
    return {
        **setting.describe(),
        "seeds": [setting.seeds[0]],
        "restorer": name,
        "scope": scope,
        "labels": setting.labels[:count].tolist(),
        "classes": list(setting.classes),
        "applied": shift.tolist(),
        "estimated": estimate.shift.tolist(),
        "confidence": estimate.confidence.tolist(),
        "verdict_shifted": predict(setting.classifier, shifted).tolist(),
        "verdict_restored": predict(setting.classifier, restored).tolist(),
        "pictures": {
            "original": images.tolist(),
            "shifted": shifted.tolist(),
            "restored": restored.tolist(),
        },
    }
