"""Pictures of one's own on the page: uploaded or drawn."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import pytest
from page import agree
from PIL import Image

from unshift.data import dataset


def test_upload(page, python, tmp_path):
    digits = dataset("mnist-10k", "test")
    array = digits.images[0, 0].numpy()
    Image.fromarray(np.kron(255 - array, np.ones((8, 8), np.uint8))).save(tmp_path / "seven.png")  # dark on light
    said = page.upload(tmp_path / "seven.png")
    assert "seven.png: its middle square, 32x32" in said
    assert "inverted" in said
    page.keys("\ue011", *["\ue014"] * 9)
    agree(page, python, [0, 9])
    assert page.verdicts[1] == 7
    assert page.find("#with").get_attribute("data-state") == "open"  # nobody has said what it is
    page.js("const t = document.getElementById('truth'); t.value = 7; t.dispatchEvent(new Event('change'))")
    page.settle()
    assert page.find("#with").get_attribute("data-state") == "right"
    assert page.text("key-right") == "verdict right"


def bad_files(folder: Path) -> dict[str, tuple[Path, str]]:
    """Files that are refused, or taken with a word; each with what the page says."""
    (folder / "text.png").write_text("this is no image")
    (folder / "empty.png").touch()
    (folder / "cut.png").write_bytes(png(64, 64)[:60])
    with (folder / "large.png").open("wb") as file:
        file.truncate(50_000_000)
    (folder / "one.png").write_bytes(png(1, 1))
    bomb = bytearray(png(8, 8))
    bomb[16:24] = (60_000).to_bytes(4, "big") * 2
    (folder / "bomb.png").write_bytes(bomb)
    Image.new("CMYK", (40, 40), (0, 200, 200, 0)).save(folder / "cmyk.jpg")
    frames = [Image.new("L", (40, 40), shade) for shade in (0, 128, 255)]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:], duration=50)
    (folder / "picture.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'></svg>")
    said = {
        "text.png": "was not taken: it is not an image",
        "empty.png": "was not taken: it is empty",
        "cut.png": "was not taken: it is not an image",
        "large.png": "was not taken: it has 50 MB; at most 10 MB",
        "one.png": "was not taken: it is 1x1 pixels",
        "bomb.png": "was not taken: it is 60000x60000 pixels",
        "cmyk.jpg": "a CMYK JPEG",
        "moving.gif": "an animation: its first frame",
        "picture.svg": "was not taken",
    }
    return {name: (folder / name, words) for name, words in said.items()}


def png(width: int, height: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 90)).save(data, "PNG")
    return data.getvalue()


@pytest.mark.slow
def test_bad_uploads(page, python, tmp_path):
    """Each file has its message, and the page goes on after each."""
    for name, (path, words) in bad_files(tmp_path).items():
        said = page.upload(path)
        assert name in said
        assert words in said, said
        before = page.shift
        page.keys("\ue014")
        after = [before[0], (before[1] + 1 + 16) % 32 - 16]
        agree(page, python, after)
    assert page.errors() == []


@pytest.mark.slow
def test_a_second_finger_does_not_draw(page):
    page.find("[data-mode=draw]").click()
    page.find("#clear").click()
    x, y, width = page.js(
        "const b = document.getElementById('stage').getBoundingClientRect(); return [b.x, b.y, b.width]"
    )
    for kind, *at in (
        ("touchStart", (0.2, 0.2)),
        ("touchMove", (0.2, 0.4)),
        ("touchStart", (0.2, 0.4), (0.9, 0.9)),
        ("touchMove", (0.2, 0.6), (0.9, 0.8)),
        ("touchEnd",),
    ):
        points = [{"x": x + width * u, "y": y + width * v, "id": i} for i, (u, v) in enumerate(at)]
        page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.settle()
    assert page.image[..., :10].sum() > 10
    assert page.image[..., 10:].sum() == 0


def test_what_moves_does_not_move_a_drawing(page):
    """The way to a random shift ends where drawing begins, and the pen is gone where it ends."""
    page.js("document.getElementById('random').click(); document.querySelector('[data-mode=draw]').click()")
    time.sleep(0.6)
    assert page.shift == [0, 0]
    page.keys("\ue015")
    assert page.find("#pen").is_displayed()
    page.find("#strip button").click()
    assert not page.find("#pen").is_displayed()


@pytest.mark.slow
def test_drawing(fresh, python):
    """A digit drawn in a corner: found, moved to the middle, and read."""
    page = fresh  # with nothing drawn yet
    from selenium.webdriver import ActionChains

    page.find("[data-mode=draw]").click()
    assert "Draw a digit" in page.text("hint")
    stage = page.find("#stage")
    cell = stage.rect["width"] / 32

    def stroke(*points: tuple[float, float]) -> None:
        actions = ActionChains(page.driver, duration=10)
        for i, (x, y) in enumerate(points):
            actions.move_to_element_with_offset(stage, round((x - 16) * cell), round((y - 16) * cell))
            if i == 0:
                actions.click_and_hold()
        actions.release().perform()

    stroke((2, 3), (14, 3), (10, 12), (6, 23))  # a seven, in the upper left
    page.settle()
    assert page.text("hint") == ""
    agree(page, python, [0, 0])
    assert page.verdicts[1] == 7
    page.find("#drawn").click()
    page.keys(*["\ue015"] * 4)
    agree(page, python, [4, 0])
    assert page.verdicts[1] == 7
    # And with the keyboard alone: space puts the pen down, arrows draw.
    page.find("[data-mode=draw]").click()
    page.find("#clear").click()
    page.keys(" ", *["\ue015"] * 16)
    assert page.js("return Math.max(...window.unshift.state.image)") > 0.9
    agree(page, python, [0, 0])
    assert page.verdicts[1] == 1
