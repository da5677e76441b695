"""``mnist3d`` under its old name. Call ``dataset("mnist3d", split)`` instead."""

from __future__ import annotations

from unshift.data.catalogue import dataset
from unshift.data.pixels import ImageSet

__all__ = ["mnist3d"]


def mnist3d(split: str = "train") -> ImageSet:
    """Load 3D-MNIST."""
    return dataset("mnist3d", split)
