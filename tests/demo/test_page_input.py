"""Uploaded and drawn images on the page."""

from __future__ import annotations

import numpy as np
from page import HOME, RIGHT, agree
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
