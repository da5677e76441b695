"""Ranks: the processes of one run, as ``torchrun`` starts them. A process on its own is rank 0 of 1, and pays nothing.

Whatever is done to many images is done to ``share(rows)`` of them by each rank, and ``gathered`` again; rank 0 tells
and writes. What a rank learns from the others is the same bits on all of them, so all decide alike.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

__all__ = ["count", "gathered", "gathered_json", "is_first", "rank", "share", "summed"]

Rows = TypeVar("Rows", Tensor, list[Any])


def rank() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def count() -> int:
    """Return how many processes there are."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def is_first() -> bool:
    """Tell whether this is the rank that tells and writes."""
    return rank() == 0


def share(rows: Rows) -> Rows:
    """Return every ``count()``-th of ``rows``, from this rank's own number on."""
    return rows[rank() :: count()] if count() > 1 else rows


def summed(values: list[float]) -> list[float]:
    """Return the sums of some numbers over all ranks."""
    if count() == 1:
        return values
    total = torch.tensor(values, dtype=torch.float64, device=_device())
    distributed.all_reduce(total)
    return [float(value) for value in total]


def gathered(rows: Tensor) -> Tensor:
    """Return the rows ``(n, ...)`` of all ranks, one rank after another; each may have another ``n``."""
    if count() == 1:
        return rows
    device = _device()
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(count())]
    distributed.all_gather(sizes, torch.tensor([len(rows)], device=device))
    padded = torch.zeros(max(1, *(int(n) for n in sizes)), *rows.shape[1:], dtype=rows.dtype, device=device)
    padded[: len(rows)] = rows
    parts = [torch.zeros_like(padded) for _ in range(count())]
    distributed.all_gather(parts, padded)
    return torch.cat([part[: int(n)] for part, n in zip(parts, sizes, strict=True)]).to(rows.device)


def gathered_json(rows: list[Any]) -> list[Any]:
    """Return the rows of all ranks, one rank after another: plain data, as JSON can hold it."""
    if count() == 1:
        return rows
    text = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    return [
        json.loads(line)
        for line in bytes(gathered(torch.frombuffer(bytearray(text or b"\n"), dtype=torch.uint8)).tolist()).splitlines()
        if line
    ]


def _device() -> torch.device:
    """Return where the ranks exchange tensors."""
    return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
