"""Table 2: four classifiers behind one restorer, CIFAR-10 padded to 40x40.

Claim: The restorer fits any classifier, and costs almost nothing on images that are not shifted.
Paper: effects between -0.01 and -0.04 points unshifted, and of 1.66 to 6.02 points for shifts of up to 4 pixels; its
    DenseNet is a DenseNet-121.
Cost: 1 min to 5 min for each of VGG-16, ResNet-18, DenseNet-BC-100 and MobileNet v2.
"""

from __future__ import annotations

from typing import Any

from reproduction import translation
from reproduction.records import Options, Result
from reproduction.tables import Block, Row, Table

PAPER: dict[str, Any] = {
    "cifar10-vgg16": {"classifier": "VGG-16", "without": [89.27, 83.40], "restored": 89.23},
    "cifar10-resnet18": {"classifier": "ResNet-18", "without": [88.21, 82.16], "restored": 88.18},
    "cifar10-densenet-bc100": {"classifier": "DenseNet-121", "without": [92.14, 90.46], "restored": 92.12},
    "cifar10-mobilenet-v2": {"classifier": "MobileNet v2", "without": [88.10, 83.36], "restored": 88.09},
}
"""At scopes 0 and 4."""
CASES = translation.needs(*PAPER)


def measure(case: str, options: Options) -> Result:
    """Return the accuracies at scopes 0 and 4."""
    return translation.measure(translation.load(case, options), [0, 4], bare=10_000)


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table of one classifier."""
    return [translation.table(results[case], PAPER[case])]


def summary(results: dict[str, Any]) -> list[Block]:
    """Return one row for each classifier, as the paper has it: our values, then the paper's."""
    n = f"(n = {next(iter(results.values()))['images']:,})"
    columns = [
        f"bare, unshifted {n}",
        f"with unshift, any shift {n}",
        f"effect, unshifted {n}",
        *("bare, shifted by up to 4", "effect, shifted", "images x draws, shifted"),
        *("paper: bare", "restored", "effect", "shifted", "effect, shifted"),
    ]
    forms = ["{:.2f}", "{:.2f}", "{:+.2f}", "{:.2f}", "{:+.2f}"]
    rows = []
    for case, result in results.items():
        (entry,) = result["restored"].values()
        ours = [result["without"][0], entry["accuracy"][1], entry["effect"][0]]
        if on_all := entry.get("all"):
            ours = [on_all["without"], on_all["accuracy"][1], on_all["effect"]]
        spread = result["without_spread"][1]
        shifted = f"{result['without'][1]:.2f}" + ("" if spread is None else f" ±{spread:.2f}")
        size = f"{result['bare_images']:,} x {len(result['seeds'])}"
        restored, (still, moved) = PAPER[case]["restored"], PAPER[case]["without"]
        paper = [still, restored, restored - still, moved, restored - moved]
        name = PAPER[case]["classifier"]
        label = result["classifier"] + ("" if result["classifier"].startswith(name) else f"; paper: {name}")
        values = [*ours, shifted, entry["effect"][1], size, *paper]
        rows.append(Row(label, values, form=[*forms, "{}", *forms]))
    return [Table("", columns, rows)]
