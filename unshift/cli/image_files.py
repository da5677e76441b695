"""Image files: read one, write it moved, and prove that the written file holds the pixels of the input.

Pillow drops parts of many files without an error: it reduces 16-bit colours to 8 bits, and reads one of the pictures in
an icon. Such files are refused by name. A file that is written is decoded again and moved back: unless the format is
lossy, the result must equal the decoded input bit for bit.
"""

from __future__ import annotations

import io
import re
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from unshift.restorer import Chain, Estimate, Restorer

LOSSY = ("JPEG", "MPO", "AVIF")
"""Formats that lose quality whenever they are written. WebP and JPEG 2000 are written without loss."""
NOT_PIXELS = ("BUFR", "EPS", "GRIB", "HDF5", "MPEG", "PDF", "WMF")
"""Formats of Pillow that do not hold pixels, or need another program."""
PNG_CHUNKS = (b"tEXt", b"zTXt", b"iTXt", b"tIME", b"gAMA", b"cHRM", b"sRGB", b"cICP", b"sPLT", b"sBIT", b"bKGD")
"""Metadata of PNG files that Pillow reads but does not write by itself."""
TIFF_TAGS = (269, 270, 271, 272, 282, 283, 285, 296, 305, 306, 315, 316, 700, 33432, 33550, 33723, 33922, 34264,
             34377, 34735, 34736, 34737, 42112, 42113)  # fmt: skip
"""Metadata of TIFF files: texts, resolution, XMP, IPTC, Photoshop and map coordinates (GeoKeys, GDAL)."""
TIFF_FOLDERS = (0x8769, 0x8825)
"""The folders of Exif and GPS tags in TIFF files."""
QUARTERS = {"0°": 0, "90°": 90, "180°": 180, "270°": 270}
"""The names of quarter turns, and the degrees clockwise that undo each."""
ORIENTED = (b"XML:com.adobe.xmp\0", b"Raw profile type exif\0")
"""Texts of PNG files with the orientation, which must not be copied: the pixels are written upright."""


class Refused(ValueError):
    """A file that cannot be read, or cannot be written without damage. The message names it."""


@dataclass
class Picture:
    """An image file in memory."""

    source: Path
    destination: Path
    image: Image  # the image as displayed: upright, and scaled if asked
    smooth: Image  # the same, with colours instead of a palette if its values may be interpolated
    values: Tensor  # the values of `smooth` as they are stored
    seen: Tensor  # the input of the network
    scaled: bool

    @property
    def kind(self) -> Any:
        """The properties that the images of one batch share."""
        return self.seen.shape, self.values.shape, self.values.dtype


@dataclass(frozen=True)
class Reader:
    """Read image files, scaled or cropped to ``size`` if given, for a network of 1 (grey) or 3 (RGB) channels."""

    channels: int
    size: tuple[int, int] | None = None
    fit: str = "resize"
    interpolates: bool = False  # whether the restorer may interpolate values, which those of a palette cannot be

    def __call__(self, source: Path, destination: Path, frame: int | None = None) -> Picture:
        """Read one file, or one page of a TIFF file.

        Raise :class:`Refused` if it cannot be read, or not be written again without loss.
        """
        from unshift.inputs import pixel_values, seen_by_network, without_palette

        try:
            original = decode(source, frame)
            image = self._scaled(original)
            smooth = without_palette(image) if self.interpolates else image
            seen = seen_by_network(smooth, self.channels)
        except Refused:
            raise
        # Pillow's decoders raise anything: OSError, SyntaxError, struct.error, ...
        except Exception as error:
            raise Refused(f"{source} cannot be read as an image ({error})") from error
        # The tie rule must compare the values that are written, because two colours may have the same grey.
        plain = smooth.mode == ("L" if self.channels == 1 else "RGB") and "transparency" not in smooth.info
        values = seen if plain else pixel_values(smooth)
        return Picture(source, destination, image, smooth, values, seen, image is not original)

    def _scaled(self, image: Image) -> Image:
        from PIL import Image, ImageOps

        from unshift.inputs import without_palette

        if self.size is None or image.size == self.size[::-1]:
            return image
        colours, size, bilinear = without_palette(image), self.size[::-1], Image.Resampling.BILINEAR
        scaled = ImageOps.fit(colours, size, bilinear) if self.fit == "crop" else colours.resize(size, bilinear)
        scaled.format = image.format
        return scaled


