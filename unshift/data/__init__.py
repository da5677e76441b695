"""Images to restore: named data sets (one embedded), folders, tar shards, NumPy files, FASTA."""

from __future__ import annotations

from unshift.data.catalogue import dataset, get
from unshift.data.files import DataError, root
from unshift.data.photos import ImageFiles, ImageFolder
from unshift.data.pixels import ImageSet, prepare, resize, to_float
from unshift.data.sources import open_images, open_source
from unshift.shifts import add_margin as pad

__all__ = ["DataError", "ImageFiles", "ImageFolder", "ImageSet", "dataset", "get", "open_images", "open_source", "pad",
           "prepare", "resize", "root", "to_float"]  # fmt: skip
