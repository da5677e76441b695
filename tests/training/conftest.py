"""Fixtures of the tests of training."""

from __future__ import annotations

import warnings

import pytest
import torch
from samples import blobs
from torch import Tensor


@pytest.fixture(scope="module")
def images() -> Tensor:
    return blobs(60, 1, (12, 12))


@pytest.fixture(scope="module")
def pixels() -> Tensor:
    return (400 * blobs(60, 1, (12, 12))).round().to(torch.uint8)


@pytest.fixture(autouse=True)
def ignore_guessing():
    """Such short runs are no better than guessing; one test is about that warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*guessing", UserWarning)
        yield
