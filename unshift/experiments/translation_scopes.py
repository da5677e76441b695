"""Table 1: accuracy over translation scopes 0 to 8, bare and restored."""

from __future__ import annotations

from functools import partial

from unshift.experiments.accuracy_table import curve, measure, table
from unshift.experiments.cases import CASES
from unshift.experiments.record import Block, Experiment, Results

PAPER = {
    "mnist": {
        "classifier": "LeNet-5",
        "without": [98.89, 98.21, 95.41, 87.07, 76.61, 62.9, 51.33, 41.1, 35.7],
        "restored": 98.59,
    },
    "cifar10-resnet18": {
        "classifier": "ResNet-18",
        "without": [88.21, 86.58, 85.9, 83.65, 82.16, 80.46, 79.37, 77.71, 76.01],
        "restored": 88.18,
    },
}


def _show(case: str, results: Results) -> list[Block]:
    result, paper = results[case], PAPER.get(case)
    return [table(result, paper), curve(f"table1-{case}", [result], paper)]


def _headline(results: Results) -> tuple[str, str] | None:
    if "mnist" not in results:
        return None
    result = results["mnist"]
    bare = result["without"]
    name, entry = next(iter(result["restored"].items()))
    flat = entry["same_at_every_scope"]
    said = "the same number in every column, because the restored image is the same image" if flat else "nearly flat"
    return (
        f"{entry['accuracy'][-1]:.2f}% instead of {bare[-1]:.2f}%",
        f"{result['classifier']} on {result['data']} falls from {bare[0]:.2f}% to {bare[-1]:.2f}% when digits shift by "
        f"up to {result['scopes'][-1]} pixels. Behind the restorer {name}, without retraining: "
        f"{entry['accuracy'][-1]:.2f}%, {said}.",
    )


EXPERIMENT = Experiment(
    name="table1",
    item="Table 1",
    title="accuracy over translation scopes",
    claim="With a restorer the accuracy is one number at every scope, because the restored image is the same image.",
    cost="LeNet-5/MNIST 5 min, ResNet-18/CIFAR-10 1 h, LeNet-5/Fashion-MNIST 4 min",
    paper=PAPER,
    cases=[CASES[name] for name in ("mnist", "cifar10-resnet18", "fashion-mnist")],
    measure=partial(measure, scopes=list(range(9)), bare=10_000),
    show=_show,
    headline=_headline,
)
