"""The page in a real browser computes what Python computes."""

from __future__ import annotations

import json

import pytest
import torch
from page import DOWN, HOME, RIGHT, UP, Page, agree, wait

import unshift


def test_opens_with_a_shift_undone(browser, address, python, folder):
    page = Page(browser, address)
    entry = json.loads((folder / "manifest.json").read_text())["entries"][0]
    label = entry["labels"][entry["first"]]
    agree(page, python, [-5, 9])
    assert page.predictions[0] != label
    assert page.predictions[1] == label
    assert [page.data(name, "state") for name in ("alone", "with")] == ["wrong", "right"]
    assert str(label) in page.find("#alone .badge").text  # in words, not by colour alone
    wait(lambda: page.text("live") == page.text("words"), what="the announcement")
    assert page.errors() == []


def test_sentence_follows_the_confidence(page):
    """A low confidence is never reported in the words of a high one."""
    restorer = unshift.load("mnist")
    levels = set()
    for sample in range(50):
        page.js(f"document.getElementById('strip').children[{sample}].click()")
        page.settle()
        confidence = float(restorer.estimate(page.image).confidence)
        level = "high" if confidence >= 0.9 else "medium" if confidence >= 0.5 else "low"
        levels.add(level)
        assert float(page.data("estimate", "confidence")) == confidence
        assert page.data("estimate", "certainty") == page.data("words", "certainty") == level
    assert "low" in levels
    code = """
        const done = arguments[1];
        import("/words.js").then(({ sentence }) => done(arguments[0].map((confidence) => sentence({
          mode: "shift", shift: [1, 2], angle: 0, estimate: { shift: [1, 2], angle: 0, confidence }, offset: [0, 0],
          alone: 0, restored: 1, truth: 1, classes: ["0", "1"], noun: "digit",
        }))));
    """
    high, medium, low = page.driver.execute_async_script(code, [0.97, 0.66, 0.33])
    assert len({high, medium, low}) == 3
    assert "66%" in medium
    assert "33%" in low


@pytest.mark.parametrize(("down", "right"), [(0, 6), (-7, -3), (11, 12)])
def test_drag_by_whole_pixels(page, python, down, right):
    agree(page, python, [0, 0])
    page.drag(down, right)
    agree(page, python, [down, right])


def test_touch(page, python):
    middle = 0.5
    page.touch("touchStart", (middle, middle))
    for right in (2, 5):
        page.touch("touchMove", (middle + right / 32, middle - 4 / 32))
    page.touch("touchEnd")
    page.settle()
    agree(page, python, [-4, 5])


def test_arrow_keys(page, python):
    from selenium.webdriver import ActionChains

    page.keys(HOME, *[RIGHT] * 3, *[UP] * 2)
    agree(page, python, [-2, 3])
    ActionChains(page.driver).key_down("\ue008").send_keys(DOWN).key_up("\ue008").perform()  # Shift and down
    page.settle()
    agree(page, python, [3, 3])
    page.keys(*[RIGHT] * 14)
    agree(page, python, [3, -15])  # wrapped around
    assert page.data("same", "same") == "true"
    assert int(page.data("same", "count")) > 3


def test_fifty_images_as_in_python(page, python):
    shifts = torch.randint(-16, 16, (50, 2), generator=torch.Generator().manual_seed(0)).tolist()
    code = """
        const [shifts, done] = arguments, stage = document.getElementById("stage"), out = [];
        const press = (key) => stage.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        const settled = async () => { do await new Promise((r) => setTimeout(r, 5)); while (window.unshift.busy()); };
        (async () => {
          for (let i = 0; i < shifts.length; i++) {
            const [down, right] = shifts[i];
            document.getElementById("strip").children[i].click();
            press("Home");
            for (let k = 0; k < Math.abs(down); k++) press(down > 0 ? "ArrowDown" : "ArrowUp");
            for (let k = 0; k < Math.abs(right); k++) press(right > 0 ? "ArrowRight" : "ArrowLeft");
            await settled();
            const data = (id) => document.getElementById(id).dataset, image = Array.from(window.unshift.state.image);
            const predictions = [Number(data("alone").prediction), Number(data("with").prediction)];
            const estimate = data("estimate").shift.split(" ").map(Number);
            out.push([window.unshift.state.shift, estimate, ...predictions, image]);
          }
          done(out);
        })();
    """
    rows = page.driver.execute_async_script(code, shifts)
    assert [row[0] for row in rows] == shifts
    images = torch.tensor([row[4] for row in rows], dtype=torch.float32).view(-1, 1, 32, 32)
    estimates, alone, restored = python(unshift.apply(images, torch.tensor(shifts)))
    assert [row[1] for row in rows] == estimates
    assert [row[2] for row in rows] == alone
    assert [row[3] for row in rows] == restored


@pytest.mark.slow
def test_map_of_all_shifts(page, python):
    """The counts are Python's, all restored images are equal, and a click on a cell applies its shift."""
    from selenium.webdriver import ActionChains

    wait(lambda: page.data("sweep-with", "tried") == "1024", 100, "the map")
    label = page.js("return window.unshift.state.label")
    every = torch.cartesian_prod(torch.arange(32), torch.arange(32))
    _, alone, restored = python(unshift.apply(page.image.expand(1024, -1, -1, -1), every))
    count = {side: int(page.data(f"sweep-{side}", "good")) for side in ("alone", "with")}
    assert count == {"alone": alone.count(label), "with": restored.count(label)}
    assert 100 < count["alone"] < 900
    assert count["with"] == 1024
    assert page.data("sweep-note", "different") == "0"
    canvas = page.find("#sweep-alone")
    page.js("arguments[0].scrollIntoView({ block: 'center' })", canvas)
    cell = canvas.rect["width"] / 32
    at = (round(-7.5 * cell), round(3.5 * cell))  # from the middle: 8 to the left, 3 down
    ActionChains(page.driver).move_to_element_with_offset(canvas, *at).click().perform()
    wait(lambda: page.shift == [3, -8], what="the animation")
    page.settle()
    agree(page, python, [3, -8])
