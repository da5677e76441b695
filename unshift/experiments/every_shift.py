"""Figure 1: the accuracy that is lost at every single shift in [-3, 3] x [-3, 3]."""

from __future__ import annotations

import numpy as np
import torch

from unshift import Chain, Restorer, apply
from unshift.evaluation import predict
from unshift.experiments import plots
from unshift.experiments.accuracy_table import training
from unshift.experiments.answers import Remembering
from unshift.experiments.cases import CASES, LoadedCase
from unshift.experiments.record import Block, Experiment, Picture, Result, Results
from unshift.progress import tracked

PAPER = {"mnist": 59, "cifar10-vgg16": 11}
"""The paper: its two nets lose "more than" this many points when the input moves by at most 3 pixels."""


def _measure(case: LoadedCase, reach: int = 3, restored_images: int = 1000) -> Result:
    """Return the loss of accuracy (points) at each shift, bare and behind the first restorer.

    The restorer is run on the first ``restored_images`` only: what it gives is the same at every shift.
    """
    name, restorer = next(iter(case.restorers.items()))
    images, labels = case.images[: case.bare], case.labels[: case.bare]
    classifier = Remembering.of(case.classifier)
    clean = predict(classifier, images) == labels
    few, few_labels = images[:restored_images], labels[:restored_images]
    clean_restored = predict(classifier, _restored(restorer, few)) == few_labels
    offsets = range(-reach, reach + 1)
    bare, restored = ([[0.0] * len(offsets) for _ in offsets] for _ in range(2))
    grid = [(down, right) for down in offsets for right in offsets]
    for down, right in tracked(grid, "shifts", "shifts", case.progress):
        moved = apply(images, torch.tensor([[down, right]]).expand(len(images), 2))
        bare[down + reach][right + reach] = _points(predict(classifier, moved) == labels, clean)
        back = predict(classifier, _restored(restorer, moved[: len(few)])) == few_labels
        restored[down + reach][right + reach] = _points(back, clean_restored)
    classifier.save()
    return {
        **case.describe(),
        "seeds": [],  # every shift, none of them drawn
        "restorer": name,
        "clean": 100 * float(clean.double().mean()),
        "restored_images": len(few),
        "offsets": list(offsets),
        "lost_without": bare,
        "lost_restored": restored,
    }


def _restored(restorer: Restorer | Chain, images: torch.Tensor) -> torch.Tensor:
    return torch.cat([restorer(batch) for batch in images.split(256)])  # all at once would take gigabytes


def _points(right: torch.Tensor, before: torch.Tensor) -> float:
    return 100 * float(before.double().mean() - right.double().mean())


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    lost, back = (max(map(max, result[key])) for key in ("lost_without", "lost_restored"))
    said = (
        f"{result['classifier']} on {result['data']}, each image at all {len(result['offsets']) ** 2} shifts of up to "
        f"{result['offsets'][-1]} pixels: the worst one costs {lost:.2f} points of accuracy bare (n = "
        f"{result['bare_images']:,}) and {back:.2f} behind {result['restorer']} (n = {result['restored_images']:,})."
    )
    if case in PAPER:
        said += f" The paper: more than {PAPER[case]} points."
    alt = f"Accuracy lost at every shift, without and with the restorer, {result['data']}"
    notes = [said, training(result)] if training(result) else [said]
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


EXPERIMENT = Experiment(
    name="fig1",
    item="Figure 1",
    title="what a few pixels cost",
    claim="A few pixels cost the bare classifier tens of points, and the restored one nothing at all.",
    cost="LeNet-5/MNIST 1 min, VGG-16/CIFAR-10 6 min, LeNet-5/Fashion-MNIST 1 min",
    paper=PAPER,
    cases=[CASES[name] for name in ("mnist", "cifar10-vgg16", "fashion-mnist")],
    measure=_measure,
    show=_show,
)
