"""One image file: read, and written again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor


class Unreadable(ValueError):
    """A file that is not an image, or one that could not be written again."""


@dataclass
class Picture:
    """An image file in memory: the image, its values, and what the network sees of them."""

    source: Path
    image: Image
    values: Tensor
    seen: Tensor
    target: Path = Path()
    """where it goes"""

    @property
    def kind(self) -> Any:
        """What images of one batch have in common."""
        return self.seen.shape, self.values.shape, self.values.dtype


@dataclass(frozen=True)
class Reader:
    """How image files are read: scaled or cut to ``size`` if asked, and seen in 1 (grey) or 3 channels (RGB)."""

    channels: int
    size: tuple[int, int] | None = None
    fit: str = "resize"
    rotated: bool = False
    """whether new values will be made between two of theirs, which no palette holds"""

    def __call__(self, source: Path) -> Picture:
        """Read one file.

        Raises:
            Unreadable: If it cannot be.
        """
        from unshift.pictures import seen, values

        # Pillow's decoders raise anything: OSError, SyntaxError, struct.error, ...
        try:
            image = self._fitted(_read(source))
            shown = seen(image, self.channels)
        except Unreadable:
            raise
        except Exception as error:
            raise Unreadable(f"{source} cannot be read as an image ({error})") from error
        plain = image.mode == ("L" if self.channels == 1 else "RGB") and "transparency" not in image.info
        return Picture(source, image, shown if plain else values(image), shown)

    def _fitted(self, image: Image) -> Image:
        from PIL import Image, ImageOps

        from unshift.pictures import without_palette

        kind = image.format
        scaled = self.size is not None and image.size != self.size[::-1]
        if scaled or self.rotated:
            image = without_palette(image)
        if self.size is not None and scaled:
            scale = Image.Resampling.BILINEAR
            wanted = self.size[::-1]
            image = ImageOps.fit(image, wanted, scale) if self.fit == "crop" else image.resize(wanted, scale)
        image.format = kind
        return image


def _read(source: Path) -> Image:
    """Return the image itself, upright."""
    from PIL import Image, ImageOps

    with Image.open(source) as read:
        if read.format not in Image.SAVE:
            raise Unreadable(f"{source}: {read.format} files can be read but not written; convert it to PNG")
        frames = getattr(read, "n_frames", 1)
        if frames > 1 and read.format != "MPO":  # a phone's JPEG with a preview
            raise Unreadable(f"{source} has {frames} frames; only single images are restored")
        read.load()
        kind = read.format
        ImageOps.exif_transpose(read, in_place=True)
        read.format = kind
        return read


def write(image: Image, file: Path, source: Path) -> None:
    """Write ``image`` to a file in its format, that of ``source``.

    Straight to the disk: what Pillow encodes into memory, it encodes without letting other threads run.
    """
    kind = "JPEG" if image.format == "MPO" else image.format
    options: dict[str, Any] = {}
    if kind == "JPEG":
        options = {"quality": 95, "subsampling": 0}
    elif kind == "WEBP":
        options = {"lossless": True, "exact": True}
    options |= {key: image.info[key] for key in ("icc_profile", "exif") if image.info.get(key)}
    try:
        image.save(file, format=kind, **options)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{source} cannot be written as {kind} ({error}); convert it to PNG") from error
