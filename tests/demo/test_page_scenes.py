"""The scenes tab in a real browser: the window that Python cuts out, for every place and every shift of the scene."""

from __future__ import annotations

import pytest
import torch
from page import LEFT, MNIST, Page, wait

import unshift
from unshift import classifiers
from unshift.data import resize


class Scenes(Page):
    """The page with its scenes tab open."""

    def settle(self) -> None:
        super().settle()
        if self.js("return document.documentElement.dataset.tab") == "scenes":
            wait(lambda: self.js("const s = window.unshift.scenes; return s && !s.busy()"), 120, "the scene")
            wait(lambda: self.data("scene-estimate", "shift"), 120, "the estimate")

    def press(self, name: str) -> None:
        self.find(f"#scene-{name}").click()
        self.settle()

    def drop(self, row: int, column: int) -> None:
        """Place the digit with its middle on a pixel of the scene."""
        from selenium.webdriver import ActionChains

        stage = self.find("#scene-stage")
        cell = stage.rect["width"] / 64
        at = (round((column - 32) * cell), round((row - 32) * cell))
        ActionChains(self.driver, duration=20).move_to_element_with_offset(stage, *at).click().perform()
        self.settle()

    @property
    def place(self) -> list[int]:
        return self.js("return window.unshift.scenes.state.place")

    @property
    def scene(self) -> torch.Tensor:
        return self.tensor("scenes.input()", 64, 64)

    @property
    def window(self) -> torch.Tensor:
        return self.tensor("scenes.restored()", 32, 32)


@pytest.fixture
def scenes(browser, address) -> Scenes:
    page = Scenes(browser, address)
    page.find("#tabs [data-tab=scenes]").click()
    page.settle()
    return page


def agree(page: Scenes) -> torch.Tensor:
    """Assert that the estimate, the window and the predictions are Python's; return the window."""
    restorer, classifier = unshift.load(MNIST.scene), classifiers.load(MNIST.classifier)
    scene = page.scene
    assert page.data("scene-estimate", "shift") == " ".join(map(str, restorer.estimate(scene).shift[0].tolist()))
    window = restorer(scene)
    assert torch.equal(page.window.view(torch.int32), window.view(torch.int32))
    with torch.no_grad():
        wanted = [int(classifier(images).argmax(1)) for images in (resize(scene, (32, 32)), window)]
    assert [int(page.data(f"scene-{name}", "prediction")) for name in ("alone", "with")] == wanted
    return window


def test_a_digit_is_cut_out_wherever_it_is(scenes):
    loaded = scenes.js("return performance.getEntriesByType('resource').map((entry) => entry.name.split('/').pop())")
    assert "scenes.js" in loaded
    assert "genomes.js" not in loaded
    agree(scenes)
    for row, column in ((16, 16), (40, 22), (60, 61)):  # the last is clamped to the scene
        scenes.drop(row, column)
        assert scenes.place == [min(row - 16, 32), min(column - 16, 32)]
        agree(scenes)
    before = scenes.scene
    scenes.press("clutter")
    assert not torch.equal(scenes.scene, before)
    agree(scenes)
    scenes.find("#scene-stage").send_keys(LEFT)
    scenes.settle()
    assert scenes.place == [32, 31]
    agree(scenes)
    scenes.js("document.getElementById('scene-strip').children[13].click()")
    scenes.settle()
    agree(scenes)
    assert scenes.js("return window.unshift.scenes.state.sample") == 13
    assert scenes.errors() == []


def test_the_window_is_the_same_at_all_shifts_of_the_scene(scenes):
    window, before = agree(scenes), scenes.scene
    for _ in range(3):
        scenes.press("roll")
        assert torch.equal(agree(scenes), window)
    shift = torch.tensor([scenes.js("return window.unshift.scenes.state.roll")])
    assert torch.equal(scenes.scene, unshift.apply(before, shift))
    assert (scenes.data("scene-same", "same"), scenes.data("scene-same", "count")) == ("true", "4")
    scenes.press("random")  # another scene: the comparison starts again
    assert scenes.data("scene-same", "count") == "1"
