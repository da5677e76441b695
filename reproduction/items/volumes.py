"""Figure 5: volumes shifted along three axes.

Claim: The same restorer undoes shifts along three axes.
Paper: pictures of 3D-MNIST; no numbers.
Cost: 16 min for 3D-MNIST, regenerated from MNIST.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import unshift
from reproduction import plots, translation
from reproduction.classifiers import frozen
from reproduction.images import images_of
from reproduction.records import Options, Result
from reproduction.tables import Block, Picture
from unshift import apply
from unshift.evaluation import predict, random_shifts

CASES = {"mnist3d": ("mnist3d", "voxels3d-mnist3d")}
ROWS = ("original", "shifted", "restored")
COUNT = 6


def measure(case: str, options: Options) -> Result:
    """Return the accuracies at scopes 0 to 8, and pictures of the first volumes."""
    test = images_of("mnist3d", options, few=12)
    assert test.labels is not None
    behind, restorer = frozen("voxels3d-mnist3d", options), unshift.load("mnist3d")
    loaded = translation.Case(
        "3D-MNIST, regenerated, test, 32x32x32",
        test.images,
        test.labels,
        behind.model,
        behind.title,
        {"mnist3d": restorer},
        options,
        about=behind.about,
    )
    images = test.images[:COUNT]
    shifted = apply(images, random_shifts(len(images), 3, 8, options.seeds[0]))
    shown = dict(zip(ROWS, (images, shifted, restorer(shifted)), strict=True))
    pictures: Result = {name: plots.grey(x) for name, x in shown.items()}
    pictures |= {f"verdict_{name}": predict(behind.model, shown[name]).tolist() for name in ROWS[1:]}
    pictures["labels"] = test.labels[:COUNT].tolist()
    return {**translation.measure(loaded, list(range(9)), batch_size=50), "pictures": pictures}


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table and the picture."""
    result = results[case]
    draw = (lambda: _draw(result["pictures"])) if "pictures" in result else None
    picture = Picture("volumes", "Volumes original, shifted and restored", draw)
    return [translation.table(result, unit="voxels"), picture]


def _draw(pictures: dict[str, Any]) -> bytes:
    count = len(pictures["labels"])
    figure = plots.figure(1.9 * count, 5.6)
    for r, row in enumerate(ROWS):
        for c in range(count):
            axes: Any = figure.add_subplot(3, count, r * count + c + 1, projection="3d")
            grey = np.array(pictures[row][c]) / 255
            place = np.argwhere(grey > 0)
            axes.scatter(*place.T, c=grey[grey > 0], cmap="viridis", s=4, marker="s", depthshade=False, linewidths=0)
            axes.set(xlim=(0, 32), ylim=(0, 32), zlim=(0, 32), xticklabels=[], yticklabels=[], zticklabels=[])
            axes.set_box_aspect((1, 1, 1))
            axes.view_init(18, -25)
            axes.tick_params(length=0)
            if c == 0:
                axes.text2D(-0.12, 0.5, row, transform=axes.transAxes, rotation=90, va="center", fontsize=10)
            if row != "original":
                predicted = pictures[f"verdict_{row}"][c]
                colour = plots.verdict_colour(predicted == pictures["labels"][c])
                axes.set_title(f"“{predicted}”", color=colour, fontsize=9, y=-0.08)
    figure.subplots_adjust(left=0.03, right=0.99, top=0.99, bottom=0.03, wspace=0.02, hspace=0.05)
    return plots.png(figure)
