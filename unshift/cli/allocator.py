"""Process-wide settings of the memory allocator and of oneDNN, for commands that train or read many images.

By default glibc maps a large block anew each time, and each page of it faults and is zeroed: a training epoch took 58
s, and 17 s with these settings. The library does not set them; ``docs/faq.md`` shows how to from outside a process.
"""

from __future__ import annotations

import ctypes
import os

# malloc.h
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST_BLOCK = 2**25  # bytes of the largest block that is reused: the most that glibc allows


def raise_mmap_threshold() -> bool:
    """Let glibc reuse large freed blocks. Return whether it does; other allocators are left alone."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no such function, or (on Windows) no such library
        return False
    settings = ((M_MMAP_THRESHOLD, LARGEST_BLOCK), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 * 2**20))
    results = [mallopt(name, value) for name, value in settings]
    return all(results)


def limit_onednn_cache() -> None:
    """Limit the kernels that oneDNN caches: one per image size, 0.7 GB for 1,000. Call before the first convolution."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
