"""Figure 4: classifiers trained with and without translation augmentation, at scopes within and beyond it.

Claim: augmentation (10% of the image: 3 pixels on MNIST, 4 on CIFAR-10) helps as far as it goes; beyond it the
accuracy falls all the same, and the restorer holds both kinds of classifier level.
"""

from __future__ import annotations

from typing import Any

from unshift.experiments import scopes
from unshift.experiments.setting import Setting

__all__ = ["CASES", "rows", "run", "text"]

CASES = (
    "mnist",
    "mnist-augmented",
    "cifar10-vgg16",
    "cifar10-vgg16-augmented",
    "fashion-mnist",
    "fashion-mnist-augmented",
)


def run(setting: Setting) -> dict[str, Any]:
    """Classify at scopes within the augmentation and beyond it, bare and restored. Accuracies in percent."""
    return scopes.measure(setting, [0, 3, 4, 6, 9, 12])


rows = scopes.lines


def text(result: dict[str, Any]) -> str:
    """Return the measurement for a terminal."""
    return scopes.text(rows(result), result)
