"""Images from image files: single files, folders, and WebDataset shards (tar files of images).

Images in a folder, at any depth, are sorted by path. If every image is in a subfolder, the top one is its class. Pixels
are read as displayed: turned by their EXIF orientation, transparency on white, the first frame of an animation, 16-bit
greys scaled to 8 bits. Every format that Pillow reads is accepted, except those that need another program or are not
images.
"""

from __future__ import annotations

import copy
import functools
import io
import os
import stat
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import Dataset

from unshift.data.pixels import check_options, prepare
from unshift.inputs import flatten_alpha

_REFUSED = {"EPS", "WMF", "HDF5", "GRIB", "BUFR", "MPEG"}


@functools.cache
def suffixes() -> frozenset[str]:
    """Return the suffixes of the image files that are read, such as ``.png``."""
    known = Image.registered_extensions()
    return frozenset(suffix for suffix, kind in known.items() if kind in Image.OPEN and kind not in _REFUSED)


class ImageFiles(Dataset[Tensor]):
    """Image files, each read on access as ``uint8`` ``(channels, h, w)``, grey or RGB.

    With a ``size`` ``(height, width)`` all are resized, bilinear and antialiased as in Pillow: ``fit="resize"``
    stretches, ``"crop"`` scales to cover the size and crops the centre.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        size: tuple[int, int] | None = None,
        fit: str = "resize",
        channels: int = 3,
    ) -> None:
        check_options(size, fit, channels)
        # An array of bytes: a list of a million paths takes ten times the memory, in every worker.
        self._paths = np.array([os.fsencode(path) for path in paths] or [b""], dtype=bytes)[: len(paths)]
        self.size, self.fit, self.channels = size, fit, channels
        self.preparation: Mapping[str, Any] = {}
        self.classes: tuple[str, ...] = ()
        self.labels: Tensor | None = None

    def __len__(self) -> int:
        return len(self._paths)

    def name(self, index: int) -> str:
        """Return the path of a file."""
        return os.fsdecode(bytes(self._paths[index]))

    def prepared(self, preparation: Mapping[str, Any], limit: int | None = None) -> ImageFiles:
        """Return the first ``limit`` files, to be prepared by :func:`~.pixels.prepare` when they are read."""
        files = copy.copy(self)
        files._paths, files.preparation = self._paths[:limit], preparation
        return files

    def __getitem__(self, index: int) -> Tensor:
        return self._decode(self.name(index), self.name(index))

    def _decode(self, file: str | BinaryIO, name: str) -> Tensor:
        try:
            if isinstance(file, str):
                check_regular(file)
            # Explicit formats: a wrong suffix must not lead to the refused ones.
            with Image.open(file, formats=_formats()) as opened:
                opened.filename = ""  # else Pillow maps uncompressed TIFF files, and mixes up the pixels of turned ones
                image = flatten_alpha(ImageOps.exif_transpose(opened))
            image = image.convert("L" if self.channels == 1 else "RGB")
        # Pillow's decoders raise anything: OSError, SyntaxError, struct.error, ...
        except Exception as error:
            raise ValueError(f"{name} cannot be read as an image ({error})") from error
        if self.size is not None:
            width_height, scale = (self.size[1], self.size[0]), Image.Resampling.BILINEAR
            crop = self.fit == "crop"
            image = ImageOps.fit(image, width_height, scale) if crop else image.resize(width_height, scale)
        pixels = np.array(image)
        planes = torch.from_numpy(pixels[None] if self.channels == 1 else pixels.transpose(2, 0, 1).copy())
        return prepare(planes[None], self.preparation)[0]


class ImageFolder(ImageFiles):
    """All image files in a folder, at any depth, in the order of their paths.

    ``options`` are the ``size``, ``fit`` and ``channels`` of :class:`ImageFiles`.
    """

    def __init__(self, folder: str | os.PathLike[str], **options: Any) -> None:
        names = image_names(Path(folder))
        super().__init__([Path(folder) / name for name in names], **options)
        if all("/" in name for name in names):
            tops = [name.split("/", 1)[0] for name in names]
            classes, labels = np.unique(tops, return_inverse=True)
            self.classes, self.labels = tuple(classes.tolist()), torch.from_numpy(labels)


class ShardFiles(ImageFiles):
    """All image files in uncompressed tar archives, in their order; the options are those of :class:`ImageFiles`."""

    def __init__(self, shards: Sequence[Path], **options: Any) -> None:
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
        super().__init__(names, **options)
        self.shards = [os.fspath(shard) for shard in shards]
        self._places = np.array(places, dtype=np.int64)

    def name(self, index: int) -> str:
        """Return the shard and the name of a file in it."""
        return f"{self.shards[self._places[index, 0]]}:{super().name(index)}"

    def __getitem__(self, index: int) -> Tensor:
        shard, start, length = self._places[index].tolist()
        with open(self.shards[shard], "rb") as archive:
            archive.seek(start)
            content = archive.read(length)
        return self._decode(io.BytesIO(content), self.name(index))


def image_names(folder: Path, documents: tuple[str, ...] = ()) -> list[str]:
    """Return the sorted relative paths of all image files in ``folder``, at any depth. Raise if there are none.

    ``documents`` are the suffixes of other files to list.
    """
    # Broken links and pipes are listed too: reading them reports the error.
    wanted = (*suffixes(), *documents)
    files = (path for path in folder.rglob("*") if path.suffix.lower() in wanted and not path.is_dir())
    paths = [path.relative_to(folder) for path in files]
    names = sorted(path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts))
    if not names:
        raise ValueError(f"{folder} holds no image files, such as .png or .jpg")
    return names


def check_regular(file: str | os.PathLike[str]) -> None:
    """Raise an ``OSError`` if a file is absent, or is a pipe or device, where a read might wait forever."""
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise OSError("it is not a regular file")


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(kind for kind in Image.ID if kind not in _REFUSED)
