"""Shifts and rotations together on the page: slow, because two networks take long to export."""

from __future__ import annotations

import pytest
import torch
from page import HOME, MNIST, RIGHT, Page, wait

import unshift
from unshift import classifiers
from unshift.coordinates import Pose

pytestmark = pytest.mark.slow


def agree(page: Page, shift: list[int], angle: int) -> torch.Tensor:
    """Assert that the page shows this pose, and the same results as Python; return the restored image."""
    restorer, classifier = unshift.load(MNIST.pose), classifiers.load(MNIST.classifier)
    assert (page.shift, page.js("return window.unshift.state.angle")) == (shift, angle)
    pose = Pose(torch.tensor([shift]), angle=torch.tensor([float(angle)], dtype=torch.float64))
    moved = restorer.coordinates.redo(page.image, pose)
    assert torch.equal(page.moved, moved)
    estimate, restored = restorer.estimate(moved), restorer(moved)
    assert page.estimate == estimate.shift[0].tolist()
    assert float(page.data("estimate", "angle")) == float(estimate.angle)
    assert torch.equal(page.restored.view(torch.int32), restored.view(torch.int32))
    with torch.no_grad():
        assert page.predictions == (int(classifier(moved).argmax(1)), int(classifier(restored).argmax(1)))
    return restored


@pytest.fixture
def posed(browser, full_address) -> Page:
    page = Page(browser, full_address).start()
    page.find("[data-mode=pose]").click()
    wait(lambda: page.data("estimate", "angle"), 60, "the models")
    page.settle()
    return page


def test_drag_and_rotate_together(posed):
    agree(posed, [0, 0], 0)
    posed.drag(-7, 5)
    agree(posed, [-7, 5], 0)
    posed.slide(-37)
    agree(posed, [-7, 5], 37)
    posed.drag(3, 9)
    agree(posed, [-4, 14], 37)
    posed.slide(128)
    posed.keys(*[RIGHT] * 4)
    agree(posed, [-4, -14], -128)
    # The marker is at the highest score of the first network.
    centre = unshift.load(MNIST.pose).stages[0]
    scores = centre.scorer(centre.coordinates.canvases(posed.moved)[0])
    down, right = ((value + 16) % 32 for value in posed.estimate)
    assert int(scores[0, down, right]) == int(scores.max())
    at = [posed.js(f"return parseFloat(document.getElementById('peak').style.{side})") for side in ("top", "left")]
    assert at == [100 * (place + 0.5) / 32 for place in (down, right)]
    posed.keys(HOME)
    agree(posed, [0, 0], 0)
    assert posed.errors() == []


def test_quarter_turns_and_shifts_restore_one_image(posed):
    upright = agree(posed, [0, 0], 0)
    for slider, down, right in ((90, 4, -6), (180, 3, 2), (-90, -9, -5)):
        posed.slide(slider)
        posed.drag(down, right)
        restored = agree(posed, posed.shift, 180 if slider == 180 else -slider)
        assert torch.equal(restored.view(torch.int32), upright.view(torch.int32))
    assert posed.data("same", "same") == "true"
    before = int(posed.data("same", "count"))
    posed.slide(20)
    posed.drag(6, 6)
    assert posed.data("same", "same") == "true"
    assert 1 < int(posed.data("same", "count")) < before  # counted separately for each angle
