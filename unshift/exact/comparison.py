"""Compare the restored arrays of tied candidates one by one, for poses whose candidates are not positions.

The arrays of one image may differ in shape: the larger first axis wins, then the next, then the first larger pixel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unshift.exact import graph
from unshift.exact.choice import ordered_bits
from unshift.exact.runtime import in_graphs
from unshift.shifts import integer_view


@in_graphs(graph.largest)
def largest(restored: Callable[[Tensor, Tensor], Tensor], count: int, among: Tensor, tied: Tensor) -> Tensor:
    """Return, for each tied image, the candidate with the largest restored array, the first of equals.

    Args:
        restored: From an image's index ``(1,)`` and a candidate ``(1,)`` to the array that the candidate restores.
        count: Number of entries of an array.
        among: bool ``(batch, candidates)``: the candidates to compare.
        tied: bool ``(batch,)``. For all other images the first of ``among`` is returned.
    """
    index = among.to(torch.uint8).argmax(1)
    for row in tied.nonzero().flatten().split(1):
        champion: Tensor | None = None
        for candidate in among[row[0]].nonzero().flatten().split(1):
            own = restored(row, candidate)
            if champion is None or _exceeds(own, champion):
                index[row], champion = candidate, own
    return index


def _exceeds(one: Tensor, other: Tensor) -> bool:
    """Return whether ``one`` is larger than ``other``. Compute the key of one pixel only, because pages are large."""
    if one.shape != other.shape:
        return tuple(one.shape) > tuple(other.shape)
    first = (integer_view(one) != integer_view(other)).flatten().to(torch.uint8).argmax()
    return bool(ordered_bits(one.flatten()[first]) > ordered_bits(other.flatten()[first]))
