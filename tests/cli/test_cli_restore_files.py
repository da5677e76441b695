"""``unshift restore``: files in, files out, nothing overwritten and nothing lost."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import pytest
from commands import bad, good, good_json
from PIL import Image
from samples import blobs

import unshift
from unshift import Restorer
from unshift.cli import restoring


def test_restore_keeps_jpeg_and_subfolders_and_passes_other_files_over(made, pixels):
    Path("in/deep").mkdir(parents=True)
    Image.fromarray(pixels[0, 0].numpy()).save("in/deep/a,b.jpg", quality=100)
    Image.fromarray(pixels[1, 0].numpy()).save("in/c.PNG")
    Path("in/notes.txt").write_text("hello")
    Image.fromarray(pixels[1, 0].numpy()).save("in/.hidden.png")
    result = good("restore", "in", "--restorer", made / "paper.safetensors", "--out", "out")
    assert result.stdout.startswith("2 images restored, ")
    assert result.stderr == ""
    found = sorted(path.relative_to("out").as_posix() for path in Path("out").rglob("*") if path.is_file())
    assert found == ["c.PNG", "deep/a,b.jpg", "poses.csv"]
    with Image.open("out/deep/a,b.jpg") as image:
        assert (image.format, image.mode) == ("JPEG", "L")
    with Path("out/poses.csv").open(newline="") as file:
        assert [row["file"] for row in csv.DictReader(file)] == ["c.PNG", "deep/a,b.jpg"]


def test_restore_overwrites_nothing(made, pixels):
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Image.fromarray(pixels[0, 0].numpy()).save(f"{folder}/x.png")
    model = ("--restorer", made / "paper.safetensors")

    def refused(*args: object) -> str:
        before = sorted(Path().rglob("*"))
        message = bad("restore", *args, *model)
        assert sorted(Path().rglob("*")) == before
        return message

    assert refused("a", "--out", "a") == "--out a is where the inputs are (a); give another folder"
    assert refused("a", "--out", "a/deep", "--force") == "--out a/deep is where the inputs are (a); give another folder"
    assert refused("a/x.png", "--out", "b/../a").startswith("--out b/../a is where the inputs are (a/x.png)")
    assert refused("a", "b", "--out", "c") == "a/x.png and b/x.png would both become c/x.png; restore them separately"
    assert refused("a/x.png", "b/x.png", "--out", "c").endswith("would both become c/x.png; restore them separately")
    good("restore", "a", "a/x.png", *model, "--out", "c")  # the same file twice is one file
    assert refused("a", "--out", "c") == "c/x.png exists (2 such files); --force overwrites"
    good("restore", "a", *model, "--out", "c", "--force")
    Path("d/d").mkdir(parents=True)
    Image.fromarray(pixels[0, 0].numpy()).save("d/d/x.png")
    Image.fromarray(pixels[0, 0].numpy()).save("d/x.png")
    assert refused("d", "--out", ".", "--force") == "d/x.png is itself one of the inputs; give another --out"


def test_restore_writes_nothing_if_a_file_is_bad(made, pixels):
    def refused(*args: object) -> str:
        message = bad("restore", *args, "--restorer", made / "paper.safetensors", "--out", "out")
        assert not Path("out").exists()
        return message

    Path("in").mkdir()
    Image.fromarray(pixels[0, 0].numpy()).save("in/a.png")
    data = Path("in/a.png").read_bytes()
    Path("in/b.png").write_bytes(data[: len(data) // 2])
    assert refused("in").startswith("in/b.png cannot be read as an image (")
    Path("in/b.png").write_text("hello")
    assert refused("in").startswith("in/b.png cannot be read as an image (")
    Path("text.txt").write_text("hello")
    assert refused("text.txt").startswith("text.txt cannot be read as an image (")
    assert refused("nothing.png") == "no file or folder nothing.png"
    Path("empty").mkdir()
    assert refused("empty") == "empty holds no image files, such as .png or .jpg"
    frames = [Image.fromarray(image[0].numpy()) for image in pixels[:3]]
    frames[0].save("film.gif", save_all=True, append_images=frames[1:])
    assert refused("film.gif") == "film.gif has 3 frames; only single images are restored"
    Path("out").write_text("")
    assert "out" in bad("restore", "in/a.png", "--restorer", made / "paper.safetensors", "--out", "out")
    volume = Restorer(unshift.quantise(unshift.ShiftEstimator.preset("dense", 1, (6, 6, 6)), blobs(3, 1, (6, 6, 6))))
    volume.save("volume.safetensors")
    message = bad("restore", "in/a.png", "--restorer", "volume.safetensors", "--out", "out2")
    assert message == "restore is for image files; this restorer takes arrays of 3 axes, not 2"


def test_restore_copies_doubtful_images_as_they_are(made):
    command = ("restore", made / "photos", "--restorer", made / "paper.safetensors")
    sure = {row["file"]: row["confidence"] for row in good_json(*command, "--out", "all")}
    least = sorted(sure.values())[10]
    result = good(*command, "--out", "some", "--min-confidence", least)
    assert result.stdout.startswith("10 images restored, ")
    assert "; 10 doubtful ones were copied as they are; " in result.stdout
    with Path("some/poses.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["file"]: row["restored"] for row in rows} == {f: str(c >= least).lower() for f, c in sure.items()}
    for row in rows:
        wanted = Path("all") if row["restored"] == "true" else made / "photos"
        assert Path("some", row["file"]).read_bytes() == (wanted / row["file"]).read_bytes()


def test_restore_skips_what_cannot_be_read_and_names_it(made, pixels):
    Path("in").mkdir()
    Image.fromarray(pixels[0, 0].numpy()).save("in/a.png")
    Path("in/b.png").write_bytes(Path("in/a.png").read_bytes()[:60])
    Path("in/c.png").write_text("hello")
    command = ("restore", "in", "--restorer", made / "paper.safetensors", "--out", "out")
    assert bad(*command).startswith("in/b.png cannot be read as an image (")
    assert not Path("out").exists()
    result = good(*command, "--skip-unreadable")
    assert result.stderr == "unshift: warning: skipped, because they cannot be read or do not fit: in/b.png, in/c.png\n"
    assert result.stdout.startswith("1 images restored, ")
    assert "; 2 were skipped; their poses are in out/poses.csv" in result.stdout
    assert sorted(path.name for path in Path("out").iterdir()) == ["a.png", "poses.csv"]
    Path("in/a.png").unlink()
    message = bad(*command, "--skip-unreadable", "--force")
    assert message.startswith("none of the 2 files can be restored: in/b.png cannot be read as an image (")


def test_restore_leaves_nothing_behind_when_it_fails_halfway(made, pixels):
    Path("in").mkdir()
    for i in range(12):
        Image.fromarray(pixels[i, 0].numpy()).save(f"in/{i:02}.png")
    Image.fromarray(pixels[0, 0, :4].numpy()).save("in/99.png")  # smaller than the filters
    message = bad("restore", "in", "--restorer", made / "paper.safetensors", "--out", "deep/out")
    assert message.startswith("in/99.png: ")
    assert message.endswith("; --skip-unreadable skips such files")  # to no size: this net takes any
    assert "--resize" not in message
    assert not Path("deep").exists()


def test_restore_skips_what_is_too_small_and_names_it(made, pixels):
    Path("in").mkdir()
    Image.new("L", (1, 1)).save("in/a.png")  # the first, and one among others
    Image.fromarray(pixels[0, 0].numpy()).save("in/b.png")
    Image.new("L", (1, 1)).save("in/c.png")
    result = good(
        "restore", "in", "--restorer", made / "paper.safetensors", "--out", "out", "--skip-unreadable", "--json"
    )
    assert [row["file"] for row in json.loads(result.stdout)] == ["b.png"]
    assert "skipped, because they cannot be read or do not fit: in/a.png, in/c.png\n" in result.stderr
    assert sorted(path.name for path in Path("out").iterdir()) == ["b.png", "poses.csv"]


@pytest.mark.skipif(sys.platform != "linux", reason="threads do it elsewhere")
def test_many_files_are_shared_by_processes_and_nothing_shows_that(made, pixels, monkeypatch):
    """The same files, table, warnings and errors as by threads."""
    Path("many").mkdir()
    for number in range(70):
        size = (13, 12) if number % 3 else (12, 12)
        grey = Image.fromarray(pixels[number, 0].numpy()).resize(size)
        (grey.convert("RGB") if number > 60 else grey).save(f"many/{number:02}.png")
    told = {}
    for out, many in (("processes", 64), ("threads", 1000)):
        monkeypatch.setattr(restoring, "MANY", many)
        found = good("restore", "many", "--restorer", made / "paper.safetensors", "--out", out)
        said = (found.stdout + found.stderr).replace(f"{out}/", "")
        told[out] = re.sub(r"many/6\d\.png has", "one of them has", said)  # whichever is read first
    assert told["processes"] == told["threads"]
    assert told["threads"].count("has colours") == 1
    assert len([*Path("processes").iterdir()]) == 71
    assert all(path.read_bytes() == Path("threads", path.name).read_bytes() for path in Path("processes").iterdir())
    Path("many/10.png").write_bytes(Path("many/10.png").read_bytes()[:60])
    monkeypatch.setattr(restoring, "MANY", 64)
    message = bad("restore", "many", "--restorer", made / "paper.safetensors", "--out", "none")
    assert "10.png" in message
    assert "--skip-unreadable" in message
    assert not Path("none").exists()
