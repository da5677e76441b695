"""``unshift restore``: pixels move, and none changes."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import QUICK, bad, good, good_json, read_image, save
from PIL import Image
from samples import blobs

import unshift
from unshift import Restorer


def shifted_files(folder: str, image: Image.Image, suffix: str, count: int = 4) -> list[Path]:
    """The same image under ``count`` shifts, as files."""
    Path(folder).mkdir(exist_ok=True)
    paths = []
    for i in range(count):
        moved = image.copy()
        moved.frombytes(np.roll(np.asarray(image), (5 * i, 3 * i), (0, 1)).tobytes())
        paths.append(Path(folder, f"{i}{suffix}"))
        moved.save(paths[-1])
    return paths


def picture(mode: str, pixels: torch.Tensor) -> Image.Image:
    grey = Image.fromarray(pixels[3, 0].numpy())
    if mode == "P":
        return grey.convert("RGB").quantize(7)
    return grey if mode == "L" else Image.fromarray(pixels[3, 0].numpy().astype(np.uint16) * 200)


@pytest.mark.parametrize(("mode", "suffix"), [("L", ".tif"), ("P", ".gif"), ("I;16", ".png")])
def test_restored_files_do_not_depend_on_the_shift(mode, suffix, made, pixels):
    paths = shifted_files("in", picture(mode, pixels), suffix)
    good("restore", "in", "--restorer", made / "paper.safetensors", "--out", "out")
    with Path("out/poses.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    images = [np.asarray(read_image(Path("out", path.name)).convert("RGB" if mode == "P" else mode)) for path in paths]
    assert all(np.array_equal(image, images[0]) for image in images)
    assert [row["file"] for row in rows] == [path.name for path in paths]
    assert all(0 < float(row["confidence"]) <= 1 and row["tied"] in ("true", "false") for row in rows)
    assert len({(row["down"], row["right"]) for row in rows}) == 4
    assert len({row["confidence"] for row in rows}) == 1
    assert list(rows[0]) == ["file", "down", "right", "confidence", "tied", "written"]


def test_colours_of_the_same_grey_do_not_confuse_the_tie_rule(made):
    # A net that looks at greys sees a constant image: every position ties, and only the colours differ.
    array = np.full((12, 12, 3), 100, dtype=np.uint8)
    array[4, 7] = (64, 105, 165)
    assert np.asarray(Image.fromarray(array).convert("L")).std() == 0
    shifted_files("in", Image.fromarray(array), ".png")
    rows = good_json("restore", "in", "--restorer", made / "paper.safetensors", "--out", "out")
    assert all(row["tied"] for row in rows)
    images = [np.asarray(read_image(f"out/{i}.png")) for i in range(4)]
    assert all(np.array_equal(image, images[0]) for image in images)


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_restore_turns_a_photo_upright(suffix, made, pixels):
    """Pillow mixes up the pixels of a turned TIFF that it maps into memory."""
    image, exif = Image.fromarray(pixels[0, 0, :10].contiguous().numpy()), Image.Exif()
    exif[0x0112] = 6
    image.save(f"turned{suffix}", exif=exif)
    image.rotate(-90, expand=True).save(f"upright{suffix}")
    good("restore", f"turned{suffix}", f"upright{suffix}", "--restorer", made / "paper.safetensors", "--out", "out")
    with read_image(f"out/turned{suffix}") as turned, read_image(f"out/upright{suffix}") as upright:
        assert turned.getexif().get(0x0112, 1) == 1
        assert np.array_equal(np.asarray(turned), np.asarray(upright))


def test_restore_takes_any_size_if_the_network_does(made):
    Path("in").mkdir()
    Image.fromarray((255 * blobs(1, 1, (20, 31))[0, 0]).byte().numpy()).save("in/wide.png")
    good("restore", "in", "--restorer", made / "paper.safetensors", "--out", "out")
    assert read_image("out/wide.png").size == (31, 20)
    message = bad("restore", "in", "--restorer", made / "dense.safetensors", "--out", "out2")
    assert all(word in message for word in ("in/wide.png", "(12, 12)", "(20, 31)", "--resize"))
    assert not Path("out2").exists()
    good("restore", "in", "--restorer", made / "dense.safetensors", "--out", "out2", "--resize")
    assert read_image("out2/wide.png").size == (12, 12)
    tiny = save("tiny.npy", blobs(30, 1, (5, 5)))
    good("fit", tiny, "--out", "tiny.safetensors", *QUICK)
    good("restore", "in", "--restorer", "tiny.safetensors", "--out", "out3", "--resize")
    assert read_image("out3/wide.png").size == (5, 5)


def test_restore_on_a_margin(made, pixels):
    good("fit", made / "blobs.npy", "--pad", 3, "--preset", "dense", "--out", "x.safetensors", *QUICK)
    message = bad("restore", made / "photos", "--restorer", "x.safetensors", "--out", "out", "--pad", 2)
    assert "(18, 18)" in message
    assert "(16, 16)" in message
    rows = good_json("restore", made / "photos", "--restorer", "x.safetensors", "--out", "out", "--pad", 3)
    assert min(row["down"] for row in rows) < 0  # the shortest shift
    assert {row["written"] for row in rows} <= {"lossless", "copied", "cropped"}
    wanted = unshift.load("x.safetensors", pad=3)(pixels[:20])
    for i in range(20):
        assert np.array_equal(np.asarray(read_image(f"out/{i:02}.png")), wanted[i, 0].numpy())
    good("fit", made / "blobs.npy", "--pad", 3, "--out", "any.safetensors", *QUICK)
    result = good("restore", made / "photos", "--restorer", "any.safetensors", "--out", "out2")
    assert "--pad 3" in result.stderr


@pytest.mark.parametrize(
    ("kind", "columns"),
    [("turns", ["down", "right", "turn"]), ("rotation", ["angle"]), ("chain", ["down", "right", "angle"])],
)
def test_restore_undoes_every_kind_of_pose_as_the_library_does(kind, columns, posed):
    file = posed / f"{kind}.safetensors"
    rows = good_json("restore", posed / "images", "--restorer", file, "--out", "out")
    assert list(rows[0]) == ["file", *columns, "confidence", "tied", "written"]
    restorer = unshift.load(file)
    images = torch.stack([torch.from_numpy(np.array(read_image(posed / "images" / row["file"]))) for row in rows])
    estimate = restorer.estimate(images[:, None])
    restored = restorer.undo(images[:, None], estimate)
    for row, wanted in zip(rows, restored, strict=True):
        assert np.array_equal(np.asarray(read_image(Path("out", row["file"]))), wanted[0].numpy())
    if "down" in columns:
        assert [[row["down"], row["right"]] for row in rows] == estimate.shift.tolist()
    if "turn" in columns:
        assert {row["turn"] for row in rows} <= {"0°", "90°", "180°", "270°"}
        assert [row["turn"] for row in rows] == [restorer.coordinates.labels.turns[g] for g in estimate.turn]
    if "angle" in columns:
        assert [row["angle"] for row in rows] == estimate.angle.tolist()


@pytest.mark.parametrize("mode", ["L", "P", "I;16"])
@pytest.mark.parametrize("kind", ["turns", "rotation", "chain"])
def test_quarter_turns_of_a_file_become_one_file(kind, mode, posed):
    grey = np.asarray(read_image(posed / "images" / "1.png"))
    Path("in").mkdir()
    for quarters in range(4):
        image = picture(mode, torch.from_numpy(np.rot90(grey, quarters).copy()).expand(4, 1, 8, 8))
        image.save(f"in/{quarters}.png")
    good("restore", "in", "--restorer", posed / f"{kind}.safetensors", "--out", "out")
    found = [read_image(f"out/{quarters}.png") for quarters in range(4)]
    modes = {mode, "RGB"} if mode == "P" and kind != "turns" else {mode}  # no values between two palette entries
    assert {image.mode for image in found} in [{one} for one in modes]
    arrays = [np.asarray(image.convert("RGB") if mode == "P" else image) for image in found]
    assert all(np.array_equal(array, arrays[0]) for array in arrays)


def test_a_line_network_restores_photos_of_any_size():
    """Shifts are undone at the original resolution, without --resize."""
    torch.manual_seed(0)
    net = unshift.ShiftEstimator.preset("seam", 3, (24, 24))
    model = Restorer(unshift.quantise(net, torch.rand(4, 3, 24, 24)))
    model.trained_on["size"] = [24, 24]
    model.save("seam.safetensors")
    Path("in").mkdir()
    sizes = [(50, 35), (35, 50), (24, 24), (61, 47), (9, 100)]
    photos = [torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in sizes]
    for i, photo in enumerate(photos):
        for name, down, right in (("still", 0, 0), ("moved", 7, 31)):
            array = photo.roll((down, right), (1, 2)).permute(1, 2, 0).numpy()
            Image.fromarray(array).save(f"in/{i}-{name}.png")
    result = good("restore", "in", "--restorer", "seam.safetensors", "--out", "out", "--json")
    assert len(json.loads(result.stdout)) == 10
    assert result.stderr.count("warning") == 1  # only of what is beyond half or four times the size
    assert "24x24" in result.stderr
    assert "9x100" in result.stderr
    for i, photo in enumerate(photos):
        still, moved = (np.asarray(read_image(f"out/{i}-{name}.png")) for name in ("still", "moved"))
        assert still.shape == (*sizes[i], 3)
        assert np.array_equal(still, moved)
        with warnings.catch_warnings(action="ignore"):  # of a size unlike that of the training images
            assert np.array_equal(still, model(photo[None])[0].permute(1, 2, 0).numpy())


def test_restore_takes_the_preparation_of_fit(made):
    rows = good_json(
        *("restore", made / "photos", "--restorer", made / "paper.safetensors", "--out", "out"),
        *("--size", "20x16", "--crop", "--channels", 1),
    )
    assert len(rows) == 20
    assert {read_image(Path("out", row["file"])).size for row in rows} == {(16, 20)}


def test_restore_warns_if_a_network_of_greys_gets_colours(made, pixels):
    Image.fromarray(pixels[0, 0].numpy()).save("grey.png")
    Image.fromarray(pixels[0, 0].numpy()).convert("RGB").save("colour.png")
    command = ("restore", "--restorer", made / "paper.safetensors", "--out", "out", "--force")
    assert good(*command, "grey.png").stderr == ""
    assert "colour.png" in good(*command, "grey.png", "colour.png").stderr
