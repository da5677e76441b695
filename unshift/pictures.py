"""Images as Pillow holds them, and as tensors: their values, what a network sees of them, and back.

Pixels are seen as they would be shown: transparency on white, 16-bit greys scaled to 8 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["flat", "is_grey", "seen", "values", "with_values", "without_palette"]

BYTES = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr")
"""Modes whose bands are greys of 8 bits each."""
PALETTES = ("1", "P", "PA")
"""Modes that have no values between two of theirs."""


def flat(image: Image) -> Image:
    """Return an image of 8 bits a channel without transparency; plain ``convert`` clips and reveals."""
    from PIL import Image

    if image.mode == "I" or image.mode.startswith("I;16"):
        greys = np.asarray(image).astype(np.int64)
        if greys.min() < 0 or greys.max() > 65535:
            raise ValueError(f"its greys run from {greys.min()} to {greys.max()}, beyond 16 bits; save it as .npy")
        return Image.fromarray(((greys * 255 + 32767) // 65535).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("its pixels are floats of unknown scale; save it as .npy")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba)
    return image


def without_palette(image: Image) -> Image:
    """Return an image whose values can be mixed."""
    if image.mode not in PALETTES:
        return image
    plain = image.convert("L" if image.mode == "1" else "RGBA" if "transparency" in image.info else "RGB")
    plain.format = image.format
    return plain


def is_grey(image: Image) -> bool:
    """Tell whether an image knows greys only."""
    return image.mode in ("1", "L", "LA", "La", "F") or image.mode.startswith("I")


def seen(image: Image, channels: int) -> Tensor:
    """Return what a network of 1 (grey) or 3 channels (RGB) sees of an image, uint8 ``(1, channel, height, width)``."""
    shown, mode = flat(image), "L" if channels == 1 else "RGB"
    return _pixels(shown if shown.mode == mode else shown.convert(mode))


def values(image: Image) -> Tensor:
    """Return the values of an image, one by one as they are stored, ``(1, channel, height, width)``."""
    if image.mode in BYTES:
        return _pixels(image)
    stored = np.asarray(image)
    if stored.dtype.kind == "b" or stored.dtype.itemsize > 1:
        stored = stored.astype(np.uint8 if stored.dtype.kind == "b" else np.int64)  # of 16 and 32 bits
    return torch.from_numpy(stored.reshape(*stored.shape[:2], -1).transpose(2, 0, 1)[None].copy())


def with_values(image: Image, moved: Tensor) -> Image:
    """Return ``image`` with other values; a moved palette entry is the entry itself, so this serves all modes."""
    from PIL import Image

    if image.mode in BYTES:
        pixels = np.ascontiguousarray(moved[0].to(torch.uint8).permute(1, 2, 0).numpy())
        result = Image.frombuffer(image.mode, (pixels.shape[1], pixels.shape[0]), pixels, "raw", image.mode, 0, 1)
        result = result if result.readonly == 0 else result.copy()  # some modes share memory with the tensor
        result.info = dict(image.info)
    else:
        kind = np.asarray(image.crop((0, 0, 1, 1))).dtype
        array: Any = moved[0].permute(1, 2, 0).contiguous().numpy().astype(kind, copy=False)
        result = image.crop((0, 0, array.shape[1], array.shape[0]))  # a window of a scene is smaller
        result.frombytes((np.packbits(array[..., 0], axis=1) if image.mode == "1" else array).tobytes())
    result.format = image.format
    return result


def _pixels(image: Image) -> Tensor:
    """Return an image of 8 bits a value as it lies in memory, channels last: what the networks want, and Pillow."""
    stored = np.array(image)  # a copy: Pillow's own may not be written to
    return torch.from_numpy(stored.reshape(1, *stored.shape[:2], -1)).permute(0, 3, 1, 2)
