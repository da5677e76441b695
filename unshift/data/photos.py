"""Images from image files: one, or all in a folder and the folders in it.

The images of a folder come in the order of their paths. Names that start with a dot are skipped, and so are
files that do not end like an image. If every image is in a subfolder, the name of the subfolder is its class:
``cat/1.jpg`` and ``dog/2.jpg`` have the classes 0 and 1.

Pixels are read as they would be shown: turned by their EXIF orientation, transparency on white, the
first frame of an animation, 16-bit greys scaled to 8 bits. Every format that Pillow reads is accepted, except
those that need another program (EPS, WMF) or hold no image (HDF5, GRIB, BUFR, MPEG).
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import Dataset

from unshift.data.pixels import check_channels, check_fit
from unshift.pictures import flat
from unshift.progress import tracked

__all__ = ["ImageFiles", "ImageFolder", "decoded", "image_names", "load_files", "suffixes"]

_REFUSED = {"EPS", "WMF", "HDF5", "GRIB", "BUFR", "MPEG"}


@functools.cache
def suffixes() -> frozenset[str]:
    """Return the endings of the image files that are read, such as ``.png``."""
    known = Image.registered_extensions()
    return frozenset(suffix for suffix, kind in known.items() if kind in Image.OPEN and kind not in _REFUSED)


class ImageFiles(Dataset[Tensor]):
    """Image files, each read when it is asked for: item ``i`` is a ``uint8`` image ``(channels, h, w)``.

    Args:
        paths: The files.
        size: Bring all to this ``(height, width)``. Scaling is bilinear and antialiased, as Pillow does it.
        fit: How: ``"resize"`` stretches, ``"crop"`` scales to cover the size and cuts out the middle.
        channels: 1 (grey) or 3 (RGB).
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        size: tuple[int, int] | None = None,
        fit: str = "resize",
        channels: int = 3,
    ) -> None:
        check_fit(fit)
        check_channels(channels)
        if size is not None and (len(size) != 2 or min(size) < 1):
            raise ValueError(f"size must be (height, width), both at least 1, got {size}")
        # One array of bytes: a list of a million paths takes ten times as much, and again in every worker.
        self._paths = np.array([os.fsencode(path) for path in paths] or [b""], dtype=bytes)[: len(paths)]
        self.size, self.fit, self.channels = size, fit, channels
        self.classes: tuple[str, ...] = ()
        self.labels: Tensor | None = None

    def __len__(self) -> int:
        return len(self._paths)

    def name(self, index: int) -> str:
        """Return the path of a file."""
        return os.fsdecode(bytes(self._paths[index]))

    def as_they_are(self) -> ImageFiles:
        """Return the same files, read in colour and at their own size."""
        other = copy.copy(self)
        other.size, other.channels = None, 3
        return other

    def __getitem__(self, index: int) -> Tensor:
        name = self.name(index)
        return decoded(name, name, self.size, self.fit, self.channels)


class ImageFolder(ImageFiles):
    """All image files in a folder, at any depth, in the order of their paths.

    Args:
        folder: Where to look.
        size: See :class:`ImageFiles`, as for ``fit`` and ``channels``.

    Raises:
        ValueError: If there is no image.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        size: tuple[int, int] | None = None,
        fit: str = "resize",
        channels: int = 3,
    ) -> None:
        home = Path(folder)
        names = image_names(home)
        super().__init__([home / name for name in names], size=size, fit=fit, channels=channels)
        if all("/" in name for name in names):
            tops = [name.split("/", 1)[0] for name in names]
            self.classes = tuple(sorted(set(tops)))
            number = {name: i for i, name in enumerate(self.classes)}
            self.labels = torch.tensor([number[top] for top in tops])


def image_names(folder: Path) -> list[str]:
    """Return the names of all image files in ``folder``, at any depth, relative to it and in order.

    Raises:
        ValueError: If there is none.
    """
    inside = (path.relative_to(folder) for path in folder.rglob("*"))
    shown = sorted(path.as_posix() for path in inside if path.suffix.lower() in suffixes() and not _hidden(path))
    names = [name for name in shown if (folder / name).is_file()]
    if not names:
        raise ValueError(f"{folder} holds no image files, such as .png or .jpg")
    return names


@overload
def load_files(files: Any) -> Tensor: ...
@overload
def load_files(files: Any, mixed: bool) -> Tensor | list[Tensor]: ...
def load_files(files: Any, mixed: bool = False) -> Tensor | list[Tensor]:
    """Load :class:`ImageFiles`, or what else has their methods, as one tensor ``(n, channels, h, w)``.

    Args:
        files: What to load.
        mixed: Return those of different sizes as a list.

    Raises:
        ValueError: If a file cannot be read, or sizes differ and may not.
    """
    images = torch.empty(0, dtype=torch.uint8)
    for i in tracked(range(len(files)), "images", "images", len(files) > 1):
        pixels = files[i]
        if i == 0:
            # Room for all, once the first one shows how large: a list and a stack take it twice.
            images = torch.empty(len(files), *pixels.shape, dtype=pixels.dtype)
        if pixels.shape != images.shape[1:] and mixed:
            return [*images[:i], pixels, *(files[row] for row in range(i + 1, len(files)))]
        if pixels.shape != images.shape[1:]:
            (h, w), (first_h, first_w) = pixels.shape[1:], images.shape[2:]
            raise ValueError(
                f"images differ in size: {files.name(0)} is {first_h}x{first_w}, {files.name(i)} is {h}x{w} "
                f"(height x width); give a size for all, such as --size {first_h}x{first_w}"
            )
        images[i] = pixels
    return images


def decoded(
    file: str | BinaryIO, name: str, size: tuple[int, int] | None = None, fit: str = "resize", channels: int = 3
) -> Tensor:
    """Return the image in one file, as :class:`ImageFiles` reads it.

    Args:
        file: The path, or the open file.
        name: What to call it in a message.
        size: See :class:`ImageFiles`, as for ``fit`` and ``channels``.

    Raises:
        ValueError: If it cannot be read.
    """
    try:
        # Named formats: a wrong ending must not lead to the refused ones.
        with Image.open(file, formats=_formats()) as opened:
            image = flat(ImageOps.exif_transpose(opened))
        image = image.convert("L" if channels == 1 else "RGB")
    # Pillow's decoders raise anything: OSError, SyntaxError, struct.error, ...
    except Exception as error:
        raise ValueError(f"{name} cannot be read as an image ({error})") from error
    if size is not None:
        width_height = (size[1], size[0])
        scale = Image.Resampling.BILINEAR
        image = ImageOps.fit(image, width_height, scale) if fit == "crop" else image.resize(width_height, scale)
    pixels = np.array(image)
    return torch.from_numpy(pixels[None] if channels == 1 else pixels.transpose(2, 0, 1).copy())


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(kind for kind in Image.ID if kind not in _REFUSED)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