def decode(file: Path, frame: int | None = None) -> Image:
    """Return the image of a file, or one page, upright. Raise :class:`Refused` if Pillow would drop a part of it."""
    from PIL import Image, ImageOps

    from unshift.data.photos import check_regular

    check_regular(file)
    with Image.open(file) as image:
        image.filename = ""  # else Pillow maps uncompressed TIFF files, and mixes up the pixels of turned ones
        kind = image.format
        if kind not in Image.SAVE or kind in NOT_PIXELS:
            raise Refused(f"{file}: {kind} files can be read but not written; convert it to PNG")
        image.seek(frame or 0)
        pictures = _pictures(image) if frame is None else 1
        if pictures > 1 and kind != "MPO":  # a phone's JPEG with a preview
            raise Refused(f"{file} holds {pictures} images; only files of a single image are restored")
        if _is_deep(image, file):
            raise Refused(f"{file} has more than 8 bits per colour, and Pillow keeps 8; convert it to 8 bits")
        if _changes_numbers(image):
            raise Refused(f"{file} stores numbers that Pillow would write in another form; convert it to 8 or 16 bits")
        bands = image.tag_v2.get(277, 1) if kind == "TIFF" else 1  # type: ignore[attr-defined]
        if bands > len(image.getbands()):
            raise Refused(f"{file} has {bands} channels, and Pillow keeps {len(image.getbands())}; remove the others")
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        image.format = kind
        image.info |= {"pictures": pictures, "mode": image.mode, "metadata": _metadata(image, file)}
        return image


def _pictures(image: Any) -> int:
    if image.format == "ICO":
        return len(image.ico.entry)
    return len(image.info["sizes"]) if image.format == "ICNS" else getattr(image, "n_frames", 1)


