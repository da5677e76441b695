"""Figures from results: each function takes what an experiment returned and gives a PNG."""

from __future__ import annotations

import io
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")  # files only: no window, no display needed
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

__all__ = ["augmentation", "budget", "curve", "heat_maps", "pictures", "to_png"]

BARE, RESTORED, PAPER = "#c2410c", "#0f766e", "#9ca3af"


def curve(result: dict[str, Any]) -> bytes:
    """Accuracy against scope: the bare classifier falls, the restored one is a flat line."""
    figure, axes = plt.subplots(figsize=(7.2, 3.9))
    scopes = result["scopes"]
    if paper := result.get("paper"):
        axes.plot(scopes, paper["without"], color=PAPER, ls=":", label=f"paper: {paper['classifier']}, bare")
    _bare(axes, result, f"{result['classifier']}, bare", "o-")
    for (name, entry), style in zip(result["restored"].items(), ("o-", "s--", "^:"), strict=False):
        axes.plot(scopes, entry["accuracy"], style, color=RESTORED, label=f"with unshift ({name})", ms=5)
    lowest = min(*result["without"], *(paper["without"] if paper else [100]))
    axes.set_ylim(0 if lowest < 50 else 10 * (lowest // 10) - 5, 103)
    _scope_axis(axes, result)
    return to_png(figure)


def augmentation(results: list[dict[str, Any]]) -> bytes:
    """Figure 4: trained without (dashed) and with (solid) augmentation, each bare and restored."""
    figure, axes = plt.subplots(figsize=(7.2, 3.9))
    for result, dash in zip(results, ("--", "-"), strict=False):
        scope = result["training"].get("scope")
        kind = f"trained with shifts up to {scope}" if scope else "trained without shifts"
        _bare(axes, result, f"{kind}, bare", f"o{dash}")
        entry = next(iter(result["restored"].values()))
        axes.plot(result["scopes"], entry["accuracy"], f"s{dash}", color=RESTORED, label=f"{kind}, with unshift", ms=4)
        if scope:
            axes.axvspan(0, scope, color="#9ca3af", alpha=0.15, lw=0)
    _scope_axis(axes, results[0])
    return to_png(figure)


def budget(result: dict[str, Any]) -> bytes:
    """Exact rate of the seam restorer against the length of its training."""
    figure, axes = plt.subplots(figsize=(5.6, 3.4))
    epochs = [entry["epochs"] for entry in result["budget"]]
    for kind, color in (("test", RESTORED), ("validation", PAPER)):
        rates = [100 * entry[kind]["exact"] for entry in result["budget"]]
        axes.plot(epochs, rates, "o-", color=color, label=f"{kind}, n = {result['budget'][0][kind]['images']:,}")
    axes.set_xlabel("epochs of training")
    axes.set_ylabel("found to the pixel (%)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return to_png(figure)


def _bare(axes: Any, result: dict[str, Any], label: str, style: str) -> None:
    """Draw the bare classifier's line, with its spread over seeds where there are several."""
    spread = [value or 0.0 for value in result["without_spread"]]
    axes.errorbar(result["scopes"], result["without"], yerr=spread, fmt=style, color=BARE, label=label, ms=5, capsize=2)


def _scope_axis(axes: Any, result: dict[str, Any]) -> None:
    axes.set_xlabel("random circular shift of up to … pixels")
    axes.set_ylabel("accuracy (%)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower left", fontsize=8.5)
    title = f"{result['data']}, n = {result['bare_images']:,}"
    seeds = len(result["seeds"])
    axes.set_title(title + (f", {seeds} draws of the shifts" if seeds > 1 else ""), fontsize=10, loc="left")


def heat_maps(fig1: dict[str, Any]) -> bytes:
    """Points of accuracy lost at every shift: without the restorer and with it, on one scale."""
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 4.2), layout="constrained")
    offsets = fig1["offsets"]
    top = max(1.0, max(map(max, fig1["lost_without"])))
    titles = ("without a restorer", f"with unshift ({fig1['restorer']})")
    for axes, key, title in zip(panels, ("lost_without", "lost_restored"), titles, strict=True):
        values = np.array(fig1[key])
        shown = axes.imshow(values, cmap="YlOrRd", vmin=0, vmax=top)
        axes.set_xticks(range(len(offsets)), [f"{o:+d}" if o else "0" for o in offsets])
        axes.set_yticks(range(len(offsets)), [f"{o:+d}" if o else "0" for o in offsets])
        axes.set_xlabel("shift right (pixels)")
        axes.set_ylabel("shift down (pixels)")
        axes.set_title(title, fontsize=11)
        for (row, column), value in np.ndenumerate(values):
            ink = "white" if value > 0.6 * top else "#374151"
            axes.text(column, row, f"{round(value, 1) + 0.0:.1f}", ha="center", va="center", color=ink, fontsize=8)
    figure.colorbar(shown, ax=panels, label="accuracy lost (points)", shrink=0.8)
    return to_png(figure)


def pictures(fig3: dict[str, Any]) -> bytes:
    """Original, shifted and restored images in three rows, with the classifier's verdict below each."""
    rows = ("original", "shifted", "restored")
    count = len(fig3["labels"])
    figure, panels = plt.subplots(3, count, figsize=(0.95 * count, 3.5), squeeze=False)
    for r, row in enumerate(rows):
        for c in range(count):
            axes = panels[r, c]
            pixels = np.array(fig3["pictures"][row][c]).transpose(1, 2, 0)
            axes.imshow(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels, cmap="gray", vmin=0, vmax=1)
            axes.set_xticks([])
            axes.set_yticks([])
            if row != "original":
                verdict = fig3[f"verdict_{row}"][c]
                right = verdict == fig3["labels"][c]
                said = fig3["classes"][verdict] if fig3["classes"] else str(verdict)
                size = 10 if len(said) < 3 else 7
                axes.set_xlabel(f"“{said}”", color=RESTORED if right else BARE, fontsize=size, labelpad=1)
        panels[r, 0].set_ylabel(row, fontsize=10)
    figure.subplots_adjust(left=0.05, right=0.995, top=0.99, bottom=0.06, wspace=0.08, hspace=0.25)
    return to_png(figure)


def to_png(figure: Figure) -> bytes:
    """Return a figure as a file's content, and close it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    return buffer.getvalue()
