"""Uploaded and drawn images on the page."""

from __future__ import annotations

import numpy as np
import pytest
from page import DOWN, HOME, RIGHT, Page, agree
from PIL import Image

from unshift.data import dataset


def test_upload(page, python, tmp_path):
    digits = dataset("mnist-10k", "test")
    array = digits.images[0, 0].numpy()
    Image.fromarray(np.kron(255 - array, np.ones((8, 8), np.uint8))).save(tmp_path / "seven.png")  # dark on light
    note = page.upload(tmp_path / "seven.png")
    assert "seven.png" in note
    assert "inverted" in note
    page.keys(HOME, *[RIGHT] * 9)
    agree(page, python, [0, 9])
    assert page.predictions[1] == 7
    assert page.data("with", "state") == "open"  # the true class is unknown
    page.js("const t = document.getElementById('truth'); t.value = 7; t.dispatchEvent(new Event('change'))")
    page.settle()
    assert page.data("with", "state") == "right"


@pytest.mark.slow
def test_drawing(browser, address, python):
    """A digit drawn in a corner is moved to the middle and classified."""
    page = Page(browser, address)
    from selenium.webdriver import ActionChains

    page.find("[data-mode=draw]").click()
    assert page.text("hint")
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
    assert not page.text("hint")
    agree(page, python, [0, 0])
    assert page.predictions[1] == 7
    page.find("#drawn").click()
    page.keys(*[DOWN] * 4)
    agree(page, python, [4, 0])
    assert page.predictions[1] == 7
    # By keyboard: space lowers the pen, arrows draw.
    page.find("[data-mode=draw]").click()
    page.find("#clear").click()
    page.keys(" ", *[DOWN] * 16)
    assert page.js("return Math.max(...window.unshift.state.image)") > 0.9
    agree(page, python, [0, 0])
    assert page.predictions[1] == 1
