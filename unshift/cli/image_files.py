"""One image file: read, restored, and encoded again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from unshift.restorer import Chain, Estimate, Restorer

PALETTES = ("1", "P", "PA")
"""Modes that have no values between two of theirs."""


def restore_file(
    model: Restorer | Chain, source: Path, size: tuple[int, ...] | None = None, estimate: Estimate | None = None
) -> tuple[Image, Estimate]:
    """Read one image and restore it; return it with its estimate, computed unless given.

    Args:
        model: Any restorer of images.
        source: The file.
        size: First scale the image to this height and width.
        estimate: What was found before.
    """
    import numpy as np

    from unshift.weights import image_shape

    seen = _seen(source, size, image_shape(model)[0]) if estimate is None else None
    image = _read_image(source, size, rotated="angle" in model.coordinates.reads)
    values = _as_tensor(image)
    if estimate is None:
        assert seen is not None
        try:
            # The tie rule compares what is written, not what the network sees of it: two colours may have one grey.
            estimate = model.estimate(seen, of=values)
        except ValueError as error:
            hint = "" if size else "; --resize scales images to the size this restorer was made for"
            raise ValueError(f"{source}: {error}{hint}") from error
    # A moved palette entry is the entry itself, so this serves every mode; only rotations make new values.
    restored = model.undo(values, estimate)[0].movedim(0, -1).numpy().astype(np.asarray(image).dtype)
    result = image.copy()
    result.frombytes((np.packbits(restored[..., 0], axis=1) if image.mode == "1" else restored).tobytes())
    result.format = image.format
    return result, estimate


def encoded(image: Image, source: Path) -> bytes:
    """Return the bytes of ``image`` in its format, that of ``source``."""
    kind = "JPEG" if image.format == "MPO" else image.format
    options: dict[str, Any] = {}
    if kind == "JPEG":
        options = {"quality": 95, "subsampling": 0}
    elif kind == "WEBP":
        options = {"lossless": True, "exact": True}
    options |= {key: image.info[key] for key in ("icc_profile", "exif") if image.info.get(key)}
    buffer = io.BytesIO()
    try:
        image.save(buffer, format=kind, **options)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{source} cannot be written as {kind} ({error}); convert it to PNG") from error
    return buffer.getvalue()


def _seen(source: Path, size: tuple[int, ...] | None, channels: int) -> Tensor:
    """Return what the network looks at."""
    from unshift.data.photos import load_images

    return load_images([source], size=None if size is None else (size[0], size[1]), channels=channels)


def _as_tensor(image: Image) -> Tensor:
    """Return the values of an image, one by one as they are stored, ``(1, channel, height, width)``."""
    import numpy as np
    import torch

    values = np.asarray(image)
    if values.dtype.kind == "b" or values.dtype.itemsize > 1:
        values = values.astype(np.uint8 if values.dtype.kind == "b" else np.int64)  # of 16 and 32 bits
    return torch.from_numpy(values.reshape(*values.shape[:2], -1).copy()).movedim(-1, 0)[None]


def _read_image(source: Path, size: tuple[int, ...] | None, rotated: bool) -> Image:
    """Return the image itself: upright, scaled if asked, and of a mode that can be rotated if it will be."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(source) as read:
            if read.format not in Image.SAVE:
                raise ValueError(f"{source}: {read.format} files can be read but not written; convert it to PNG")
            frames = getattr(read, "n_frames", 1)
            if frames > 1 and read.format != "MPO":  # a phone's JPEG with a preview
                raise ValueError(f"{source} has {frames} frames; only single images are restored")
            read.load()
            image, kind = ImageOps.exif_transpose(read), read.format
    except (UnidentifiedImageError, SyntaxError) as error:
        raise ValueError(f"{source} cannot be read as an image ({error})") from error
    scaled = size is not None and image.size != (size[1], size[0])
    if (scaled or rotated) and image.mode in PALETTES:
        image = image.convert("L" if image.mode == "1" else "RGBA" if "transparency" in image.info else "RGB")
    if size is not None and scaled:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    image.format = kind
    return image
