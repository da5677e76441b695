"""Random data sets of which no image is a shift of another, and all their shifted copies."""

from __future__ import annotations

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from unshift.theory import (
    is_aperiodic,
)

small_sizes = st.sampled_from([(4,), (7,), (3, 3), (2, 5), (2, 2, 3)])

seeds = st.integers(0, 2**31)

quick = settings(max_examples=25, deadline=None)


def aperiodic_dataset(seed: int, count: int, channels: int, size: tuple[int, ...], levels: int) -> Tensor:
    """Random images, none a shift of another."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.zeros(0, channels, *size, dtype=torch.int64)
    for _ in range(50 * count):
        candidate = torch.cat([kept, torch.randint(levels, (1, channels, *size), generator=generator)])
        answer = is_aperiodic(candidate)
        kept = candidate if answer and not answer.repeats else kept
        if len(kept) == count:
            break
    return kept
