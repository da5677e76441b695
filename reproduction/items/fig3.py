"""Figure 3: images as they are, shifted, and restored.

Claim: The restored image is the same for every shift.
Paper: pictures of MNIST and CIFAR-10; no numbers.
Cost: seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reproduction import plots, translation
from reproduction.records import Options, Result
from reproduction.tables import Block, Picture
from unshift import apply
from unshift.evaluation import predict, random_shifts

CASES = translation.needs("mnist", "cifar10-vgg16", "cifar10-plain")
COUNT = 10


def measure(case: str, options: Options) -> Result:
    """Return the first test images original, shifted by up to a quarter of their size, and restored."""
    loaded = translation.load(case, options)
    name, restorer = next(iter(loaded.restorers.items()))
    images, seed = loaded.images[:COUNT], options.seeds[0]
    scope = min(images.shape[2:]) // 4
    shift = random_shifts(len(images), images.ndim - 2, scope, seed)
    shifted = apply(images, shift)
    estimate, restored = restorer.estimate(shifted), restorer(shifted)
    return {
        **loaded.describe(),
        "seeds": [seed],
        "restorer": name,
        "scope": scope,
        "labels": loaded.labels[:COUNT].tolist(),
        "classes": list(loaded.classes),
        "applied": shift.tolist(),
        "estimated": estimate.shift.tolist(),
        "confidence": estimate.confidence.tolist(),
        "verdict_shifted": predict(loaded.classifier, shifted).tolist(),
        "verdict_restored": predict(loaded.classifier, restored).tolist(),
        "pictures": {"original": images.tolist(), "shifted": shifted.tolist(), "restored": restored.tolist()},
    }


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the picture, with the predicted classes."""
    result = results[case]
    note = (
        f"{result['data']}, the first {len(result['labels'])} images, shifts of up to {result['scope']} pixels in both "
        f"directions, seed {result['seeds'][0]}; restored by {result['restorer']}. Below each image, the prediction of "
        f"{result['classifier']}."
    )
    alt = f"Original, shifted and restored images with predictions, {result['data']}"
    return [Picture(f"fig3-{case}", alt, (lambda: _draw(result)) if "pictures" in result else None, [note])]


def _draw(result: Result) -> bytes:
    count = len(result["labels"])
    figure = plots.figure(0.95 * count, 3.5)
    panels = figure.subplots(3, count, squeeze=False)
    for r, row in enumerate(("original", "shifted", "restored")):
        panels[r, 0].set_ylabel(row, fontsize=10)
        for c, axes in enumerate(panels[r]):
            pixels = np.array(result["pictures"][row][c]).transpose(1, 2, 0)
            axes.imshow(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels, cmap="gray", vmin=0, vmax=1)
            axes.set_xticks([])
            axes.set_yticks([])
            if row != "original":
                predicted = result[f"verdict_{row}"][c]
                name = result["classes"][predicted] if result["classes"] else str(predicted)
                colour = plots.verdict_colour(predicted == result["labels"][c])
                axes.set_xlabel(f"“{name}”", color=colour, fontsize=10 if len(name) < 3 else 7, labelpad=1)
    figure.subplots_adjust(left=0.05, right=0.995, top=0.99, bottom=0.06, wspace=0.08, hspace=0.25)
    return plots.png(figure)
