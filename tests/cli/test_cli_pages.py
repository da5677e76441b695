"""``unshift restore`` with a restorer of quarter turns: PDF files, TIFF files of several pages, and JPEG."""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

import numpy as np
import pikepdf
import pypdfium2
import pytest
import torch
from commands import bad, good, read_image
from PIL import Image

import unshift
from unshift.coordinates import Poses

BAND = b"0 g 0 %d %d 90 re f"


@pytest.fixture(scope="session")
def judge(tmp_path_factory) -> Path:
    """A restorer that prefers what is darker above than below."""
    net = unshift.PoseEstimator(1, channels=(1,), kernel_size=3, stride=1)
    with torch.no_grad():
        net.local[0].weight.copy_(torch.tensor([-1.0, 0, 1])[:, None].expand(1, 1, 3, 3))
        net.local[1].weight.fill_(1000.0)
    path = tmp_path_factory.mktemp("judge") / "judge.safetensors"
    scorer = unshift.quantise(net, torch.rand(4, 1, 16, 16))
    restorer = unshift.Restorer(scorer, coordinates=Poses("quarter", longest=1300))
    restorer.min_confidence = 0.3
    restorer.save(path)
    return path


def document(path: str, turns: list[int], **options) -> bytes:
    """Write a PDF of pages with a black band on top, shown turned clockwise by ``turns``."""
    with pikepdf.new() as pdf:
        for turn in turns:
            page = pdf.add_blank_page(page_size=(400, 600))
            page.obj.Contents = pdf.make_stream(BAND % (510, 400))
            if turn:
                page.obj.Rotate = 90 * turn
        pdf.save(path, **options)
    return Path(path).read_bytes()


