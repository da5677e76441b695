"""The report of ``unshift evaluate``: one self-contained page with tables and figures."""

from __future__ import annotations

import base64
import importlib.util
import io
import platform
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from statistics import fmean
from string import Template
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

REACH = 3  # largest shift of the map, in pixels: that of the paper's Figure 1
MAP_IMAGES, MAP_PIXELS = 1000, 2**21  # largest number of images of the map, and of their pixels together
EXAMPLES = 10  # number of images that are shown original, moved and restored
ORANGE, TEAL, GREY = "#c2410c", "#0f766e", "#9ca3af"
NEEDS = "needs matplotlib: pip install 'unshift[plots]'"


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def measure(
    restorer: Any,
    classifier: Callable[[Tensor], Tensor] | None,
    images: Tensor,
    labels: Tensor | None,
    border: Any,
    progress: bool,
) -> dict[str, Any]:
    """Return the examples and the map of shifts as plain data, where the images and the models allow them."""
    import torch

    from unshift.coordinates.lossy import Moves
    from unshift.evaluation import accuracy, predict
    from unshift.progress import tracked

    if images.ndim != 4 or images.shape[1] not in (1, 3):
        return {}
    coordinates, size = restorer.coordinates, tuple(images.shape[2:])
    scope = None if restorer.stages[0].coordinates.labels.unit == "degrees" else min(size) // 4
    moved = Moves(border, coordinates, scope)(images[:EXAMPLES], torch.Generator().manual_seed(0))[0]
    rows = {"original": images[:EXAMPLES], "moved": moved, "restored": restorer(moved)}
    results: dict[str, Any] = {"examples": {name: row.permute(0, 2, 3, 1).tolist() for name, row in rows.items()}}
    if classifier is None or labels is None:
        return results
    results["predicted"] = {name: predict(classifier, row).tolist() for name, row in rows.items()}
    results["labels"] = labels[:EXAMPLES].tolist()
    if "shift" not in coordinates.labels.reads or min(size) <= 2 * REACH:
        return results
    count = min(len(images), max(EXAMPLES, MAP_PIXELS // (size[0] * size[1])))
    moves, offsets = Moves(border, coordinates, REACH), range(-REACH, REACH + 1)
    still = coordinates.draw(moves.visible_size(size), count, 0, torch.Generator())
    correct = []
    grid = [(0, 0), *((down, right) for down in offsets for right in offsets)]
    for shift in tracked(grid, "map of shifts", "shifts", progress):
        shifted = moves.move(images[:count], still._replace(shift=torch.tensor([shift]).expand(count, 2)))
        correct.append([accuracy(classifier, batch, labels[:count]) for batch in (shifted, restorer(shifted))])
    shares = 100 * torch.tensor(correct)
    lost = (shares[0] - shares[1:]).T.unflatten(1, (len(offsets), len(offsets))).tolist()
    results["map"] = {"images": count, "offsets": [*offsets], "lost_without": lost[0], "lost_restored": lost[1]}
    return results


def write(folder: Path, results: Mapping[str, Any], table: Mapping[str, Sequence[str]], seconds: float) -> Path:
    """Write ``index.html`` from the results of ``unshift evaluate`` and :func:`measure`, and return its path."""
    import torch

    from unshift import __version__
    from unshift.files import write_atomically

    rates, reliability = results["rates"], results["reliability"]
    title = f"{100 * rates['exact']:.2f}% restored exactly"
    parts = [f"Restorer {results['restorer']}, {rates['images']:,} images of {results['data']}: {title}."]
    if results["scopes"]:
        last = results["scopes"][-1]
        without, restored = (f"{100 * fmean(last[key]):.2f}%" for key in ("without", "restored"))
        title = f"{restored} instead of {without}"
        moves = "any move" if last["scope"] is None else f"moves of up to {last['scope']} {results['unit']}"
        border = "" if results["border"] == "circular" else f" ({results['border']})"
        parts[0] += (
            f" Under {moves}{border}, {results['classifier']} classifies {without} correctly without the restorer, and "
            f"{restored} behind it, without retraining."
        )
        parts += [_table(table), _accuracy_curve(results)]
    if "map" in results:
        without, restored = (f"{max(map(max, results['map'][key])):.2f}" for key in ("lost_without", "lost_restored"))
        parts += [
            "<h2>Accuracy lost at each shift</h2>",
            _map(results),
            f"The worst shift costs {without} points without the restorer and {restored} with it (n = "
            f"{results['map']['images']:,}).",
        ]
    if "examples" in results:
        parts += ["<h2>Restored images</h2>", _examples(results)]
    parts += [
        "<h2>Confidence</h2>",
        _confidence_plots(reliability),
        f"Expected calibration error (15 bins): {reliability['ece']:.4f}. Error rate: {100 - 100 * rates['exact']:.2f}%"
        f", and {100 * reliability['risk_at_90']:.2f}% among the 90% of highest confidence.",
        f"Made by unshift {__version__}, Python {platform.python_version()}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads, in {seconds:.0f} s.",
    ]
    body = [f"<h1>{title}</h1>", *(part if part.startswith("<") else f"<p>{escape(part)}</p>" for part in parts)]
    template = Template(resources.files("unshift.cli").joinpath("report.html").read_text(encoding="utf-8"))
    page = folder / "index.html"
    write_atomically(page, template.substitute(body="\n".join(body)).encode())
    return page


def _accuracy_curve(results: Mapping[str, Any]) -> str:
    rows, names = results["scopes"], {"without": results["classifier"], "restored": f"behind {results['restorer']}"}
    figure, ((axes,),) = _figure(7.2, 3.9)
    scopes = ["any" if row["scope"] is None else str(row["scope"]) for row in rows]
    for (key, name), colour in zip(names.items(), (ORANGE, TEAL), strict=True):
        axes.plot(scopes, [100 * fmean(row[key]) for row in rows], "o-", color=colour, label=name)

    axes.set(xlabel=f"random moves of up to … {results['unit']}", ylabel="accuracy (%)", ylim=(None, 103))
    axes.legend(frameon=False, loc="lower left")
    return _image(figure, "Accuracy over scopes, in %")


def _map(results: Mapping[str, Any]) -> str:
    titles = {"lost_without": "without a restorer", "lost_restored": f"with {results['restorer']}"}
    figure, (panels,) = _figure(8.6, 4.2, 1, 2)
    names = [f"{offset:+d}" if offset else "0" for offset in results["map"]["offsets"]]
    top = max(1.0, max(map(max, results["map"]["lost_without"])))
    for axes, (key, title) in zip(panels, titles.items(), strict=True):
        shown = axes.imshow(results["map"][key], cmap="YlOrRd", vmin=0, vmax=top)
        axes.set(xlabel="shift right (pixels)", ylabel="shift down (pixels)", title=title)
        axes.set(xticks=range(len(names)), xticklabels=names, yticks=range(len(names)), yticklabels=names)
        axes.grid(False)
        for row, values in enumerate(results["map"][key]):
            for column, value in enumerate(values):
                ink = "white" if value > 0.6 * top else "#374151"
                axes.text(column, row, f"{round(value, 1) + 0.0:.1f}", ha="center", va="center", color=ink, fontsize=8)
    figure.colorbar(shown, ax=panels, label="accuracy lost (points)", shrink=0.8)
    return _image(figure, "Accuracy lost at each shift, without and with the restorer")


def _examples(results: Mapping[str, Any]) -> str:
    """Draw images original, moved and restored; below each its predicted class, green if correct."""
    rows, names = results["examples"], results["classes"]
    count = len(rows["original"])
    figure, panels = _figure(0.95 * count, 3.5, len(rows), count)
    for line, (name, images) in zip(panels, rows.items(), strict=True):
        line[0].set_ylabel(name)
        for axes, image in zip(line, images, strict=True):
            axes.imshow(image, cmap="gray", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
        if "predicted" in results:
            for axes, predicted, label in zip(line, results["predicted"][name], results["labels"], strict=True):
                text = names[predicted] if predicted < len(names) else str(predicted)
                axes.set_xlabel(text, color=TEAL if predicted == label else ORANGE, fontsize=8)
    return _image(figure, "Original, moved and restored images")


def _confidence_plots(reliability: Mapping[str, Any]) -> str:
    figure, ((calibration, risk),) = _figure(9.2, 4.0, 1, 2)
    confidence, share, images = zip(*reliability["bins"], strict=True)
    calibration.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    calibration.plot(confidence, share, color=TEAL)
    calibration.scatter(confidence, share, [8 + 120 * n / reliability["images"] for n in images], color=TEAL)
    calibration.set(xlabel="confidence", ylabel="share restored exactly")
    coverage, errors, _ = zip(*reliability["risk"], strict=True)
    risk.plot([100 * x for x in coverage], [100 * x for x in errors], color=TEAL)
    risk.set(xlabel="coverage: images of highest confidence (%)", ylabel="error rate (%)", ylim=(0, None))
    return _image(figure, "Share restored exactly over confidence, and error rate over coverage")


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """Return an empty figure, without the global state of ``pyplot``, and its panels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _image(figure: Any, text: str) -> str:
    """Return a figure as an HTML image that holds its PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, bbox_inches="tight")
    return f'<img alt="{escape(text)}" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def _table(rows: Mapping[str, Sequence[str]]) -> str:
    lines = []
    for number, (name, cells) in enumerate(rows.items()):
        tag = "td" if number else "th"
        lines.append(f"<tr><th>{escape(name)}</th>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>")
    return f'<div class="scroll"><table>{"".join(lines)}</table></div>'
