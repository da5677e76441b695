"""Figures of the rotation and volume experiments: each takes what an experiment returned and gives a PNG."""

from __future__ import annotations

from typing import Any

import numpy as np

from unshift.experiments.plots import BARE, RESTORED, plt, to_png

__all__ = ["error_histogram", "lost_examples", "sheet", "sweep", "volume_pictures"]


def sheet(result: dict[str, Any]) -> bytes:
    """Show the paper's picture: the first digits original, rotated and restored, at each of the three angles."""
    pictures = result["pictures"]
    labels = pictures["labels"]
    rows = [(shown, row) for shown in pictures["sheets"] for row in ("original", "rotated", "restored")]
    figure, axes = plt.subplots(figsize=(0.5 * len(labels) + 0.8, 0.56 * len(rows)))
    side = _mosaic(axes, [shown[row] for shown, row in rows])
    names = [f"{shown['angle']}°" if row == "rotated" else row for shown, row in rows]
    axes.set_yticks([(r + 0.5) * side for r in range(len(rows))], names, fontsize=8)
    for r, (shown, row) in enumerate(rows):
        for c, verdict in enumerate(shown["verdicts"] if row == "restored" else ()):
            _verdict(axes, (c + 0.95) * side, (r + 0.97) * side, verdict, labels[c])
    return to_png(figure)


def sweep(result: dict[str, Any]) -> bytes:
    """Accuracy at every 10 degrees, with and without."""
    swept = result["sweep"]
    figure, axes = plt.subplots(figsize=(7.2, 3.6))
    styles = iter(("o-", "s--", "^:"))
    axes.plot(swept["angles"], swept["accuracy"]["without"], "o-", color=BARE, ms=4, label="LeNet-5, bare")
    for name in result["restorers"]:
        label = f"with unshift ({name})"
        axes.plot(swept["angles"], swept["accuracy"][name], next(styles), color=RESTORED, ms=4, label=label)
    axes.set_xlabel("rotated by (degrees)")
    axes.set_ylabel("accuracy (%)")
    axes.set_xticks(range(0, 361, 45))
    axes.set_ylim(0, 103)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower center")
    axes.set_title(f"{result['data']}, n = {swept['images']:,} at every angle", fontsize=10, loc="left")
    return to_png(figure)


def error_histogram(result: dict[str, Any]) -> bytes:
    """How far the angle that was read is from the one that was applied, on a logarithmic scale."""
    figure, panels = plt.subplots(1, len(result["errors"]), figsize=(8.6, 2.9), squeeze=False, layout="constrained")
    for axes, (name, error) in zip(panels[0], result["errors"].items(), strict=True):
        edges, counts = error["histogram"]["edges"], np.array(error["histogram"]["counts"])
        axes.stairs(counts, edges, fill=True, color=RESTORED)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
        axes.set_xticks(range(-180, 181, 90))
        axes.set_xlabel("angle read minus angle applied (degrees)")
        axes.set_title(f"{name}: median {error['median']:.1f}°, within 10° {error['within']['10']:.1f}%", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0, 0].set_ylabel("digits")
    return to_png(figure)


def lost_examples(result: dict[str, Any]) -> bytes:
    """Digits that cannot be restored."""
    examples = result["pictures"]["examples"]
    rows = ("original", "rotated", "restored")
    figure, axes = plt.subplots(figsize=(0.6 * len(examples) + 0.8, 2.0))
    side = _mosaic(axes, [[example[row] for example in examples] for row in rows])
    axes.set_yticks([(r + 0.5) * side for r in range(3)], rows, fontsize=8)
    for c, example in enumerate(examples):
        _verdict(axes, (c + 0.95) * side, 2.97 * side, example["verdict"], example["label"])
    return to_png(figure)


def volume_pictures(result: dict[str, Any]) -> bytes:
    """Show the paper's 3-D picture: bodies of digits original, shifted and restored."""
    pictures = result["pictures"]
    count = len(pictures["labels"])
    figure = plt.figure(figsize=(1.9 * count, 5.6))
    for r, row in enumerate(("original", "shifted", "restored")):
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
                verdict = pictures[f"verdict_{row}"][c]
                axes.set_title(f"“{verdict}”", color=_ink(verdict == pictures["labels"][c]), fontsize=9, y=-0.08)
    figure.subplots_adjust(left=0.03, right=0.99, top=0.99, bottom=0.03, wspace=0.02, hspace=0.05)
    return to_png(figure)


def _mosaic(axes: Any, rows: list[list[Any]]) -> int:
    """Show rows of square pictures as one image, a dark line between them; return the side of a tile."""
    tiles = np.pad(np.array(rows, dtype=np.uint8), ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=90)
    height, width, side = tiles.shape[0], tiles.shape[1], tiles.shape[2]
    whole = tiles.transpose(0, 2, 1, 3).reshape(height * side, width * side)
    axes.imshow(whole, cmap="gray", vmin=0, vmax=255, extent=(0, width * side, height * side, 0))
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return side


def _verdict(axes: Any, x: float, y: float, verdict: int, label: int) -> None:
    """Write what the classifier said in a picture's lower right corner."""
    ink = "#5eead4" if verdict == label else "#fb923c"
    axes.text(x, y, str(verdict), color=ink, fontsize=8, ha="right", va="bottom", fontweight="bold")


def _ink(right: bool) -> str:
    return RESTORED if right else BARE
