"""Fixtures that several test files share."""

from __future__ import annotations

import contextlib
import os
import signal

os.environ["OMP_NUM_THREADS"] = "1"  # tests run one process a core; two threads each would fight over them

import pytest
import torch

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would the processes they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)


@pytest.fixture
def threads():
    """Return a function that sets the number of threads. The number before is restored after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
