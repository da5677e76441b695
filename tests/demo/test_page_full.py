"""The page with all datasets and rotations: slow, because they take long to export."""

from __future__ import annotations

import pytest
import torch
from page import END, HOME, LEFT, MNIST, Page, phone, wait
from torch import nn

import unshift
from unshift.classifiers import load as load_classifier
from unshift.coordinates import rotate
from unshift.data import resize, to_float
from unshift.demo import site

pytestmark = pytest.mark.slow


def test_rotation(browser, full_address):
    """The rotated image is Python's; for that image, the angle and the predictions are Python's too."""
    page = Page(browser, full_address)
    page.find("[data-mode=rotate]").click()
    restorer, classifier = unshift.load("mnist-rotation"), load_classifier("lenet5-mnist")
    small = nn.Sequential(nn.Upsample((32, 32), mode="bilinear"), classifier)
    number = page.js("return window.unshift.state.sample")
    native = site.samples(MNIST)[number : number + 1]
    upright = resize(to_float(native), (224, 224))
    for value in (-40, 90, 137, 0):
        page.slide(value)
        wait(lambda: page.data("estimate", "angle"), what="an angle")
        page.settle()
        turned = page.tensor("input()", 224, 224)
        assert torch.allclose(turned, rotate(upright, -value), atol=1e-6)
        assert float(page.data("estimate", "angle")) == float(restorer.estimate(turned).angle)
        with torch.no_grad():
            wanted = int(small(turned).argmax(1)), int(small(restorer(turned)).argmax(1))
        assert page.predictions == wanted
    page.find("#angle").send_keys(END)  # half a turn, and the thumb stays there
    assert page.find("#angle").get_property("value") == "180"
    page.settle()
    page.js("document.getElementById('stage').focus()")
    page.keys(HOME)
    page.keys(LEFT)  # one degree counter-clockwise
    assert page.js("return window.unshift.state.angle") == 1
    wait(lambda: page.data("sweep-with", "tried") == "120", 200, "the ring")
    assert page.errors() == []


@pytest.mark.parametrize("width", [320, 390, 768, 1024])
def test_fits_every_width(browser, full_address, width):
    with phone(browser, width):
        page = Page(browser, full_address)
        assert sum(page.js("return window.jumps")) < 0.01
        for button in page.driver.find_elements("css selector", "#datasets button"):
            button.click()
            page.settle()
            assert page.js("return document.documentElement.scrollWidth") <= width
            assert page.js("return window.innerWidth") == width  # a phone zooms out if anything is wider
