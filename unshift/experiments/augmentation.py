"""Figure 4: classifiers trained with and without translation augmentation, at scopes within and beyond it."""

from __future__ import annotations

import itertools
from functools import partial

from unshift.experiments.accuracy_table import curve, measure, table
from unshift.experiments.cases import CASES
from unshift.experiments.record import Block, Experiment, Results

TWINS = {name: f"{name}-augmented" for name in ("mnist", "fashion-mnist")}
"""A classifier trained without shifts, and its twin trained with them."""
ALONE = "cifar10-vgg16"
"""One that was trained with them, and has no twin."""


def _show(case: str, results: Results) -> list[Block]:
    blocks: list[Block] = [table(results[case])]
    if case in (*TWINS, ALONE):
        pair = [results[name] for name in (case, TWINS.get(case)) if name in results]
        blocks.insert(0, curve(f"fig4-{case}", pair))
    return blocks


EXPERIMENT = Experiment(
    name="fig4",
    item="Figure 4",
    title="beyond the scope of augmentation",
    claim="Augmentation (by 10% of the image: 3 or 4 pixels) helps as far as it goes; beyond it the accuracy falls all "
    "the same, and a restorer holds both kinds of classifier level.",
    cost="8 min for MNIST, CIFAR-10 and Fashion-MNIST",
    cases=[CASES[name] for name in (*itertools.chain(*TWINS.items()), ALONE)],
    measure=partial(measure, scopes=[0, 3, 4, 6, 9, 12]),
    show=_show,
)
