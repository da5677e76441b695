"""Inputs: convert images from and to the forms that users have, and compare them with the training images.

A list is never padded to one size, because a padded circle is another circle.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unshift.network import as_float
from unshift.shifts import format_size

if TYPE_CHECKING:
    from PIL.Image import Image

Images = Tensor | Sequence[Tensor]
"""A tensor ``(batch, channel, *spatial)``, or a list of ``(channel, *spatial)`` of any sizes."""


def is_list(images: object) -> bool:
    """Return whether ``images`` is a list or tuple of tensors, which may differ in size."""
    return isinstance(images, (list, tuple)) and all(isinstance(image, Tensor) for image in images)


def batches(images: Images, batch_size: int) -> Iterator[Tensor]:
    """Yield all images in order, as batches. Consecutive images of a list share a batch if their shapes are equal."""
    if isinstance(images, Tensor):
        yield from images.split(batch_size)
        return
    for _, alike in itertools.groupby(images, lambda image: (image.shape, image.dtype)):
        group = list(alike)
        for at in range(0, len(group), batch_size):
            yield torch.stack(group[at : at + batch_size])


def check_finite(images: Tensor) -> tuple[float, float] | None:
    """Return the range of floating-point images. Raise a ``ValueError`` if they hold NaN or infinity."""
    if not images.is_floating_point() or not images.numel():
        return None
    wide = images if images.element_size() > 1 else images.float()  # 8-bit floats do not support isfinite
    low, high = map(float, wide.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = (~torch.isfinite(wide)).flatten(1).any(1).nonzero().flatten()
        raise ValueError(f"images must be finite: NaN or infinity in {len(bad)} of them, first at {int(bad[0])}")
    return low, high


# --- forms ------------------------------------------------------------------------------------------------------


class InputBatch(NamedTuple):
    """Images as a batch, and the function that converts results back to the form of the input."""

    seen: Tensor  # the input of the network, ``(batch, channel, *spatial)``
    values: Tensor  # the values to move: the same tensor, except for a Pillow image of another mode
    form: Callable[[Tensor], Any]  # from moved values to the form that was given

    def to_input_form(self, moved: Tensor | list[Tensor]) -> Any:
        """Return moved values in the form that was given; of a list, one by one."""
        if isinstance(moved, Tensor):
            return self.form(moved)
        return [self.form(image[None])[0] for image in moved]


def to_batch(images: Any, axes: int | None, channels: int | None, interpolated: bool = False) -> InputBatch:
    """Convert images from any form to a batch.

    Arrays may have their channels first or last, or be one grey image ``(*spatial)``. Without the number of spatial
    ``axes``, tensors and arrays are batches. ``channels`` is the number that the network sees. If values will be
    ``interpolated``, those of a palette are replaced by colours.
    """
    if isinstance(images, Tensor):
        if axes is not None and images.ndim == axes + 1:
            return InputBatch(images[None], images[None], lambda moved: moved[0])
        return InputBatch(images, images, functools.partial(_in_format_of, images))
    if isinstance(images, np.ndarray):
        return _from_array(images, axes, channels)
    if hasattr(images, "getbands") and hasattr(images, "frombytes"):
        picture = without_palette(images) if interpolated else images
        return InputBatch(
            seen_by_network(picture, channels or 3),
            pixel_values(picture),
            lambda moved: with_pixel_values(picture, moved),
        )
    hint = "; open the file first, as PIL.Image.open does" if isinstance(images, str | os.PathLike) else ""
    raise ValueError(
        "images must be a torch.Tensor (batch, channel, *spatial), a NumPy array, a Pillow image or a list of tensors "
        f"(channel, *spatial), got {type(images).__name__}{hint}"
    )


def _in_format_of(given: Tensor, images: Tensor) -> Tensor:
    """Return images with the channels last in memory if those that were given have them last."""
    for axes, memory_format in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if given.ndim == axes and not given.is_contiguous() and given.is_contiguous(memory_format=memory_format):
            return images.contiguous(memory_format=memory_format)
    return images


def _from_array(images: np.ndarray[Any, Any], axes: int | None, channels: int | None) -> InputBatch:
    tensor = torch.from_numpy(np.array(images))  # a copy: a flipped or read-only array has no tensor
    missing = 0 if axes is None else max(0, axes + 2 - images.ndim)
    if axes is not None and images.ndim == axes:
        return InputBatch(tensor[None, None], tensor[None, None], lambda moved: moved[0, 0].numpy())
    first = last = max(0, 1 - missing)
    if missing < 2 and images.ndim > 2 and channels == images.shape[-1] != images.shape[first]:
        last = images.ndim - 1
    batch = tensor.movedim(last, first)
    batch = batch[None] if missing else batch
    return InputBatch(batch, batch, lambda moved: (moved[0] if missing else moved).movedim(first, last).numpy())


# --- Pillow images ----------------------------------------------------------------------------------------------

BYTE_MODES = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr")  # modes with 8 bits per band
PALETTE_MODES = ("1", "P", "PA")  # modes whose values cannot be interpolated


def flatten_alpha(image: Image) -> Image:
    """Return an image of 8 bits per channel without transparency: alpha over white, 16-bit greys scaled to 8."""
    from PIL import Image

    if image.mode == "I" or image.mode.startswith("I;16"):
        greys = np.asarray(image).astype(np.int64)
        if greys.min() < 0 or greys.max() > 65535:
            raise ValueError(f"its greys run from {greys.min()} to {greys.max()}, beyond 16 bits; save it as .npy")
        return Image.fromarray(((greys * 255 + 32767) // 65535).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("its pixels are floats of unknown scale; save it as .npy")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        rgba = image.copy().convert("RGBA")  # Pillow changes the palette of the image that it converts
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image


def without_palette(image: Image) -> Image:
    """Return an image whose values can be interpolated."""
    if image.mode not in PALETTE_MODES:
        return image
    plain = image.copy().convert("L" if image.mode == "1" else "RGBA" if "transparency" in image.info else "RGB")
    plain.format = image.format
    return plain


def is_grey(image: Image) -> bool:
    """Return whether an image has grey values only."""
    return image.mode in ("1", "L", "LA", "La", "F") or image.mode.startswith("I")


def seen_by_network(image: Image, channels: int) -> Tensor:
    """Return what a network of 1 (grey) or 3 (RGB) channels sees, uint8 ``(1, channel, height, width)``."""
    flat, mode = flatten_alpha(image), "L" if channels == 1 else "RGB"
    return _bytes(flat if flat.mode == mode else flat.convert(mode))


def pixel_values(image: Image) -> Tensor:
    """Return the values of an image as they are stored, ``(1, channel, height, width)``."""
    if image.mode in BYTE_MODES:
        return _bytes(image)
    stored = np.asarray(image)
    if stored.dtype.kind == "b" or stored.dtype.itemsize > 1:
        stored = stored.astype(np.uint8 if stored.dtype.kind == "b" else np.int64)  # 16 and 32 bits
    return torch.from_numpy(stored.reshape(*stored.shape[:2], -1).transpose(2, 0, 1)[None].copy())


def with_pixel_values(image: Image, moved: Tensor) -> Image:
    """Return ``image`` with other stored values. Palette entries move as they are, so this serves all modes."""
    from PIL import Image

    if image.mode in BYTE_MODES:
        pixels = np.ascontiguousarray(moved[0].to(torch.uint8).permute(1, 2, 0).numpy())
        result = Image.frombuffer(image.mode, (pixels.shape[1], pixels.shape[0]), pixels, "raw", image.mode, 0, 1)
        result = result if result.readonly == 0 else result.copy()  # some modes share memory with the tensor
        result.info = dict(image.info)
    else:
        dtype = np.asarray(image.crop((0, 0, 1, 1))).dtype
        array: Any = moved[0].permute(1, 2, 0).contiguous().numpy().astype(dtype, copy=False)
        result = image.crop((0, 0, array.shape[1], array.shape[0]))  # a window of a scene is smaller
        result.frombytes((np.packbits(array[..., 0], axis=1) if image.mode == "1" else array).tobytes())
    result.format = image.format
    return result


def _bytes(image: Image) -> Tensor:
    """Return an image of 8 bits per value with its channels last in memory, as Pillow stores them."""
    stored = np.array(image)
    return torch.from_numpy(stored.reshape(1, *stored.shape[:2], -1)).permute(0, 3, 1, 2)


# --- comparison with the training images -------------------------------------------------------------------------

SIZE = 1.1
"""Largest ratio of sizes without a warning: ``mnist-paper`` finds 99.9% of digits to within a pixel at 32x32, 96.8% at
36x36, 74.6% at 40x40 (``unshift evaluate mnist-10k --restorer mnist-paper --limit 1000 --resize N``)."""
LINE_SMALLER, LINE_LARGER = 2.0, 4.0
"""The same for networks of lines: ``cifar10-seam``, trained at 32x32, finds 97.2% of 500 photos to the pixel at 32x32,
98.8% at 64x64, 99.0% at 128x128, but 84.0% at 16x16 (the same command with ``cifar10 --restorer cifar10-seam``)."""
RANGE = 0.5  # pixels may exceed the range by this share of it, as after sharpening or with noise
TOP = 6.0  # the same as a multiple of the largest value seen, for old files that do not store the range
BACKGROUND = 0.25
"""A value of at least this share of the training pixels is their background; a quarter of that share is too little."""
SAMPLED = 64  # images of a batch whose background is measured


def background(images: Tensor) -> list[float] | None:
    """Return the most common pixel value and its share of the pixels; None if no value is common."""
    sample = images.flatten()[:: max(1, images.numel() // 2**20)]
    values, counts = as_float(sample).unique(return_counts=True)
    share = float(counts.max()) / int(counts.sum())
    return [round(float(values[counts.argmax()]), 6), round(share, 4)] if share >= BACKGROUND else None


def warn_if_unlike(restorer: Any, images: Tensor, limits: tuple[float, float] | None, warned: set[str]) -> None:
    """Warn, once per kind of difference, if images are unlike those that a restorer was trained on.

    Properties that its ``trained_on`` does not have are not compared. ``limits`` are the lowest and the highest pixel,
    if known; ``warned`` holds the kinds reported before.
    """
    first = restorer.stages[0]
    if len(warned) == 3 or not images.numel() or first.scorer.largest_pixel is None:
        return
    comparisons = {"size": _unlike_size, "range": _unlike_range, "background": _unlike_background}
    for kind, compare in comparisons.items():
        difference = None if kind in warned else compare(restorer.trained_on, first, images, limits)
        if difference:
            warned.add(kind)
            text = f"this restorer may be wrong on these images: {difference}"
            warnings.warn(text, stacklevel=stack_level())


def _unlike_size(trained_on: dict[str, Any], first: Any, images: Tensor, limits: Any) -> str | None:
    size: Sequence[int] = trained_on.get("size") or ()
    lines = first.scorer.line_axes > 0
    smaller, larger = (LINE_SMALLER, LINE_LARGER) if lines else (SIZE, SIZE)
    canvas = next(iter(first.coordinates.canvases(images[:1])))  # with its margin it may fit
    for seen in (images, canvas):
        pairs = zip(seen.shape[2:], size, strict=True) if seen.ndim - 2 == len(size) else ()
        if first.coordinates.labels.scenes or not any(a > larger * b or b > smaller * a for a, b in pairs):
            return None
    objects = "seams like those" if lines else "objects of the size"
    return (
        f"it was trained on images of {format_size(size)}, and one of these is {format_size(images.shape[2:])}: "
        f"it looks for {objects} it was trained on; scale the images, or fit a restorer at their size"
    )


def _unlike_range(trained_on: dict[str, Any], first: Any, images: Tensor, limits: Any) -> str | None:
    if images.dtype in (torch.uint8, torch.bool):
        return None
    low, high = limits or (float(end) for end in as_float(images).aminmax())
    top = first.scorer.largest_pixel
    least, most = trained_on.get("range") or (-top, top)
    span = most - least if "range" in trained_on else TOP * most
    if least - RANGE * span <= low and high <= most + RANGE * span and not 0 < high <= 1 < most / 15:
        return None
    expected = f"{least:g} to {most:g}" if "range" in trained_on else f"values up to {most:g}"
    hint = "; divide by 255, or give uint8" if most <= 1 and low >= 0 and 2 < high <= 255 else ""
    return f"their pixels run from {low:g} to {high:g}, and it was trained on {expected}{hint}"


def _unlike_background(trained_on: dict[str, Any], first: Any, images: Tensor, limits: Any) -> str | None:
    if not trained_on.get("background"):
        return None
    value, usual = trained_on["background"]
    canvas = as_float(next(iter(first.coordinates.canvases(images[:SAMPLED]))))  # with its margin, if it has one
    share = float(((canvas - value).abs() < 0.01).double().mean())
    if share >= BACKGROUND * usual:
        return None
    return (
        f"{100 * usual:.0f}% of the pixels that it was trained on were background ({value:g}), here "
        f"{100 * share:.0f}% are"
    )


def stack_level() -> int:
    """Return the ``stacklevel`` of the first caller outside of unshift and torch, for a warning of our caller."""
    inside = (str(Path(__file__).parent), str(Path(torch.__file__).parent))
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        level, frame = level + 1, frame.f_back
    return level
