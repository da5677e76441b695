"""``unshift restore`` damages no file: whatever the mix of formats and modes, pixels come back or the file is named."""

from __future__ import annotations

import csv
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import bad, good, good_json, run
from PIL import Image, ImageCms, ImageOps, PngImagePlugin, TiffImagePlugin

import unshift

pytestmark = [
    pytest.mark.filterwarnings("ignore:IM image format is deprecated"),
    pytest.mark.filterwarnings("ignore:this restorer may be wrong"),
]
SIZES = [(12, 12), (13, 12), (17, 14)]
LOSSY = (".jpg", ".avif", ".mpo")
MODES = {
    ".png": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "1t", "Lt", "Pt", "RGBt", "I;16t"],
    ".tif": ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I;16B", "I"],
    ".bmp": ["1", "L", "P", "RGB"],
    ".dib": ["1", "L", "P", "RGB"],
    ".gif": ["L", "P", "Pt"],
    ".webp": ["RGB", "RGBA"],
    ".ppm": ["1", "L", "RGB", "I"],
    ".tga": ["1", "L", "LA", "P", "RGB", "RGBA"],
    ".pcx": ["1", "L", "P", "RGB"],
    ".sgi": ["L", "RGB", "RGBA"],
    ".im": ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I"],
    ".jp2": ["L", "LA", "RGB", "RGBA", "I;16"],
    ".j2k": ["L", "RGB"],
    ".ico": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"],
    ".dds": ["L", "LA", "RGB", "RGBA"],
    ".qoi": ["RGB", "RGBA"],
    ".msp": ["1"],
    ".xbm": ["1"],
    ".jpg": ["L", "RGB", "CMYK"],
    ".avif": ["L", "RGB", "RGBA"],
}
"""Formats and modes that Pillow writes and that must be restored; t is for a transparent colour."""
REFUSED = [".apng", ".animated.gif", ".pages.tif", ".animated.webp", ".icons.ico", ".icns", ".blp",
           ".float.tif", ".float.im", ".lab.tif", ".deep.png", ".deep.ppm", ".deep.tif", ".extra.tif"]  # fmt: skip


def picture(mode: str, size: tuple[int, int], chance: np.random.Generator, suffix: str = "") -> Image.Image:
    """An image of random values, with a transparent colour if the mode ends with t."""
    mode, transparent = mode.removesuffix("t"), mode.endswith("t")
    width, height = size
    if mode in ("P", "PA"):
        colours = int(chance.choice([2, 5, 16, 200, 256]))
        image = Image.fromarray(chance.integers(0, colours, (height, width), dtype=np.uint8))
        image = image if mode == "P" else Image.merge("LA", [image, image])
        image.putpalette(chance.integers(0, 256, 3 * colours, dtype=np.uint8).tobytes())
        if transparent:
            image.info["transparency"] = (
                int(chance.integers(colours)) if suffix == ".gif" or colours > 5 else bytes([0, 128])
            )
        return image
    bands = {"1": 1, "L": 1, "I;16": 2, "I;16B": 2, "LA": 2, "RGB": 3, "YCbCr": 3}.get(mode, 4)
    values = chance.integers(0, 256, (height, width, bands), dtype=np.uint8)
    if mode == "I":
        values[..., 2:] = 0  # 16 of its 32 bits
    if mode == "1":
        image = Image.fromarray(values[..., 0]).convert("1")
    else:
        image = Image.frombytes(mode, size, values.tobytes())
    if transparent:
        image.info["transparency"] = image.getpixel((0, 0))
    return image


def options(suffix: str, image: Image.Image, chance: np.random.Generator) -> dict[str, Any]:
    """Metadata and settings that ``suffix`` supports, at random."""
    exif, chosen = Image.Exif(), {}
    exif[0x010E] = "a description"
    if chance.integers(2):
        exif[0x0112] = int(chance.integers(1, 9))  # orientation
    if suffix in (".png", ".jpg", ".webp", ".avif", ".tif") and chance.integers(2):
        chosen["exif"] = exif
    if suffix in (".png", ".jpg", ".webp", ".avif", ".tif") and image.mode == "RGB" and chance.integers(2):
        chosen["icc_profile"] = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    if suffix in (".png", ".jpg", ".bmp", ".tif") and chance.integers(2):
        chosen["dpi"] = (300, 300)
    if suffix == ".png" and chance.integers(2):
        chosen["pnginfo"] = PngImagePlugin.PngInfo()
        chosen["pnginfo"].add_text("prompt", "a cat", zip=True)
    if suffix == ".tif" and image.mode in ("L", "RGB", "RGBA", "P", "I;16"):
        chosen["compression"] = str(chance.choice(["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"]))
    if suffix == ".tif" and image.mode == "RGB" and chance.integers(2):
        chosen["compression"] = "jpeg"
    if suffix == ".webp":
        chosen |= {"lossless": bool(chance.integers(2)), "quality": 80}
    if suffix in (".jp2", ".j2k"):
        chosen["irreversible"] = bool(chance.integers(2))
    if suffix == ".ico":
        chosen |= {"sizes": [image.size], "bitmap_format": "bmp" if image.mode == "RGBA" else "png"}
    return chosen


