"""Tell the C allocator to keep the memory that training, and reading many images, frees.

PyTorch asks for the same large blocks in every step. By default glibc maps a block above some megabytes again each time
and gives it back at once, and the kernel fills every page of it with zeros when it is touched: a training epoch took
58 s, and 17 s with these settings. Threads that decode images wait for each other there: two were 1.2 times as quick as
one, and 1.9 times with these settings. They hold for the whole process, so only commands that do such work set them.

Blocks above :data:`LARGEST` are given back all the same. What is kept lies between blocks that are in use, and the
larger a block is, the longer until it fits somewhere again: so memory would grow with the length of a run. No step of
training asks for so large a block, but of images that have one by themselves (:data:`unshift.training_run.AT_ONCE`).

In Python, set them before the process starts: see ``docs/faq.md``. And tell oneDNN not to keep what it makes for every
size, where each input has its own.
"""

from __future__ import annotations

import ctypes
import os

__all__ = ["forget_sizes", "keep_freed_memory"]

# malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST = 2**25
"""Bytes of the largest block that is kept: the most that glibc allows."""


def keep_freed_memory() -> bool:
    """Set the allocator, if it is glibc's; tell whether it was. Any other allocator is left alone."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no such function, or (on Windows) no such library
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    large = mallopt(M_MMAP_THRESHOLD, LARGEST)
    kept = mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    return bool(large and kept and mallopt(M_TOP_PAD, 64 * 2**20))


def forget_sizes() -> None:
    """Let oneDNN keep its kernels for a few sizes only, before the first of them is made.

    Sequences have a length of their own each. For 1,000 of them the kernels took 0.7 GB, none of which was used again.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
