"""The page's tab of scenes: in a real browser, the window that Python cuts out, wherever digit and scene are."""

from __future__ import annotations

import pytest
import torch
from page import MNIST, Page, wait

import unshift
from unshift.data import resize
from unshift.experiments.classifiers import shipped


class Scenes(Page):
    """The page with its tab of scenes open."""

    def rest(self) -> None:
        done = "const s = window.unshift.scenes; return s && !s.busy()"
        found = "return document.getElementById('scene-found').dataset.shift"
        wait(lambda: self.js(done) and self.js(found), 120, "the scene")

    def press(self, name: str) -> None:
        self.find(f"#scene-{name}").click()
        self.rest()

    def drop(self, row: int, column: int) -> None:
        """Drop the digit with its middle on a pixel of the scene."""
        from selenium.webdriver import ActionChains

        stage = self.find("#scene-stage")
        cell = stage.rect["width"] / 64
        at = (round((column - 32) * cell), round((row - 32) * cell))
        ActionChains(self.driver, duration=20).move_to_element_with_offset(stage, *at).click().perform()
        self.rest()

    @property
    def place(self) -> list[int]:
        return self.js("return window.unshift.scenes.state.place")

    @property
    def scene(self) -> torch.Tensor:
        return torch.tensor(self.js("return window.unshift.scenes.input()")).view(1, 1, 64, 64)

    @property
    def window(self) -> torch.Tensor:
        return torch.tensor(self.js("return window.unshift.scenes.restored()")).view(1, 1, 32, 32)


@pytest.fixture
def scenes(browser, address) -> Scenes:
    page = Scenes(browser, address)
    page.find("#tabs [data-tab=scenes]").click()
    page.rest()
    return page


def agree(page: Scenes) -> torch.Tensor:
    """Assert that the page finds, cuts out and says what Python does; return the window."""
    restorer, classifier = unshift.load(MNIST.scene), shipped()[MNIST.classifier]()
    scene = page.scene
    assert page.find("#scene-found").get_attribute("data-shift") == " ".join(
        map(str, restorer.estimate(scene).shift[0].tolist())
    )
    window = restorer(scene)
    assert torch.equal(page.window.view(torch.int32), window.view(torch.int32))
    with torch.no_grad():
        wanted = [int(classifier(images).argmax(1)) for images in (resize(scene, (32, 32)), window)]
    assert [int(page.find(f"#scene-{name}").get_attribute("data-verdict")) for name in ("alone", "with")] == wanted
    return window


def test_a_digit_dropped_anywhere_is_cut_out(scenes):
    loaded = scenes.js("return performance.getEntriesByType('resource').map((entry) => entry.name.split('/').pop())")
    assert "scenes.js" in loaded
    assert "genomes.js" not in loaded
    agree(scenes)
    for row, column in ((16, 16), (40, 22), (60, 61)):  # the last is as far as the digit's image goes
        scenes.drop(row, column)
        assert scenes.place == [min(row - 16, 32), min(column - 16, 32)]
        agree(scenes)
    before = scenes.scene
    scenes.press("clutter")
    assert not torch.equal(scenes.scene, before)
    agree(scenes)
    scenes.find("#scene-stage").send_keys("\ue012")  # left
    scenes.rest()
    assert scenes.place == [32, 31]
    agree(scenes)
    assert scenes.errors() == []


def test_one_window_wherever_the_scene_is_rolled(scenes):
    window, before = agree(scenes), scenes.scene
    for _ in range(3):
        scenes.press("roll")
        assert torch.equal(agree(scenes), window)
    shift = torch.tensor([scenes.js("return window.unshift.scenes.state.roll")])
    assert torch.equal(scenes.scene, unshift.apply(before, shift))
    assert scenes.text("scene-same").startswith("The same window, bit for bit, wherever the scene was rolled to")
    scenes.press("random")  # another scene: counted anew
    assert scenes.text("scene-same").startswith("Roll the scene")


def test_another_digit_is_chosen(scenes):
    scenes.js("document.getElementById('scene-strip').children[13].click()")
    scenes.rest()
    agree(scenes)
    assert scenes.js("return window.unshift.scenes.state.sample") == 13
    assert scenes.find("#scene-with .true .name").text.startswith("3")
