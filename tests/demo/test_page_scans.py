"""The pages tab: in a real browser the scores of the four turns, and the pixels, that Python computes."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from page import Page, wait
from PIL import Image

import unshift
from unshift.demo.site import PAGES
from unshift.files import pretrained

pytestmark = pytest.mark.skipif(PAGES not in pretrained(), reason="needs the restorer of pages")

DROP = """
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([Uint8Array.from(arguments[0])], "scan.png"));
    document.getElementById("page-turns").dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true }));
"""


class Scans(Page):
    """The page with its pages tab open."""

    def settle(self) -> None:
        super().settle()
        if self.js("return document.documentElement.dataset.tab") == "pages":
            wait(lambda: self.js("return window.unshift.pages && !window.unshift.pages.busy()"), 120, "the page")

    def drop(self, image: np.ndarray) -> None:
        Image.fromarray(image).save(buffer := io.BytesIO(), "PNG")
        self.js("document.getElementById('page-note').textContent = ''")
        self.js(DROP, list(buffer.getvalue()))
        wait(lambda: self.text("page-note").startswith("scan.png"), 60, "the scan")
        self.settle()


@pytest.fixture
def page(browser, address) -> Scans:
    """The open tab with its sample."""
    pytest.importorskip("onnxscript")
    page = Scans(browser, address)
    page.find("#tabs [data-tab=pages]").click()
    page.settle()
    return page


def test_a_scan_gets_the_scores_and_pixels_of_python(page):
    restorer = unshift.load(PAGES)
    chance = np.random.default_rng(0)
    assert len(page.driver.find_elements("css selector", "#page-turns figcaption")) == 4  # of the sample
    for size in ((240, 190), (300, 2701)):  # as it is, and reduced
        scan = chance.integers(0, 256, size).astype(np.uint8)
        scan[: size[0] // 5] //= 4
        for turn in range(4):
            given = np.rot90(scan, turn).copy()
            page.drop(given)
            image = torch.from_numpy(given)[None, None]
            scores = restorer.scorer.scores(restorer.coordinates.canvases(image)).map()
            # The page turns to the right, canvas k is turned back by k quarters to the left.
            assert page.js("return window.unshift.pages.shown().scores") == scores[0].tolist()
            pixels = np.array(page.js("return window.unshift.pages.pixels()"), np.uint8)
            assert (pixels[::4] == restorer(image).numpy().flatten()).all()
            shown = [float(each.text) for each in page.driver.find_elements("css selector", "#page-turns figcaption")]
            assert shown == pytest.approx((scores[0] * restorer.scorer.score_unit).tolist(), abs=0.01)
            assert page.find("#page-download").is_enabled()
    assert page.errors() == []
