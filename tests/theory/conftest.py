"""The data of the tests of theory."""

from __future__ import annotations

import pytest
from torch import Tensor

from unshift.data import DataError, dataset


@pytest.fixture(scope="module")
def mnist() -> Tensor:
    """All 60,000 training images of MNIST, uint8 ``(60000, 1, 28, 28)``."""
    try:
        return dataset("mnist", download=False).images
    except DataError as error:
        pytest.skip(str(error))
