"""Ranks: the processes of one run, as ``torchrun`` starts them. A single process is rank 0 of 1, without overhead.

Each rank handles its ``share`` of the work, and the results are ``gathered`` through gloo (gradients on GPUs through
nccl). Only rank 0 logs and writes. Gathered values have the same bits on all ranks, so all ranks decide alike.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

Rows = TypeVar("Rows")
TIMEOUT = "UNSHIFT_RANK_TIMEOUT"  # environment variable: seconds that ranks wait for each other. Default: 600.


class LostRank(ValueError):
    """Another process of the run ended or does not answer."""


def rank() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def count() -> int:
    """Return the number of processes."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def is_first() -> bool:
    """Return whether this is rank 0, the one that logs and writes."""
    return rank() == 0


def device(name: str) -> str:
    """Return the device of this rank: ``"cuda"`` becomes the GPU with this rank's number on its machine."""
    return f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if name == "cuda" and count() > 1 else name


def share(rows: Rows) -> Rows:
    """Return every ``count()``-th of ``rows``, starting with this rank's number."""
    sequence: Any = rows
    return sequence[rank() :: count()] if count() > 1 else rows


def check_enough(rows: int) -> None:
    """Raise a ``ValueError`` if there are fewer images than ranks."""
    if rows < count():
        raise ValueError(f"{count()} processes are more than the {rows} images they are to share; start fewer")


def summed(values: list[float]) -> list[float]:
    """Return the sums of numbers over all ranks."""
    if count() == 1:
        return values
    total = torch.tensor(values, dtype=torch.float64)
    distributed.all_reduce(total)
    return [float(value) for value in total]


def gathered(rows: Tensor) -> Tensor:
    """Concatenate the rows ``(n, ...)`` of all ranks, where ``n`` may differ between ranks."""
    return torch.cat(_gather(rows)) if count() > 1 else rows


def gathered_json(rows: list[Any]) -> list[Any]:
    """Concatenate the rows of all ranks, plain data."""
    return [row for part in _gather(rows) for row in part] if count() > 1 else rows


def _gather(value: Any) -> list[Any]:
    parts: list[Any] = [None] * count()
    distributed.all_gather_object(parts, value)
    return parts


def _attempt() -> str:
    """Return a prefix for the keys of this start of the processes, because the store may hold keys of an earlier start.

    ``torchrun`` with a given port on one machine keeps its store over restarts. On several machines, or with
    ``--standalone``, each start has a new store, and the counts of restarts may differ between machines.
    """
    alone = os.environ.get("GROUP_WORLD_SIZE") == "1"
    return f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}" if alone else "attempt"


@contextmanager
def process_group(arguments: list[str]) -> Iterator[None]:
    """Join the other ranks inside the ``with`` block, if ``torchrun`` started any.

    ``arguments`` is the command line of this rank; a ``ValueError`` is raised if those of others differ. Raise
    :class:`LostRank` if another rank ended, or did not answer in time.
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
        given = gathered_json([arguments])
        if other := next((number for number, words in enumerate(given) if words != given[0]), None):
            raise ValueError(
                f"the processes of a run must have the same arguments: rank 0 has {' '.join(given[0])!r}, "
                f"rank {other} has {' '.join(given[other])!r}"
            )
        yield
        distributed.barrier()  # so that no rank exits while another waits for it
    except RuntimeError as error:  # the most specific type that gloo raises
        if not any(word in str(error) for word in ("gloo", "Gloo", "NCCL", "store", "peer", "Timed out", "timed out")):
            raise
        first = str(error).splitlines()[0]
        raise LostRank(f"another process of the run ended, or did not answer: {first}") from error
    finally:
        gc.collect()  # a live reference to the group would end its threads during interpreter shutdown
        if distributed.is_initialized():
            distributed.destroy_process_group()