def write_png(path: Path, kind: int, depth: int, size: tuple[int, int], chance: np.random.Generator) -> None:
    """Write a PNG as Pillow does not: ``kind`` 0 is grey, 2 is RGB, 4 is LA, 6 is RGBA, with ``depth`` bits each."""
    width, height = size
    length = (depth * {0: 1, 2: 3, 4: 2, 6: 4}[kind] * width + 7) // 8
    rows = b"".join(b"\0" + chance.bytes(length) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    parts = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def write_tiff(
    path: Path, bits: int, bands: int, size: tuple[int, int], chance: np.random.Generator, **others: int
) -> None:
    """Write a TIFF of any depth, of more channels than colours, or of another ``photometric`` or ``sample`` format."""
    width, height = size
    data = chance.bytes(bits // 8 * bands * width * height)
    shorts = {258: 8, 259: 1, 262: others.get("photometric", 2 if bands > 2 else 1), 277: bands, 338: 0}
    shorts[258] = 8 if bands > 1 else bits  # of several bands, the depths stand at byte 8
    shorts[339] = others.get("sample", 1)
    longs = {256: width, 257: height, 273: 200, 278: height, 279: len(data)}
    tags = sorted([(tag, 3, bands if tag == 258 else 1, value) for tag, value in shorts.items()]
                  + [(tag, 4, 1, value) for tag, value in longs.items()])  # fmt: skip
    tags = [(tag, kind, bands - 3 if tag == 338 else count, value) for tag, kind, count, value in tags
            if (tag != 338 or bands > 3) and (tag != 339 or bands == 1)]  # fmt: skip
    header = struct.pack("<4sI6H", b"II*\0", 20, *[bits] * 6) + struct.pack("<H", len(tags))
    path.write_bytes((header + b"".join(struct.pack("<HHII", *tag) for tag in tags)).ljust(200, b"\0") + data)


def write_refused(path: Path, suffix: str, size: tuple[int, int], chance: np.random.Generator) -> None:
    """Write a file that cannot be restored without damage."""
    first, second = (picture("RGB", size, chance) for _ in range(2))
    many = {"save_all": True, "append_images": [second]}
    if suffix in (".apng", ".animated.gif", ".pages.tif", ".animated.webp"):
        first.save(path, **many)
    elif suffix == ".icons.ico":
        picture("RGBA", (32, 32), chance).save(path, sizes=[(16, 16), (32, 32)])
    elif suffix == ".icns":
        picture("RGBA", (32, 32), chance).save(path)
    elif suffix == ".blp":
        picture("P", size, chance).save(path)
    elif suffix.startswith(".float"):
        Image.fromarray(chance.random(size, dtype=np.float32)).save(path)
    elif suffix == ".lab.tif":
        picture("LAB", size, chance).save(path)
    elif suffix == ".deep.png":
        write_png(path, int(chance.choice([2, 4, 6])), 16, size, chance)
    elif suffix == ".deep.ppm":
        path.write_bytes(b"P6 %d %d 65535\n" % size + chance.bytes(6 * size[0] * size[1]))
    else:
        write_tiff(path, *((16, 3) if suffix == ".deep.tif" else (8, 5)), size, chance)


def write_files(folder: Path, count: int, seed: int) -> Iterator[tuple[Path, bool]]:
    """Write ``count`` files of all kinds; yield each, and whether it must be refused."""
    chance = np.random.default_rng(seed)
    folder.mkdir()
    kinds = [(suffix, mode) for suffix, modes in MODES.items() for mode in modes]
    kinds += [(suffix, "") for suffix in REFUSED]
    for number in range(count):
        suffix, mode = kinds[number % len(kinds)]
        size = SIZES[chance.integers(len(SIZES))]
        path = folder / f"{number:04}{suffix}"
        if not mode:
            write_refused(path, suffix, size, chance)
        else:
            image = picture(mode, size, chance, suffix)
            image.save(path, **options(suffix, image, chance))
        yield path, not mode


def pixels_of(file: Path) -> tuple[Image.Image, np.ndarray]:
    with file.open("rb") as stream, Image.open(stream) as image:
        image.load()
        upright = ImageOps.exif_transpose(image)
        return image, np.asarray(upright)


def check_file(source: Path, out: Path, row: dict[str, str]) -> None:
    """Check one restored file against its source, by the inverse move of the table."""
    if row["written"] == "copied":
        assert out.read_bytes() == source.read_bytes()
        return
    (before, wanted), (after, restored) = pixels_of(source), pixels_of(out)
    assert (after.format, after.mode) == (before.format, before.mode)
    assert restored.dtype == wanted.dtype
    assert restored.shape == wanted.shape
    assert after.info.get("icc_profile") == before.info.get("icc_profile")
    assert after.info.get("transparency") == before.info.get("transparency")
    if source.suffix in (".png", ".jpg", ".tif", ".bmp"):
        assert after.info.get("dpi") == pytest.approx(before.info.get("dpi"))
        assert after.getexif().get(0x010E) == before.getexif().get(0x010E)
        assert after.getexif().get(0x0112, 1) == 1
    if source.suffix == ".png":
        assert after.text == before.text
        assert out.read_bytes()[24:26] == source.read_bytes()[24:26]  # bit depth and colour type
    if source.suffix in LOSSY:
        assert row["written"] == "lossy"
        return
    assert row["written"] == "lossless"
    assert np.array_equal(np.roll(restored, (int(row["down"]), int(row["right"])), (0, 1)), wanted)
    if before.mode in ("P", "PA"):
        used = 3 * (int(wanted.reshape(*wanted.shape[:2], -1)[..., 0].max()) + 1)
        assert after.getpalette()[:used] == before.getpalette()[:used]


def check_folder(made: Path, count: int, seed: int) -> None:
    files = dict(write_files(Path("in"), count, seed))
    result = run("restore", "in", "-r", made / "paper.safetensors", "-o", "out", "--skip-unreadable")
    assert result.exit_code == 0, result.stderr
    with Path("out/poses.csv").open(newline="") as table:
        rows = {row["file"]: row for row in csv.DictReader(table)}
    assert {path.name for path in Path("out").iterdir()} == {*rows, "poses.csv"}
    for path in files:
        if path.name in rows:
            check_file(path, Path("out", path.name), rows[path.name])
        else:
            assert str(path) in result.stderr
    assert [path.name for path, refused in files.items() if refused != (path.name not in rows)] == []
    written = Counter(row["written"] for row in rows.values())
    assert written["lossless"] > len(rows) / 2
    assert not written.keys() - {"lossless", "lossy", "copied"}


def test_150_files_of_all_kinds_keep_their_pixels_or_are_named(made):
    check_folder(made, 150, seed=0)


@pytest.mark.slow
def test_2000_files_of_all_kinds_keep_their_pixels_or_are_named(made):
    check_folder(made, 2000, seed=1)


@pytest.mark.parametrize(
    ("suffix", "kinds", "restorer"),
    [(".png", ("L", "P"), "mnist"), (".png", ("RGB", "RGBt"), "photos"), (".tif", ("RGB", "YCbCr"), "photos")],
)
def test_files_of_mixed_modes_share_a_batch_but_not_a_mode(suffix, kinds, restorer):
    chance = np.random.default_rng(0)
    Path("in").mkdir()
    for number in range(16):
        image = picture(kinds[number % 2], (32, 32), chance)
        image.save(f"in/{number:02}{suffix}")
    rows = good_json("restore", "in", "-r", restorer, "-o", "out")
    for row in rows:
        check_file(Path("in", row["file"]), Path("out", row["file"]), row)
    assert len(rows) == 16


def test_a_file_that_was_not_moved_is_copied_byte_for_byte(made):
    Image.fromarray(np.full((12, 12, 3), 90, np.uint8)).save("a.jpg", quality=30)  # constant: any shift is none
    good("restore", "a.jpg", "-r", made / "paper.safetensors", "-o", "out")
    assert Path("out/a.jpg").read_bytes() == Path("a.jpg").read_bytes()


def test_phone_photos_of_two_images_are_named(made):
    first, second = (picture("RGB", (12, 12), np.random.default_rng(seed)) for seed in range(2))
    first.save("a.mpo", save_all=True, append_images=[second])
    result = good("restore", "a.mpo", "-r", made / "paper.safetensors", "-o", "out")
    assert "first of 2" in result.stdout
    assert "a.mpo" in result.stdout


HIDDEN = {
    "deep.png": lambda *of: write_png(*of[:1], 2, 16, *of[1:]),
    "grey2.png": lambda *of: write_png(*of[:1], 0, 2, *of[1:]),
    "grey4.png": lambda *of: write_png(*of[:1], 0, 4, *of[1:]),
    "signed8.tif": lambda *of: write_tiff(*of[:1], 8, 1, *of[1:], sample=2),
    "signed16.tif": lambda *of: write_tiff(*of[:1], 16, 1, *of[1:], sample=2),
    "white16.tif": lambda *of: write_tiff(*of[:1], 16, 1, *of[1:], photometric=0),
    "of100.pgm": lambda path, size, chance: path.write_bytes(b"P5 %d %d 100\n" % size + bytes(size[0] * size[1])),
    "of1000.pgm": lambda path, size, chance: path.write_bytes(b"P5 %d %d 1000\n" % size + bytes(2 * size[0] * size[1])),
}
"""Files whose numbers Pillow changes without an error, and their writers."""


@pytest.mark.parametrize("name", HIDDEN)
def test_a_refused_file_stops_the_command_and_is_named(name, made):
    HIDDEN[name](Path(name), (12, 12), np.random.default_rng(0))
    with Image.open(name) as image:
        image.load()  # it is a valid file
    assert name in bad("restore", name, "-r", made / "paper.safetensors", "-o", "out")
    assert not Path("out").exists()


def test_metadata_that_pillow_does_not_copy_is_kept(made):
    """GeoKeys, GPS and Exif folders of TIFF; background and significant bits of PNG; an orientation in XMP."""
    image = picture("RGB", (13, 12), np.random.default_rng(0))
    tags = {34735: (1, 1, 0, 1), 34737: "WGS|", 42113: "-9", 0x8825: {1: "N"}, 0x8769: {36867: "2020:01:01 00:00:00"}}
    directory = TiffImagePlugin.ImageFileDirectory_v2()
    directory.update(tags)
    directory.tagtype[34735] = 3
    image.save("a.tif", tiffinfo=directory)
    chunks = PngImagePlugin.PngInfo()
    chunks.add(b"bKGD", bytes(6))
    chunks.add(b"sBIT", bytes([5, 6, 5]))
    xmp = """<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
    <rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Make="me" tiff:Orientation="6"/></rdf:RDF>
    </x:xmpmeta>"""
    chunks.add_itxt("XML:com.adobe.xmp", xmp)
    image.save("a.png", pnginfo=chunks)
    rows = good_json("restore", "a.tif", "a.png", "-r", made / "paper.safetensors", "-o", "out")
    assert [row["written"] for row in rows] == ["lossless", "lossless"]
    with Image.open("out/a.tif") as restored:
        found = restored.getexif()
        assert {tag: found.get_ifd(tag) if tag in (0x8825, 0x8769) else restored.tag_v2[tag] for tag in tags} == tags
    content = Path("out/a.png").read_bytes()
    assert b"bKGD" in content
    assert b"sBIT\5\6\5" in content
    with Image.open("out/a.png") as restored:
        assert restored.getexif().get(0x0112, 1) == 1
        assert b'tiff:Make="me"' in restored.info["xmp"]


def test_a_restorer_does_not_change_the_palette_of_its_input(made):
    image = picture("Pt", (12, 12), np.random.default_rng(0), ".gif")
    before = image.getpalette(None)
    unshift.load(made / "paper.safetensors")(image)
    assert image.getpalette(None) == before


def test_a_rotated_palette_image_is_named(posed):
    image = picture("P", (8, 8), np.random.default_rng(3))
    image.save("a.gif")
    result = good("restore", "a.gif", "-r", posed / "rotation.safetensors", "-o", "out")
    with Path("out/poses.csv").open(newline="") as table:
        (row,) = csv.DictReader(table)
    exact = float(row["angle"]) % 90 == 0
    assert (row["written"] in ("copied", "lossless")) == exact
    assert ("a.gif" in result.stdout) != exact
