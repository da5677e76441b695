"""Figure 1: accuracy lost at each shift of up to 3 pixels.

Claim: A few pixels cost the bare classifier tens of points, and the restored one none.
Paper: LeNet-5 on MNIST loses more than 59 points, VGG-16 on CIFAR-10 more than 11.
Cost: 1 min for each LeNet-5, 6 min for VGG-16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from reproduction import plots, translation
from reproduction.records import Options, Result, percent
from reproduction.tables import Block, Picture
from unshift import apply
from unshift.evaluation import predict
from unshift.progress import tracked

CASES = translation.needs("mnist", "cifar10-vgg16")
PAPER = {"mnist": 59, "cifar10-vgg16": 11}
REACH, RESTORED = 3, 1000
"""The largest shift, and the number of images that are restored at every shift."""


def measure(case: str, options: Options) -> Result:
    """Return the loss of accuracy, in points, at each shift in [-3, 3] x [-3, 3], bare and restored."""
    loaded = translation.load(case, options)
    name, restorer = next(iter(loaded.restorers.items()))
    images, labels = loaded.images[: loaded.bare], loaded.labels[: loaded.bare]
    few, few_labels = images[:RESTORED], labels[:RESTORED]

    def right(images: torch.Tensor, labels: torch.Tensor) -> float:
        return percent(predict(loaded.classifier, images) == labels)

    def restored(images: torch.Tensor) -> torch.Tensor:
        return torch.cat([restorer(batch) for batch in images.split(256)])

    clean, clean_restored = right(images, labels), right(restored(few), few_labels)
    offsets = range(-REACH, REACH + 1)
    lost, lost_restored = ([[0.0] * len(offsets) for _ in offsets] for _ in range(2))
    grid = [(down, across) for down in offsets for across in offsets]
    for down, across in tracked(grid, "shifts", "shifts", options.progress):
        moved = apply(images, torch.tensor([[down, across]]).expand(len(images), 2))
        lost[down + REACH][across + REACH] = clean - right(moved, labels)
        lost_restored[down + REACH][across + REACH] = clean_restored - right(restored(moved[: len(few)]), few_labels)
    return {
        **loaded.describe(),
        "seeds": [],
        "restorer": name,
        "clean": clean,
        "restored_images": len(few),
        "offsets": list(offsets),
        "lost_without": lost,
        "lost_restored": lost_restored,
    }


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the picture, with the largest losses below."""
    result = results[case]
    lost, restored = (max(map(max, result[key])) for key in ("lost_without", "lost_restored"))
    note = (
        f"{result['classifier']} on {result['data']}, each image at all {len(result['offsets']) ** 2} shifts of up to "
        f"{result['offsets'][-1]} pixels. The worst shift costs {lost:.2f} points bare (n = "
        f"{result['bare_images']:,}) and {restored:.2f} behind {result['restorer']} "
        f"(n = {result['restored_images']:,}). The paper: more than {PAPER[case]} points."
    )
    alt = f"Accuracy lost at every shift, without and with the restorer, {result['data']}"
    notes = [text for text in (note, translation.training_note(result)) if text]
    return [Picture(f"fig1-{case}", alt, lambda: _draw(result), notes)]


def _draw(result: Result) -> bytes:
    figure = plots.figure(8.6, 4.2, layout="constrained")
    panels = figure.subplots(1, 2)
    names = [f"{offset:+d}" if offset else "0" for offset in result["offsets"]]
    top = max(1.0, max(map(max, result["lost_without"])))
    titles = ("without a restorer", f"with unshift ({result['restorer']})")
    for axes, key, title in zip(panels, ("lost_without", "lost_restored"), titles, strict=True):
        values = np.array(result[key])
        shown = axes.imshow(values, cmap="YlOrRd", vmin=0, vmax=top)
        axes.set_xticks(range(len(names)), names)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("shift right (pixels)")
        axes.set_ylabel("shift down (pixels)")
        axes.set_title(title, fontsize=11)
        for (row, column), value in np.ndenumerate(values):
            ink = "white" if value > 0.6 * top else "#374151"
            axes.text(column, row, f"{round(value, 1) + 0.0:.1f}", ha="center", va="center", color=ink, fontsize=8)
    figure.colorbar(shown, ax=panels, label="accuracy lost (points)", shrink=0.8)
    return plots.png(figure)