def rows(folder: str) -> list[dict[str, str]]:
    with Path(folder, "poses.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def rotations(path: str) -> list[int]:
    with pikepdf.open(path) as pdf:
        return [int(page.obj.get("/Rotate", 0)) for page in pdf.pages]


@pytest.mark.parametrize("objects", pikepdf.ObjectStreamMode.__members__.values(), ids=str)
def test_a_pdf_is_only_appended_to(judge, objects):
    Path("in").mkdir()
    before = document("in/a.pdf", [0, 1, 2, 3], object_stream_mode=objects)
    upright = document("in/b.pdf", [0, 0])
    result = good("restore", "in", "-r", judge, "-o", "out")
    after = Path("out/a.pdf").read_bytes()
    assert after.startswith(before)
    assert len(after) > len(before)
    assert Path("out/b.pdf").read_bytes() == upright
    assert rotations("out/a.pdf") == [0, 0, 0, 0]
    assert [(row["file"], row["page"]) for row in rows("out")] == [
        *(("a.pdf", n) for n in "1234"),
        *(("b.pdf", n) for n in "12"),
    ]
    assert [row["written"] for row in rows("out")] == ["copied", *["lossless"] * 3, "copied", "copied"]
    assert "2 images restored" in result.stdout


def test_inherited_entries_stay_where_they_are(judge):
    Path("in").mkdir()
    document("in/a.pdf", [0, 0])
    with pikepdf.open("in/a.pdf", allow_overwriting_input=True, inherit_page_attributes=False) as pdf:
        pdf.Root.Pages.Rotate = 90
        pdf.Root.Pages.MediaBox = [0, 0, 400, 600]
        for page in pdf.Root.Pages.Kids:
            del page.MediaBox
        pdf.save("in/a.pdf")
    good("restore", "in", "-r", judge, "-o", "out")
    assert Path("out/a.pdf").read_bytes().startswith(Path("in/a.pdf").read_bytes())
    with pikepdf.open("out/a.pdf", inherit_page_attributes=False) as pdf:
        assert pdf.Root.Pages.Rotate == 90
        assert [page.Rotate for page in pdf.Root.Pages.Kids] == [0, 0]
    assert [page.get_size() for page in pypdfium2.PdfDocument("out/a.pdf")] == [(400, 600)] * 2


@pytest.mark.parametrize("entry", ["450", "-90", "180.0", "45", "/None"])
def test_entries_are_read_as_they_are_rendered(judge, entry):
    Path("in").mkdir()
    document("in/a.pdf", [0])
    with pikepdf.open("in/a.pdf", allow_overwriting_input=True) as pdf:
        pdf.pages[0].obj.Contents = pdf.make_stream(BAND % (0, 400))  # so that it is not upright without an entry
        pdf.pages[0].obj.Rotate = pikepdf.Object.parse(entry.encode())
        pdf.save("in/a.pdf")
    good("restore", "in", "-r", judge, "-o", "out", "--min-confidence", 0)
    assert rotations("out/a.pdf") == [180]
    good("restore", "out/a.pdf", "-r", judge, "-o", "again")
    assert Path("again/a.pdf").read_bytes() == Path("out/a.pdf").read_bytes()


def test_doubtful_pages_stay_and_are_named(judge):
    Path("in").mkdir()
    document("in/a.pdf", [2, 1])
    with pikepdf.new() as pdf:
        pdf.add_blank_page()
        pdf.save("in/blank.pdf")
    result = good("restore", "in", "-r", judge, "-o", "out")
    assert "blank.pdf page 1" in result.stdout
    assert Path("out/blank.pdf").read_bytes() == Path("in/blank.pdf").read_bytes()
    assert [row["restored"] for row in rows("out")] == ["true", "true", "false"]
    good("restore", "in", "-r", judge, "-o", "none", "--min-confidence", 1)
    assert Path("none/a.pdf").read_bytes() == Path("in/a.pdf").read_bytes()
    assert unshift.load(judge).min_confidence == 0.3
    assert unshift.load(judge, min_confidence=0).min_confidence == 0


def test_encrypted_and_damaged_files_are_named(judge):
    Path("in").mkdir()
    content = document("in/good.pdf", [2])
    document("in/locked.pdf", [2], encryption=pikepdf.Encryption(owner="a", user="b"))
    document("in/owned.pdf", [2], encryption=pikepdf.Encryption(owner="a"))
    Path("in/cut.pdf").write_bytes(content[:150])
    Path("in/text.pdf").write_bytes(b"hello")
    Path("in/empty.pdf").write_bytes(b"")
    document("in/without.pdf", [])
    damaged = ("locked", "owned", "cut", "text", "empty", "without")
    for name in damaged:
        assert f"in/{name}.pdf" in bad("restore", f"in/{name}.pdf", "-r", judge, "-o", "one")
    result = good("restore", "in", "-r", judge, "-o", "out", "--skip-unreadable")
    assert all(f"in/{name}.pdf" in result.stderr for name in damaged)
    assert sorted(path.name for path in Path("out").iterdir()) == ["good.pdf", "poses.csv"]


def test_other_restorers_do_not_take_documents(made):
    document("a.pdf", [0])
    assert "a.pdf" in bad("restore", "a.pdf", "-r", made / "paper.safetensors", "-o", "out")


def test_the_error_without_the_extra_names_it(judge, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    document("a.pdf", [0])
    assert "unshift[pages]" in bad("restore", "a.pdf", "-r", judge, "-o", "out")


def band(mode: str, size: tuple[int, int] = (64, 96)) -> Image.Image:
    pixels = np.random.default_rng(0).integers(150, 256, size[::-1]).astype(np.uint8)
    pixels[: size[1] // 8] = 0
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB"])
def test_pages_of_a_tiff_are_judged_one_by_one(judge, mode):
    page = band(mode)
    turned = [page, page.transpose(Image.Transpose.ROTATE_180), page.transpose(Image.Transpose.ROTATE_90)]
    Path("in").mkdir()
    turned[0].save("in/a.tif", save_all=True, append_images=turned[1:], compression="tiff_lzw", dpi=(300, 300))
    good("restore", "in", "-r", judge, "-o", "out")
    with Image.open("out/a.tif") as image:
        assert image.n_frames == 3
        for frame in range(3):
            image.seek(frame)
            assert image.mode == mode
            assert image.info["dpi"] == (300, 300)
            assert image.convert("RGB").tobytes() == page.convert("RGB").tobytes()
    assert [row["turn"] for row in rows("out")] == [unshift.load(judge).coordinates.labels.turns[n] for n in (0, 2, 1)]


@pytest.mark.skipif(not shutil.which("jpegtran"), reason="needs jpegtran of libjpeg-turbo-progs")
def test_a_jpeg_is_turned_without_decoding_where_its_size_allows(judge):
    Path("in").mkdir()
    for name, size in (("whole", (64, 96)), ("part", (60, 90))):
        band("RGB", size).transpose(Image.Transpose.ROTATE_180).save(f"in/{name}.jpg")
    good("restore", "in", "-r", judge, "-o", "out")
    assert {row["file"]: row["written"] for row in rows("out")} == {"whole.jpg": "lossless", "part.jpg": "lossy"}


@pytest.mark.skipif(not shutil.which("jpegtran"), reason="needs jpegtran of libjpeg-turbo-progs")
@pytest.mark.parametrize("group", ["mirror", "half", "flips"])
def test_a_jpeg_is_turned_by_the_group_of_the_restorer(group):
    """Element 1 is a quarter turn in some groups only."""
    torch.manual_seed(0)
    net = unshift.PoseEstimator(3, channels=(4,), kernel_size=3, stride=2)
    restorer = unshift.Restorer(unshift.quantise(net, torch.rand(8, 3, 16, 16)), coordinates=Poses(group))
    restorer.save("r.safetensors")
    Path("in").mkdir()
    for number in range(8):
        noise = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(noise).save(f"in/{number}.jpg", quality=95, subsampling=0)
    good("restore", "in", "-r", "r.safetensors", "-o", "out")
    assert len({row["turn"] for row in rows("out")}) > 1
    for number in range(8):
        wanted, found = restorer(read_image(f"in/{number}.jpg")), read_image(f"out/{number}.jpg")
        assert np.abs(np.asarray(wanted, dtype=float) - np.asarray(found)).mean() < 10