def _is_deep(image: Any, file: Path) -> bool:
    """Return whether a file stores more bits per channel than Pillow decodes."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return False
    if image.format == "TIFF":
        return bool(max(image.tag_v2.get(258, (1,))) > 8)
    if image.format == "JPEG2000":  # the depth of each component, less 1, in the SIZ segment
        data = file.read_bytes()
        count = data.find(b"\xff\x4f\xff\x51") + 40
        depths = data[count + 2 : count + 2 + 3 * int.from_bytes(data[count : count + 2], "big") : 3]
        return any(depth & 0x7F > 7 for depth in depths)
    if image.format == "AVIF":  # the flag high_bitdepth of the codec's configuration
        data = file.read_bytes()
        return bool(data[data.find(b"av1C") + 6] & 0x40)
    # Raw modes such as "RGB;16B", and for PPM the largest value. "BGR;16" has 16 bits for all three.
    return any(
        re.search(r";16[BLN]|\bL;16|;32|;12|BC6H", str(tile.args))
        or (tile.codec_name.startswith("ppm") and tile.args[-1] > 255)
        for tile in image.tile
    )


def _changes_numbers(image: Any) -> bool:
    """Return whether Pillow would write the pixels with another width, sign or scale than the file stores."""
    if image.format == "TIFF":
        bits, sample_format = (max(image.tag_v2.get(tag, (1,))) for tag in (258, 339))
        white_is_zero = image.tag_v2.get(262) == 0
        kept = {1: (1, 8, 16), 2: (32,), 3: (32,)}  # unsigned, signed and float
        return bits not in kept.get(sample_format, ()) or (white_is_zero and bits > 8)
    return any(
        re.search(r"\bL;[24]\b", str(tile.args))
        or (tile.codec_name.startswith("ppm") and tile.args[-1] not in (1, 255, 65535))
        for tile in image.tile
    )


def _metadata(image: Any, file: Path) -> dict[str, Any]:
    """Return the options that write the metadata of an image, as far as Pillow writes it."""
    names = ("icc_profile", "exif", "xmp", *(() if image.format == "TIFF" else ("dpi",)))
    options = {name: image.info[name] for name in names if image.info.get(name)}
    if image.format == "PNG":
        from PIL.PngImagePlugin import PngInfo

        options["pnginfo"], data, at = PngInfo(), file.read_bytes(), 8
        while at + 8 <= len(data):
            length, name = struct.unpack(">I4s", data[at : at + 8])
            chunk = data[at + 8 : at + 8 + length]
            if name in PNG_CHUNKS and not chunk.startswith(ORIENTED):
                options["pnginfo"].add(name, chunk)
            at += 12 + length
        if "xmp" in options:
            options["pnginfo"].add_itxt("XML:com.adobe.xmp", options["xmp"].decode())
        if "exif" not in options and image.getexif():  # it was stored in a text chunk
            options["exif"] = image.getexif().tobytes()
    if image.format == "TIFF":
        from PIL.TiffImagePlugin import ImageFileDirectory_v2

        options["tiffinfo"] = tags = ImageFileDirectory_v2()
        for tag in image.tag_v2.keys() & set(TIFF_TAGS):
            tags[tag], tags.tagtype[tag] = image.tag_v2[tag], image.tag_v2.tagtype[tag]
        for tag in TIFF_FOLDERS:
            if folder := image.getexif().get_ifd(tag):
                tags[tag] = folder
                options["compression"] = "raw"  # compression needs libtiff, which does not write folders
    return options


def write(image: Image, file: Path, source: Path) -> None:
    """Write ``image`` in its format, that of ``source``. Raise :class:`Refused` if the format cannot hold it."""
    kind = "JPEG" if image.format == "MPO" else str(image.format)
    options = dict(image.info["metadata"])
    if kind == "PNG" and image.mode != image.info["mode"]:  # no longer a palette
        chunks = options["pnginfo"].chunks
        chunks[:] = [chunk for chunk in chunks if chunk[0] not in (b"sBIT", b"bKGD")]
    if kind in LOSSY:
        options |= {"quality": 95} if image.mode == "L" else {"quality": 95, "subsampling": "4:4:4"}
    elif kind == "WEBP":
        options |= {"lossless": True, "exact": True}
    elif kind == "TIFF" and image.info.get("compression") in ("jpeg", "tiff_jpeg", "webp"):
        options.setdefault("compression", "tiff_adobe_deflate")
    elif kind == "ICO":
        options["sizes"] = [image.size]  # otherwise Pillow adds smaller ones
    elif kind == "JPEG2000":
        options["no_jp2"] = source.suffix.lower() not in (".jp2", ".jpx", ".jpf")
    encoded = io.BytesIO()  # if the disk is full, Pillow truncates a file without an error
    try:
        image.save(encoded, format=kind, **options)
    # Pillow's encoders raise anything.
    except Exception as error:
        raise Refused(f"{source} cannot be written as {kind} ({error}); convert it to PNG") from error
    file.write_bytes(encoded.getbuffer())


def write_moved(picture: Picture, model: Restorer | Chain, pose: Estimate) -> str:
    """Undo the pose of an image, write it, and check the written file.

    Return ``"lossless"``, or the reason why moving the file back does not give the input: ``"resized"``,
    ``"interpolated"`` (rotated by other than quarter turns), ``"cropped"`` (a part left the image or its window) or
    ``"lossy"`` (its format). Raise :class:`Refused` if the file does not hold the moved pixels.
    """
    import torch

    from unshift.inputs import pixel_values, with_pixel_values

    exact = pose.angle is None or float(pose.angle) % 90 == 0
    if exact and picture.smooth is not picture.image:  # no new values, so the palette stays
        image, values = picture.image, pixel_values(picture.image)
    else:
        image, values = picture.smooth, picture.values
    moved = model.undo(values, pose)
    restored = with_pixel_values(image, moved)
    labels = model.coordinates.labels
    degrees = QUARTERS.get(labels.turns[int(pose.turn or 0)]) if labels.reads == {"turn"} else None
    if degrees and _turn_jpeg(picture, moved.shape[2:], degrees):
        return "lossless"
    write(restored, picture.destination, picture.source)
    if image.format in LOSSY:
        pictures = image.info["pictures"]
        return "lossy" if pictures == 1 else f"lossy, first of {pictures} images"
    scenes = labels.scenes
    crops = scenes or any(stage.coordinates.describe().get("pad") for stage in model.stages)
    try:
        written = decode(picture.destination)
        stored = pixel_values(written)
        same = _look_alike(written, restored) and torch.equal(stored, moved)
        intact = same and not scenes and torch.equal(model.redo(stored, pose), values)
    except Exception:  # Pillow's decoders raise anything
        same = intact = False
    if exact and not picture.scaled and not (intact or (same and crops)):
        hint = "" if image.format == "PNG" else "; convert it to PNG"
        raise Refused(f"{picture.source} cannot be written as {image.format} without loss{hint}")
    if not same:
        return "lossy"
    return "resized" if picture.scaled else "lossless" if intact else "cropped" if exact else "interpolated"


def _turn_jpeg(picture: Picture, size: Sequence[int], degrees: int) -> bool:
    """Turn a JPEG clockwise by 90, 180 or 270 degrees without decoding it, and return whether that was possible.

    This needs the program ``jpegtran`` (libjpeg-turbo), sides that its blocks divide, and no EXIF orientation. The file
    is turned back and must then have the pixels of the input.
    """
    from PIL import Image

    program, turned = shutil.which("jpegtran"), picture.destination
    if program is None or picture.image.format != "JPEG" or picture.scaled:
        return False
    with Image.open(picture.source) as image:
        if image.getexif().get(274, 1) != 1:
            return False
        pixels = image.tobytes()
    words = [program, "-copy", "all", "-perfect", "-rotate"]
    forth = subprocess.run([*words, str(degrees), "-outfile", turned, picture.source], capture_output=True)
    back = subprocess.run([*words, str(360 - degrees), turned], capture_output=True)
    if forth.returncode or back.returncode:
        return False
    with Image.open(turned) as one, Image.open(io.BytesIO(back.stdout)) as other:
        return one.size == tuple(size)[::-1] and other.tobytes() == pixels


def _look_alike(image: Image, other: Image) -> bool:
    """Return whether images of equal values have one mode, palette, transparency and number of pictures."""
    if (image.mode, image.info["pictures"]) != (other.mode, other.info["pictures"]):
        return False
    if image.mode in ("P", "PA"):
        return image.convert("RGBA").tobytes() == other.convert("RGBA").tobytes()
    return bool(image.info.get("transparency") == other.info.get("transparency"))
