"""Muon: orthogonalised momentum for filter banks, Adam for biases and single filters.

The gradient of a filter bank is dominated by a few directions. Muon (Jordan 2024) gives all directions of the update
``(out, in x kernel)`` the same length, so that weak ones are learnt too: photos need a fraction of Adam's epochs.
``torch.optim.Muon`` takes matrices only, and needs a newer PyTorch than this library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

__all__ = ["Muon"]

MOMENTUM = 0.9


class Muon(torch.optim.Adam):
    """Muon and Adam with one learning rate: Muon's update is scaled to the size of Adam's (Liu 2025)."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(parameters, lr=lr)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None or parameter.ndim <= 2 or parameter.shape[0] == 1:
                    continue
                state = self.state[parameter]
                momentum = state.setdefault("momentum", torch.zeros_like(parameter))
                state["step"] = torch.zeros(())  # Adam expects one in every state that it loads
                momentum.mul_(MOMENTUM).add_(gradient)
                update = orthogonal((gradient + MOMENTUM * momentum).flatten(1))
                parameter.add_(update.view_as(parameter), alpha=-0.2 * group["lr"] * max(update.shape) ** 0.5)
                parameter.grad = None  # hides it from Adam
        super().step()


def orthogonal(matrix: Tensor) -> Tensor:
    """Bring all singular values of ``matrix`` near 1: five Newton-Schulz steps with Jordan's coefficients."""
    tall = matrix.shape[0] > matrix.shape[1]
    x: Tensor = matrix.mT if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (2.0315 * square @ square - 4.7750 * square) @ x
    return x.mT if tall else x
