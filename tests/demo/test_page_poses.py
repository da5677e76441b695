"""Shifts and rotations at once on the page: slow, since two networks take long to export."""

from __future__ import annotations

import re

import pytest
import torch
from page import MNIST, Page, wait

import unshift
from unshift.coordinates import Pose
from unshift.experiments.classifiers import shipped


def posed(page: Page, shift: list[int], angle: int) -> torch.Tensor:
    """Assert that the page, at this pose, shows and says what Python does; return the restored image."""
    restorer, classifier = unshift.load(MNIST.pose), shipped()[MNIST.classifier]()
    assert (page.shift, page.js("return window.unshift.state.angle")) == (shift, angle)
    pose = Pose(torch.tensor([shift]), angle=torch.tensor([float(angle)], dtype=torch.float64))
    moved = restorer.coordinates.move(page.image, pose)
    assert page.js("return window.unshift.input()") == moved.flatten().tolist()
    estimate, restored = restorer.estimate(moved), restorer(moved)
    assert page.found == estimate.shift[0].tolist()
    assert float(page.find("#found").get_attribute("data-angle")) == float(estimate.angle)
    assert torch.equal(page.restored.view(torch.int32), restored.view(torch.int32))
    with torch.no_grad():
        assert page.verdicts == (int(classifier(moved).argmax(1)), int(classifier(restored).argmax(1)))
    return restored


@pytest.fixture
def poser(browser, pose_address) -> Page:
    page = Page(browser, pose_address).start()
    page.find("[data-mode=pose]").click()
    wait(lambda: page.find("#found").get_attribute("data-angle"), 60, "the models")
    page.settle()
    return page


@pytest.mark.slow
def test_drag_and_rotate_at_once(poser):
    """The moved image is Python's to the last bit, and so are the pose that is found and the restored image."""
    posed(poser, [0, 0], 0)
    poser.drag(-7, 5)
    posed(poser, [-7, 5], 0)
    poser.slide(-37)
    posed(poser, [-7, 5], 37)
    poser.drag(3, 9)
    posed(poser, [-4, 14], 37)
    poser.slide(128)
    poser.keys(*["\ue014"] * 4)
    posed(poser, [-4, -14], -128)
    assert poser.text("words").startswith("Shifted by 14 left, 4 up, turned by 128° to the right; read as ")
    assert "°" in poser.text("found-angle")
    # The mark stands on the highest of the centre's scores.
    moved = torch.tensor(poser.js("return window.unshift.input()")).view(1, 1, 32, 32)
    centre = unshift.load(MNIST.pose).stages[0]
    scores = centre.scores(centre.coordinates.canvas(moved))[:, 0]
    down, right = ((value + 16) % 32 for value in poser.found)
    assert int(scores[0, down, right]) == int(scores.max())
    at = [poser.js(f"return parseFloat(document.getElementById('peak').style.{side})") for side in ("top", "left")]
    assert at == [100 * (place + 0.5) / 32 for place in (down, right)]
    poser.keys("\ue011")  # Home
    posed(poser, [0, 0], 0)
    assert poser.errors() == []


@pytest.mark.slow
def test_quarter_turns_and_shifts_are_one_image(poser):
    upright = posed(poser, [0, 0], 0)
    for slider, down, right in ((90, 4, -6), (180, 3, 2), (-90, -9, -5)):
        poser.slide(slider)
        poser.drag(down, right)
        moved = posed(poser, poser.shift, 180 if slider == 180 else -slider)
        assert torch.equal(moved.view(torch.int32), upright.view(torch.int32))
    assert poser.find("#same").get_attribute("data-same") == "true"
    assert re.fullmatch(
        r"The same image, bit for bit, at all \d+ shifts and quarter turns you tried.", poser.text("same")
    )
    poser.slide(20)
    poser.drag(6, 6)
    assert re.fullmatch(r"The same image, bit for bit, at (both|all \d+) shifts at 20° you tried.", poser.text("same"))


@pytest.mark.slow
def test_every_shift_of_a_turned_image(poser):
    poser.slide(-25)
    tried = "return document.getElementById('sweep-with').dataset.tried"
    wait(lambda: poser.js(tried) == "1024", 200, "the map")
    assert "one and the same image, bit for bit" in poser.text("sweep-more")
    poser.slide(-26)  # another image: its map begins anew
    assert int(poser.js(tried)) < 1024
    poser.slide(-25)
    assert poser.js(tried) == "1024"
