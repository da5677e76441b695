"""Figure 3: images as they are, shifted by up to a quarter of their size, and restored."""

from __future__ import annotations

import numpy as np

from unshift import apply
from unshift.evaluation import predict, random_shifts
from unshift.experiments import plots
from unshift.experiments.cases import CASES, LoadedCase
from unshift.experiments.record import Block, Experiment, Picture, Result, Results


def _measure(case: LoadedCase, count: int = 10) -> Result:
    """Return ``count`` test images original, shifted and restored, with the classifier's verdicts."""
    name, restorer = next(iter(case.restorers.items()))
    images = case.images[:count]
    scope = min(images.shape[2:]) // 4
    shift = random_shifts(len(images), images.ndim - 2, scope, case.seeds[0])
    shifted = apply(images, shift)
    estimate = restorer.estimate(shifted)
    restored = restorer(shifted)
    return {
        **case.describe(),
        "seeds": [case.seeds[0]],
        "restorer": name,
        "scope": scope,
        "labels": case.labels[:count].tolist(),
        "classes": list(case.classes),
        "applied": shift.tolist(),
        "estimated": estimate.shift.tolist(),
        "confidence": estimate.confidence.tolist(),
        "verdict_shifted": predict(case.classifier, shifted).tolist(),
        "verdict_restored": predict(case.classifier, restored).tolist(),
        "pictures": {"original": images.tolist(), "shifted": shifted.tolist(), "restored": restored.tolist()},
    }


def _show(case: str, results: Results) -> list[Block]:
    result = results[case]
    said = (
        f"{result['data']}, the first {len(result['labels'])} images, shifts of up to {result['scope']} pixels both "
        f"ways, seed {result['seeds'][0]}; restored by {result['restorer']}. Below each, the verdict of "
        f"{result['classifier']}."
    )
    alt = f"Original, shifted and restored images with verdicts, {result['data']}"
    return [Picture(f"fig3-{case}", alt, (lambda: _draw(result)) if "pictures" in result else None, [said])]


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
                verdict = result[f"verdict_{row}"][c]
                said = result["classes"][verdict] if result["classes"] else str(verdict)
                colour = plots.verdict_colour(verdict == result["labels"][c])
                axes.set_xlabel(f"“{said}”", color=colour, fontsize=10 if len(said) < 3 else 7, labelpad=1)
    figure.subplots_adjust(left=0.05, right=0.995, top=0.99, bottom=0.06, wspace=0.08, hspace=0.25)
    return plots.png(figure)


EXPERIMENT = Experiment(
    name="fig3",
    item="Figure 3",
    title="shifted and restored",
    claim="Whatever the shift, the restored picture is one and the same.",
    cost="1 min for MNIST, CIFAR-10 and Fashion-MNIST",
    cases=[CASES[name] for name in ("mnist", "cifar10-vgg16", "fashion-mnist", "cifar10-plain")],
    measure=_measure,
    show=_show,
)
