"""The report's sections, one per experiment, as HTML: each takes the results by case, and what makes a picture."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from unshift.experiments import fig1, fig4, fig5, fig6, plots, plots_rotation, scopes, seam, table1, table2

__all__ = ["SECTIONS"]

Picture = Callable[[str, bytes | None, str], str]
"""Takes a figure's name, the figure (``None``: as it was drawn before) and what it shows; returns HTML."""
Cases = dict[str, dict[str, Any]]


def table1_section(cases: Cases, picture: Picture) -> list[str]:
    """Return the parts of the page on Table 1."""
    parts = ["<h2>Table 1: accuracy over translation scopes</h2>"]
    for case, result in cases.items():
        parts += _measured(result, table1.rows(result))
        parts.append(picture(f"table1-{case}", plots.curve(result), "Accuracy against the size of the shift"))
    return parts


def fig1_section(cases: Cases, picture: Picture) -> list[str]:
    """Return the parts of the page on Figure 1."""
    parts = ["<h2>Figure 1: what a few pixels cost</h2>"]
    for case, result in cases.items():
        alt = "Accuracy lost at every shift, without and with the restorer"
        parts += [f"<p>{escape(fig1.text(result))}</p>", picture(f"fig1-{case}", plots.heat_maps(result), alt)]
    return parts


def fig3_section(cases: Cases, picture: Picture) -> list[str]:
    """Return the parts of the page on Figure 3."""
    parts = ["<h2>Figure 3: shifted and restored</h2>"]
    for case, fig3 in cases.items():
        parts.append(
            f"<p>{escape(fig3['data'])}, the first {len(fig3['labels'])} images, each shifted by up to "
            f"{fig3['scope']} pixels both ways. Below each the verdict of the frozen {escape(fig3['classifier'])}.</p>"
        )
        drawn = plots.pictures(fig3) if "pictures" in fig3 else None
        parts.append(picture(f"fig3-{case}", drawn, "Original, shifted and restored images with verdicts"))
    return parts


def table2_section(cases: Cases, picture: Picture) -> list[str]:
    """Return the parts of the page on Table 2."""
    parts = ["<h2>Table 2: four architectures</h2>"]
    for result in cases.values():
        parts += _measured(result, table2.rows(result))
    return parts


def fig4_section(cases: Cases, picture: Picture) -> list[str]:
    """Return the parts of the page on Figure 4: each case beside its augmented twin."""
    parts = ["<h2>Figure 4: beyond the scope of augmentation</h2>"]
    for name, result in cases.items():
        if not name.endswith("-augmented"):
            pair = [result, *(cases[twin] for twin in (f"{name}-augmented",) if twin in cases)]
            alt = "Accuracy with and without augmentation and restorer"
            parts.append(picture(f"fig4-{name}", plots.augmentation(pair), alt))
            for each in pair:
                parts += _measured(each, fig4.rows(each))
    return parts


def seam_section(cases: Cases, picture: Picture) -> list[str]:
    """Return the parts of the page on photos without a margin."""
    parts = ["<h2>No margin: the seam alone</h2>"]
    for result in cases.values():
        parts += _measured(result, seam.rows(result))
        if len(result["budget"]) > 1:
            parts.append(picture("seam-budget", plots.budget(result), "Exact rate against epochs of training"))
    return parts


def _measured(result: dict[str, Any], rows: scopes.Rows) -> list[str]:
    """Return a table of accuracies over scopes with its small print."""
    note = (
        f"Accuracy in %, {escape(result['data'])}, n = {result['bare_images']:,}, each image shifted circularly by its "
        f"own random shift within the scope, both ways; seeds {', '.join(map(str, result['seeds']))}; ± is the "
        "standard deviation over seeds; consistent: share of images with one verdict under all seeds' shifts. "
        "Paper: Wang, Yu, Gao, “Restore Translation Using Equivariant Neural Networks”."
    )
    said = "".join(f"<br>{escape(sentence)}" for sentence in scopes.effect_text(result))
    return [_table(rows), f'<p class="soft">{note}{said}</p>']


