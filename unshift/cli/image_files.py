"""One image file: read, restored without a change to any pixel, and encoded again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshift.cli.printing import image_size

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from unshift.restorer import Estimate, Restorer


def restore_file(
    model: Restorer, source: Path, resize: bool, estimate: Estimate | None = None
) -> tuple[Image, Estimate]:
    """Read one image and restore it; return it with its estimate, computed unless given."""
    import numpy as np
    import torch

    from unshift import exact
    from unshift.restorer import Canvas, Estimate

    assert isinstance(model.coordinates, Canvas)
    seen, image = _open_for(model, source, resize, 2 * model.coordinates.pad)
    pixels, (height, width) = np.asarray(image), seen.shape[2:]
    if estimate is None:
        scorer: Any = model.scorer
        scores = scorer(model.coordinates(seen))
        # The tie rule compares what is written, not what the network sees of it: two colours may have one grey.
        values = torch.from_numpy(pixels.astype(np.int64).reshape(height, width, -1)).permute(2, 0, 1)[None]
        shift, tied = exact.choose(scores, model.coordinates(values))
        estimate = Estimate(shift, exact.confidence(scores, scorer.score_unit), tied)
    # Pixel numbers are restored, not pixels: one gather that serves every mode. 0 is what comes from outside.
    numbers = torch.arange(1, height * width + 1).view(1, 1, height, width)
    source_of = Canvas(model.coordinates.pad).undo(numbers, estimate.shift)[0, 0].numpy()
    flat = pixels.reshape(height * width, *pixels.shape[2:])
    restored = np.concatenate([np.zeros_like(flat[:1]), flat])[source_of]
    result = image.copy()
    result.frombytes((np.packbits(restored, axis=1) if image.mode == "1" else restored).tobytes())
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


def _open_for(model: Restorer, source: Path, resize: bool, margin: int) -> tuple[Tensor, Image]:
    """Return what the network looks at, and the image itself: upright, and scaled if asked."""
    from PIL import ImageOps

    from unshift.data.photos import load_images

    scorer: Any = model.scorer
    size = None
    if resize:
        wanted = scorer.size or model.metadata.get("size")
        if not wanted:
            raise ValueError("--resize: this restorer takes any size and does not tell which one it was made for")
        size = (wanted[0] - margin, wanted[1] - margin)
    seen = load_images([source], size=size, channels=scorer.in_channels)
    height, width = seen.shape[2:]
    if scorer.size and (height + margin, width + margin) != tuple(scorer.size):
        takes = image_size(n - margin for n in scorer.size)
        raise ValueError(f"{source} is {height}x{width}, this restorer takes {takes}; --resize scales images to it")
    read = _read_image(source)
    image = ImageOps.exif_transpose(read)
    if size is not None and image.size != (width, height):
        if image.mode in ("1", "P", "PA"):  # no values between two palette entries
            image = image.convert("L" if image.mode == "1" else "RGBA" if "transparency" in image.info else "RGB")
        image = image.resize((width, height), 2)  # bilinear
    image.format = read.format
    return seen, image


def _read_image(source: Path) -> Image:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(source) as image:
            if image.format not in Image.SAVE:
                raise ValueError(f"{source}: {image.format} files can be read but not written; convert it to PNG")
            frames = getattr(image, "n_frames", 1)
            if frames > 1 and image.format != "MPO":  # a phone's JPEG with a preview
                raise ValueError(f"{source} has {frames} frames; only single images are restored")
            image.load()
            return image
    except (UnidentifiedImageError, SyntaxError) as error:
        raise ValueError(f"{source} cannot be read as an image ({error})") from error
