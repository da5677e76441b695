"""Images from image files: one, or all in a folder and the folders in it.

The images of a folder come in the order of their paths. Names that start with a dot are skipped, and so are
files that do not end like an image. If every image is in a subfolder, the name of the subfolder is its class:
``cat/1.jpg`` and ``dog/2.jpg`` have the classes 0 and 1.

Pixels are read as they would be shown: turned by their EXIF orientation, transparency on white, the
first frame of an animation, 16-bit greys scaled to 8 bits. Every format that Pillow reads is accepted, except
those that need another program (EPS, WMF) or hold no image (HDF5, GRIB, BUFR, MPEG).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from tqdm import tqdm

from unshift.data.pixels import ImageSet, check_channels, check_fit
from unshift.pictures import flat

__all__ = ["load_folder", "load_images", "suffixes"]

_REFUSED = {"EPS", "WMF", "HDF5", "GRIB", "BUFR", "MPEG"}


@functools.cache
def suffixes() -> frozenset[str]:
    """Return the endings of the image files that are read, such as ``.png``."""
    known = Image.registered_extensions()
    return frozenset(suffix for suffix, kind in known.items() if kind in Image.OPEN and kind not in _REFUSED)


def load_folder(
    folder: Path, *, size: tuple[int, int] | None = None, fit: str = "resize", channels: int = 3
) -> ImageSet:
    """Load every image in ``folder``, at any depth.

    Args:
        folder: Where to look.
        size: See :func:`load_images`, as for ``fit`` and ``channels``.

    Returns:
        ``uint8`` images ``(n, channels, h, w)`` in the order of their paths; labels if all are in subfolders.

    Raises:
        ValueError: If there is no image, one cannot be read, or sizes differ and ``size`` is not given.
    """
    inside = [path.relative_to(folder) for path in folder.rglob("*")]
    shown = sorted(
        (path for path in inside if path.suffix.lower() in suffixes() and not _hidden(path)),
        key=lambda path: path.as_posix(),
    )
    paths = [path for path in shown if (folder / path).is_file()]
    if not paths:
        raise ValueError(f"{folder} holds no image files, such as .png or .jpg")
    images = load_images([folder / path for path in paths], size=size, fit=fit, channels=channels)
    name = folder.resolve().name
    if any(len(path.parts) == 1 for path in paths):
        return ImageSet(images, None, name)
    classes = sorted({path.parts[0] for path in paths})
    labels = torch.tensor([classes.index(path.parts[0]) for path in paths])
    return ImageSet(images, labels, name, tuple(classes))


def load_images(
    paths: Sequence[Path], *, size: tuple[int, int] | None = None, fit: str = "resize", channels: int = 3
) -> Tensor:
    """Load image files as one tensor.

    Args:
        paths: The files.
        size: Bring all to this ``(height, width)``. Scaling is bilinear and antialiased, as Pillow does it.
        fit: How: ``"resize"`` stretches, ``"crop"`` scales to cover the size and cuts out the middle.
        channels: 1 (grey) or 3 (RGB).

    Returns:
        ``uint8`` images ``(n, channels, h, w)``.

    Raises:
        ValueError: If a file cannot be read, or sizes differ and ``size`` is not given.
    """
    check_fit(fit)
    check_channels(channels)
    if size is not None and (len(size) != 2 or min(size) < 1):
        raise ValueError(f"size must be (height, width), both at least 1, got {size}")
    images = torch.empty(0, dtype=torch.uint8)
    for i, path in enumerate(tqdm(paths, desc="images", disable=None if len(paths) > 1 else True)):
        pixels = _load(path, size, fit, channels)
        if i == 0:
            # Room for all, once the first one shows how large: a list and a stack take it twice.
            images = torch.empty(len(paths), *pixels.shape, dtype=torch.uint8)
        if pixels.shape != images.shape[1:]:
            (h, w), (first_h, first_w) = pixels.shape[1:], images.shape[2:]
            raise ValueError(
                f"images differ in size: {paths[0]} is {first_h}x{first_w}, {path} is {h}x{w} "
                f"(height x width); give a size for all, such as --size {first_h}x{first_w}"
            )
        images[i] = pixels
    return images


def _load(path: Path, size: tuple[int, int] | None, fit: str, channels: int) -> Tensor:
    try:
        # Named formats: a wrong ending must not lead to the refused ones.
        with Image.open(path, formats=[kind for kind in _formats() if kind not in _REFUSED]) as opened:
            image = flat(ImageOps.exif_transpose(opened))
        image = image.convert("L" if channels == 1 else "RGB")
    # Pillow's decoders raise anything: OSError, SyntaxError, struct.error, ...
    except Exception as error:
        raise ValueError(f"{path} cannot be read as an image ({error})") from error
    if size is not None:
        width_height = (size[1], size[0])
        scale = Image.Resampling.BILINEAR
        image = ImageOps.fit(image, width_height, scale) if fit == "crop" else image.resize(width_height, scale)
    pixels = np.array(image)
    return torch.from_numpy(pixels[None] if channels == 1 else pixels.transpose(2, 0, 1).copy())


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(Image.ID)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