def fig6_section(cases: Cases, picture: Picture) -> list[str]:
    """Return the parts of the page on rotation."""
    (result,) = cases.values()
    accuracy, lost, swept = result["accuracy"], result["lost"], result["sweep"]
    name, drawn, fresh = result["restorers"][0], result["over_seeds"], "pictures" in result
    vote, ours = result["cost"]["vote of 36"], result["cost"][name]
    different = sum(swept["quarter_turns_different"].values())
    swapped = ", ".join(f"{v} times a {k}" for k, v in lost.items() if " read as " in k)
    of_zeros = lost["median_error_of_class"][0]
    zero = "nothing known" if of_zeros is None else f"{of_zeros:.1f} degrees (median)"
    parts = [
        "<h2>Figure 6, rotation: a shift of the angle axis</h2>",
        f"<p>Each of {result['images']:,} digits rotated by its own random angle: {escape(result['classifier'])} alone "
        f"{accuracy['without']:.2f}%, behind <code>{escape(name)}</code> {accuracy[name]:.2f}%, never rotated "
        f"{accuracy['upright']:.2f}%. A vote over 36 rotations costs {vote['ms'] / ours['ms']:.1f} times as much and "
        f"gives {accuracy['vote of 36']:.2f}%. Quarter turns restored to another image than the unrotated digit: "
        f"{different} of {3 * swept['images'] * len(result['restorers']):,}.</p>",
        _table(fig6.rows(result)),
        '<p class="soft">Accuracy in %, over all digits; then of digits turned at their own 28x28 and enlarged '
        "afterwards, where the lattice of their pixels cannot give the angle away; "
        f"then mean and standard deviation over the angles of seeds {', '.join(map(str, drawn['seeds']))} on the first "
        f"{drawn['images']:,}, and the share of these with one verdict under all; then per class; passes through "
        "the classifier, and time a digit from 224x224 to its class (the vote samples no more pixels than the "
        "classifier's 32x32).</p>",
        picture("fig6-sweep", plots_rotation.sweep(result), "Accuracy at every 10 degrees, with and without"),
        picture("fig6-errors", plots_rotation.error_histogram(result), "Distribution of the angle's error"),
        "<p>The first test digits at 40, 90 and 150 degrees, restored by "
        f"<code>{escape(name)}</code>; below each the classifier's verdict.</p>",
        picture(
            "fig6-digits", plots_rotation.sheet(result) if fresh else None, "Digits original, rotated and restored"
        ),
        "<h2>What cannot be restored</h2>",
        "<p>A 6 on its head is a 9, and nothing in its shape says which it was; a 0 looks upright in more than one "
        f"position, and does no harm. That zeros are read to {zero} is more than their shape tells: likely traces "
        "of how MNIST was digitised survive the rotation and a strong network uses them. Do not expect it of other "
        f"images. Of {lost['wrong']} wrong verdicts ({lost['wrong_upright']} before any rotation): "
        f"{escape(swapped)}. Below, digits read 150 degrees or more wrong, zeros, and others.</p>",
    ]
    if fresh and not result["pictures"]["examples"]:
        return parts
    lost_digits = plots_rotation.lost_examples(result) if fresh else None
    return [*parts, picture("fig6-lost", lost_digits, "Digits that cannot be restored")]


def fig5_section(cases: Cases, picture: Picture) -> list[str]:
    """Return the parts of the page on volumes."""
    (result,) = cases.values()
    fresh = "pictures" in result
    return [
        "<h2>Figure 5, volumes: one axis more</h2>",
        *_measured(result, fig5.rows(result)),
        picture(
            "fig5-volumes",
            plots_rotation.volume_pictures(result) if fresh else None,
            "Volumes original, shifted and restored",
        ),
    ]


def _table(rows: scopes.Rows) -> str:
    kinds = {"paper": "paper", "with": "with", "effect": "effect", "spread": "effect", "consistent": "effect"}
    lines = []
    for number, (label, cells) in enumerate(rows):
        tag = "th" if number == 0 else "td"
        first = (label.split() or [""])[0].strip(":,")
        kind = kinds.get(first, "bare" if "bare" in label or "alone" in label else "")
        body = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
        lines.append(f'<tr class="{kind}"><th>{escape(label.strip())}</th>{body}</tr>')
    return f'<div class="scroll"><table>{"".join(lines)}</table></div>'


SECTIONS: dict[str, Callable[[Cases, Picture], list[str]]] = {
    "table1": table1_section,
    "fig1": fig1_section,
    "fig3": fig3_section,
    "table2": table2_section,
    "fig4": fig4_section,
    "fig5": fig5_section,
    "fig6": fig6_section,
    "seam": seam_section,
}
"""Item to what writes its section, in the order of the page."""
