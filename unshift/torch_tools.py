"""PyTorch's own tools on a restorer: what works, and what to use instead of what cannot.

``torch.export`` takes the integers into the graph. ``torch.compile`` compiles what stands around them, and calls the
estimate as one operator: its integers are exact as they are, and a compiler could only make them wrong. ``torch.jit``
and ``vmap`` cannot record a choice that depends on values, and say so.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["compiled_estimate", "refuse_recorders", "refuse_scripts", "register"]

_numbers = itertools.count()
_estimators: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def register(restorer: Any) -> int:
    """Return a number by which the operator finds ``restorer`` again."""
    number = next(_numbers)
    _estimators[number] = restorer
    return number


INSTEAD = "torch.export.export(model, (images,)), or unshift.export(restorer, 'model.onnx', classifier=...)"


def refuse_scripts() -> None:
    """Raise a ``ValueError`` in ``torch.jit.script``, with what to use instead."""
    raise ValueError(f"torch.jit.script cannot compile a restorer; use {INSTEAD}")


def refuse_recorders(images: Any) -> None:
    """Raise a ``ValueError`` in ``torch.jit.trace`` and ``vmap``, with what to use instead."""
    if torch._C._is_tracing():
        raise ValueError(
            f"torch.jit.trace cannot record a restorer, whose answer is a choice among values; use {INSTEAD}"
        )
    if isinstance(images, Tensor) and torch._C._functorch.is_batchedtensor(images):
        raise ValueError(
            "vmap cannot run a restorer, whose answer is a choice among values; a restorer takes batches as they are: "
            "call it on all images at once, as (batch, channel, *spatial)"
        )


@torch.library.custom_op("unshift::estimate", mutates_args=())
def _estimate(images: Tensor, of: Tensor, number: int) -> list[Tensor]:
    found = _estimators[number].estimate(images, of)
    zeros = images.new_zeros(len(images), dtype=torch.int64)
    turn = zeros if found.turn is None else found.turn
    angle = zeros.to(torch.float64) if found.angle is None else found.angle
    return [part.clone() for part in (found.shift, turn, angle, found.confidence, found.tied)]


@_estimate.register_fake
def _shapes(images: Tensor, of: Tensor, number: int) -> list[Tensor]:
    kinds = (torch.int64, torch.float64, torch.float64, torch.bool)
    shift = images.new_empty((images.shape[0], images.ndim - 2), dtype=torch.int64)
    return [shift, *(images.new_empty((images.shape[0],), dtype=kind) for kind in kinds)]


def compiled_estimate(images: Tensor, of: Tensor, number: int, reads: frozenset[str], make: Callable[..., Any]) -> Any:
    """Return the estimate of a restorer that is :func:`register`-ed, as one operator of the graph being compiled."""
    shift, turn, angle, confidence, tied = _estimate(images, of, number)
    return make(shift, turn if "turn" in reads else None, angle if "angle" in reads else None, confidence, tied)
