"""Ranks: the processes of one run, as ``torchrun`` starts them. A process on its own is rank 0 of 1, and pays nothing.

Whatever is done to many images is done to ``share(rows)`` of them by each rank, and ``gathered`` again; rank 0 tells
and writes. What a rank learns from the others is the same bits on all of them, so all decide alike. Ranks exchange
what they found through gloo; gradients on GPUs go through nccl.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

__all__ = [
    "LostRank",
    "check_enough",
    "count",
    "device",
    "gathered",
    "gathered_json",
    "is_first",
    "joined",
    "rank",
    "share",
    "summed",
]

Rows = TypeVar("Rows")
TIMEOUT = "UNSHIFT_RANK_TIMEOUT"
"""The environment variable with the seconds that ranks wait for each other. Default: 600."""


class LostRank(ValueError):
    """Another process of the run is gone, or does not answer."""


def rank() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def count() -> int:
    """Return how many processes there are."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def is_first() -> bool:
    """Tell whether this is the rank that tells and writes."""
    return rank() == 0


def device(name: str) -> str:
    """Return the device of this rank: of several GPUs, the one with its number on this machine."""
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if name == "cuda" and count() > 1 else name


def share(rows: Rows) -> Rows:
    """Return every ``count()``-th of ``rows``, from this rank's own number on."""
    found: Any = rows
    return found[rank() :: count()] if count() > 1 else rows


def check_enough(rows: int) -> None:
    """Raise a ``ValueError`` if there is not an image for each rank."""
    if rows < count():
        raise ValueError(f"{count()} processes are more than the {rows} images they are to share; start fewer")


def summed(values: list[float]) -> list[float]:
    """Return the sums of some numbers over all ranks."""
    if count() == 1:
        return values
    total = torch.tensor(values, dtype=torch.float64)
    distributed.all_reduce(total)
    return [float(value) for value in total]


def gathered(rows: Tensor) -> Tensor:
    """Return the rows ``(n, ...)`` of all ranks, one rank after another; each may have another ``n``."""
    if count() == 1:
        return rows
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(count())]
    distributed.all_gather(sizes, torch.tensor([len(rows)]))
    padded = torch.zeros(max(1, *(int(n) for n in sizes)), *rows.shape[1:], dtype=rows.dtype)
    padded[: len(rows)] = rows
    parts = [torch.zeros_like(padded) for _ in range(count())]
    distributed.all_gather(parts, padded)
    return torch.cat([part[: int(n)] for part, n in zip(parts, sizes, strict=True)])


def gathered_json(rows: list[Any]) -> list[Any]:
    """Return the rows of all ranks, one rank after another: plain data, as JSON can hold it."""
    if count() == 1:
        return rows
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    every = bytes(gathered(torch.frombuffer(bytearray(b"\n" + text), dtype=torch.uint8)).numpy())
    return [json.loads(line) for line in every.splitlines() if line]


def _attempt() -> str:
    """Return a name for this start of the processes: of another one, addresses that no longer hold may be left.

    ``torchrun`` on one machine, told the port, keeps its store over restarts. On several machines, or with
    ``--standalone``, each start has a store of its own; their counts of restarts may then differ.
    """
    alone = os.environ.get("GROUP_WORLD_SIZE") == "1"
    return f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}" if alone else "attempt"


@contextmanager
def joined(arguments: list[str]) -> Iterator[None]:
    """Join the other ranks for a while, if ``torchrun`` started any.

    Args:
        arguments: What this rank was asked to do: the ranks must agree.

    Raises:
        ValueError: If they do not.
        LostRank: If another rank ended, or did not answer in time.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield
        return
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    limit = timedelta(seconds=float(os.environ.get(TIMEOUT, 600)))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, number, size = next(rendezvous("env://", timeout=limit))
        store = PrefixStore(_attempt(), store)
        distributed.init_process_group(backend, store=store, rank=number, world_size=size, timeout=limit)
        told = gathered_json([arguments])
        if other := next((number for number, found in enumerate(told) if found != told[0]), None):
            raise ValueError(
                f"the processes of a run must have the same arguments: rank 0 has {' '.join(told[0])!r}, "
                f"rank {other} has {' '.join(told[other])!r}"
            )
        yield
        distributed.barrier()  # none leaves while another may still wait for it
    except RuntimeError as error:  # gloo has no other
        if not any(word in str(error) for word in ("gloo", "Gloo", "NCCL", "store", "peer", "Timed out", "timed out")):
            raise
        first = str(error).splitlines()[0]
        raise LostRank(f"another process of the run ended, or did not answer: {first}") from error
    finally:
        gc.collect()  # what holds on to the group would end its threads later, when the interpreter is half gone
        if distributed.is_initialized():
            distributed.destroy_process_group()
