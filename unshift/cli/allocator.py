"""Process-wide settings of the memory allocator and of oneDNN, for commands that train or read many images.

PyTorch allocates the same large blocks in every step. By default glibc maps such a block anew each time, which
costs a page fault for each of its pages: a training epoch took 58 s, and 17 s with these settings; two threads that
decode images were 1.2 times as fast as one, and 1.9 times with them. Blocks above :data:`LARGEST_BLOCK` are still
returned to the system, because they would fragment the memory; training allocates no block of this size.

The library does not set them; ``docs/faq.md`` shows how to set them from outside a process.
"""

from __future__ import annotations

import ctypes
import os

# malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST_BLOCK = 2**25
"""Bytes of the largest block that is reused: the most that glibc allows."""


def raise_mmap_threshold() -> bool:
    """Let glibc reuse large freed blocks. Return whether it does; other allocators are left alone."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no such function, or (on Windows) no such library
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    settings = ((M_MMAP_THRESHOLD, LARGEST_BLOCK), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 * 2**20))
    results = [mallopt(name, value) for name, value in settings]
    return all(results)


def limit_onednn_cache() -> None:
    """Limit the number of kernels that oneDNN caches, one per image size. Call it before the first convolution.

    The kernels for 1,000 sequences of different lengths took 0.7 GB, and none was used twice.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
