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


@pytest.fixture(autouse=True)
def hush():
    """Such short runs do not get past guessing; one test of training is about that warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "after one epoch the loss", UserWarning)
        yield


@pytest.fixture(scope="module")
def pixels() -> Tensor:
    return (400 * blobs(60, 1, (12, 12))).round().to(torch.uint8)
