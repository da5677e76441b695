"""Fixtures that several test files share."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # tests run one process a core; two threads each would fight over them

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def threads():
    """A function that sets the number of threads; what it was before is restored after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
