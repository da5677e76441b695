"""WebDataset shards: tar files of images, read where they are, in any order.

A shard is a plain tar archive. Where each image begins in it is noted once, so its images are read as those of a folder
are, by any number of workers and in the order that a seed gives. Shards that are elsewhere can come through the
``webdataset`` package: ``fit`` takes its data sets as it takes any ``IterableDataset``.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from unshift.data.photos import ImageFiles, decoded, suffixes

__all__ = ["ShardFiles"]


class ShardFiles(ImageFiles):
    """All image files in tar archives, in their order.

    Args:
        shards: The archives, not compressed.
        size: See :class:`ImageFiles`, as for ``fit`` and ``channels``.

    Raises:
        ValueError: If an archive cannot be read, or none holds an image.
    """

    def __init__(
        self,
        shards: Sequence[Path],
        *,
        size: tuple[int, int] | None = None,
        fit: str = "resize",
        channels: int = 3,
    ) -> None:
        names, places = [], []
        for number, shard in enumerate(shards):
            try:
                with tarfile.open(shard, "r:") as archive:
                    for member in archive:
                        if member.isfile() and os.path.splitext(member.name)[1].lower() in suffixes():
                            names.append(member.name)
                            places.append((number, member.offset_data, member.size))
            except (tarfile.TarError, OSError, EOFError) as error:
                raise ValueError(f"{shard} cannot be read as a tar archive ({error})") from error
        if not names:
            raise ValueError(f"{shards[0]} holds no image files, such as .png or .jpg")
        super().__init__(names, size=size, fit=fit, channels=channels)
        self.shards = [os.fspath(shard) for shard in shards]
        self._places = np.array(places, dtype=np.int64)

    def name(self, index: int) -> str:
        """Return the shard and the name of a file in it."""
        return f"{self.shards[self._places[index, 0]]}:{super().name(index)}"

    def __getitem__(self, index: int) -> Tensor:
        shard, begin, length = self._places[index].tolist()
        with open(self.shards[shard], "rb") as archive:
            archive.seek(begin)
            content = archive.read(length)
        return decoded(io.BytesIO(content), self.name(index), self.size, self.fit, self.channels)
