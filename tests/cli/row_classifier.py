"""A classifier to evaluate, and what evaluating it must say."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import unshift
from unshift import evaluation
from unshift.data import to_float


class Rows(nn.Module):
    """Classifies by the brightness of three bands of rows: the shift matters."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(images.mean(1, keepdim=True), (3, 1)).flatten(1)


def classify(made: Path, spec: object, *options: object) -> tuple[object, ...]:
    data, restorer = made / "labelled.npz", made / "paper.safetensors"
    return ("evaluate", "--data", data, "--restorer", restorer, "--classifier", spec, "--scopes", "0,3", *options)


def wanted_rows(made: Path, pixels: torch.Tensor, seeds: int = 1) -> list[evaluation.ScopeRow]:
    return evaluation.accuracy_over_scopes(
        Rows(),
        to_float(pixels),
        torch.arange(len(pixels)) % 3,
        unshift.load(made / "paper.safetensors"),
        scopes=[0, 3],
        seeds=range(seeds),
    )
