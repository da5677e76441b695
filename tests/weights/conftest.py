"""The restorer file that the tests damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import make_restorer


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """Return a file small enough to damage every byte of it."""
    restorer = make_restorer("paper", 1, (6, 6))
    restorer.metadata, restorer.trained_on = {"preset": "paper", "data": "blobs"}, {"size": [6, 6]}
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    restorer.save(path)
    return path
