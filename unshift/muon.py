"""Muon: Adam for biases and scores, an orthogonalised momentum for all filters with several outputs.

A gradient of a filter bank is dominated by a few directions; Muon (Jordan 2024) makes all directions of the update
``(out, in x kernel)`` equally long, so the weak ones are learnt too. On photos it needs a fraction of Adam's epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Muon"]


class Muon(torch.optim.Optimizer):
    """One learning rate for both kinds: Muon's update is scaled to the size that Adam's has (Liu 2025)."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, betas: tuple[float, float] = (0.9, 0.999), momentum: float = 0.9
    ) -> None:
        # "betas" among the defaults is what OneCycleLR cycles; Muon's own momentum stays.
        super().__init__(parameters, {"lr": lr, "betas": betas, "muon_momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    turn = _muon if parameter.ndim > 2 and parameter.shape[0] > 1 else _adam
                    turn(parameter, parameter.grad, self.state[parameter], group)


def _muon(parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
    if not state:
        state["momentum"] = torch.zeros_like(parameter)
    momentum = state["momentum"].mul_(group["muon_momentum"]).add_(gradient)
    update = orthogonal((gradient + group["muon_momentum"] * momentum).flatten(1))
    parameter.add_(update.view_as(parameter), alpha=-0.2 * group["lr"] * max(update.shape) ** 0.5)


def _adam(parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
    if not state:
        state |= {"step": torch.zeros(()), "mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter)}
    first, second = group["betas"]
    step = float(state["step"].add_(1))
    mean = state["mean"].lerp_(gradient, 1 - first)
    square = state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
    size = (square / (1 - second**step)).sqrt_().add_(1e-8)
    parameter.addcdiv_(mean, size, value=-group["lr"] / (1 - first**step))


def orthogonal(matrix: Tensor) -> Tensor:
    """Bring all singular values of ``matrix`` near 1: five Newton-Schulz steps with Jordan's coefficients."""
    tall = matrix.shape[0] > matrix.shape[1]
    x: Tensor = matrix.mT if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (2.0315 * square @ square - 4.7750 * square) @ x
    return x.mT if tall else x
