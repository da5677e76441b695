"""The report's sections on rotation and on volumes, as HTML."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from unshift.experiments import plots_rotation, rotation, volumes

__all__ = ["rotation_section", "volume_section"]

Picture = Callable[[bytes, str], str]


def rotation_section(result: dict[str, Any], picture: Picture) -> list[str]:
    """Return the parts of the page on rotation."""
    accuracy, lost, swept = result["accuracy"], result["lost"], result["sweep"]
    name = result["restorers"][0]
    vote, ours = result["cost"]["vote of 36"], result["cost"][name]
    different = sum(swept["quarter_turns_different"].values())
    swapped = ", ".join(f"{v} times a {k}" for k, v in lost.items() if " read as " in k)
    of_zeros = lost["median_error_of_class"][0]
    zero = "nothing known" if of_zeros is None else f"{of_zeros:.1f} degrees (median)"
    parts = [
        "<h2>Rotation: a shift of the angle axis (section 5.2)</h2>",
        f"<p>Each of {result['images']:,} digits rotated by its own random angle: {escape(result['classifier'])} alone "
        f"{accuracy['without']:.2f}%, behind <code>{escape(name)}</code> {accuracy[name]:.2f}%, never rotated "
        f"{accuracy['upright']:.2f}%. A vote over 36 rotations costs {vote['ms'] / ours['ms']:.1f} times as much and "
        f"gives {accuracy['vote of 36']:.2f}%. Quarter turns restored to another image than the unrotated digit: "
        f"{different} of {3 * swept['images'] * len(result['restorers']):,}.</p>",
        _table(rotation.rows(result)),
        '<p class="soft">Accuracy in %, over all digits; then of digits turned at their own 28x28 and enlarged '
        "afterwards, where the lattice of their pixels cannot give the angle away; then per class; passes through "
        "the classifier, and time a digit by the same path: rotated at 224x224, resized to 32x32, classified.</p>",
        picture(plots_rotation.sweep(result), "Accuracy at every 10 degrees, with and without"),
        picture(plots_rotation.error_histogram(result), "Distribution of the angle's error"),
        f"<p>The first {len(result['pictures']['labels'])} test digits at 40, 90 and 150 degrees, restored by "
        f"<code>{escape(name)}</code>; below each the classifier's verdict.</p>",
        picture(plots_rotation.sheet(result), "Digits original, rotated and restored"),
        "<h2>What cannot be restored</h2>",
        "<p>A 6 on its head is a 9, and nothing in its shape says which it was; a 0 looks upright in more than one "
        f"position, and does no harm. That zeros are read to {zero} is more than their shape tells: likely traces "
        "of how MNIST was digitised survive the rotation and a strong network uses them. Do not expect it of other "
        f"images. Of {lost['wrong']} wrong verdicts ({lost['wrong_upright']} before any rotation): "
        f"{escape(swapped)}. Below, digits that were read half a turn or more wrong, zeros, and others.</p>",
    ]
    examples = plots_rotation.lost_examples(result)
    return parts if examples is None else [*parts, picture(examples, "Digits that cannot be restored")]


def volume_section(result: dict[str, Any], picture: Picture) -> list[str]:
    """Return the parts of the page on volumes."""
    rates = result["rates"]
    flat = "the same number in every column" if result["same_at_every_scope"] else "not quite flat"
    return [
        "<h2>Volumes: one axis more</h2>",
        f"<p>{escape(result['data'])}, n = {result['images']:,}, shifted along all three axes: with the restorer "
        f"{result['restored'][-1]:.2f}%, {flat}. {100 * rates['exact']:.1f}% of the volumes come back to the voxel, "
        f"{100 * rates['within_1']:.1f}% to within one along every axis.</p>",
        _table(volumes.rows(result)),
        picture(plots_rotation.volume_pictures(result), "Volumes original, shifted and restored"),
    ]


def _table(rows: list[tuple[str, list[str]]]) -> str:
    lines = []
    for number, (label, cells) in enumerate(rows):
        tag = "th" if number == 0 else "td"
        kind = "with" if label.startswith("with") else "bare" if "bare" in label or "alone" in label else ""
        body = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
        lines.append(f'<tr class="{kind}"><th>{escape(label)}</th>{body}</tr>')
    return f'<div class="scroll"><table>{"".join(lines)}</table></div>'
