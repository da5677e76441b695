"""The page in a real browser says of digits what Python says."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from page import agree, wait

import unshift
from unshift.data import dataset, prepare, to_float


def test_greets_with_a_shift_undone(fresh, python, folder):
    page = fresh
    manifest = json.loads((folder / "manifest.json").read_text())
    agree(page, python, [-5, 9])
    label = manifest["entries"][0]["labels"][manifest["entries"][0]["first"]]
    assert page.verdicts[0] != label
    assert page.verdicts[1] == label
    assert page.find("#alone").get_attribute("data-state") == "wrong"
    assert page.find("#with").get_attribute("data-state") == "right"
    assert f"wrong, it is a {label}" in page.text("alone")  # in words, not by colour alone
    assert page.text("words").startswith("Shifted by 9 right, 5 up; found and undone.")
    wait(lambda: page.text("live") == page.text("words"), what="the sentence to be read out")
    assert page.errors() == []


def test_samples_are_what_python_computes(folder):
    """The page's pictures are Python's float32 values: the dataset's, prepared as for training."""
    pixels = torch.from_numpy(np.fromfile(folder / "samples" / "mnist.bin", "<f4")).view(-1, 1, 32, 32)
    digits = dataset("mnist-10k", "test")
    wanted = prepare(digits.images, unshift.load("mnist").trained_on["preparation"])
    for number in (0, 7, 49):
        rows = (digits.labels == number % 10).nonzero().flatten()
        assert torch.equal(pixels[number], to_float(wanted[rows[number // 10]]))


@pytest.mark.parametrize(("down", "right"), [(0, 6), (-7, -3), (11, 12)])
def test_drag_by_known_pixels(page, python, down, right):
    agree(page, python, [0, 0])
    page.drag(down, right)
    agree(page, python, [down, right])


def test_touch(page, python):
    box = page.js("const b = document.getElementById('stage').getBoundingClientRect(); return [b.x, b.y, b.width]")
    x, y, cell = box[0] + box[2] / 2, box[1] + box[2] / 2, box[2] / 32
    for kind, right in (("touchStart", 0), ("touchMove", 2), ("touchMove", 5), ("touchEnd", None)):
        points = [] if right is None else [{"x": x + right * cell, "y": y - 4 * cell * (right > 0)}]
        page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.settle()
    agree(page, python, [-4, 5])


def test_arrow_keys(page, python):
    page.keys("\ue011", *["\ue014"] * 3, *["\ue013"] * 2)  # Home, right, up
    agree(page, python, [-2, 3])
    from selenium.webdriver import ActionChains

    ActionChains(page.driver).key_down("\ue008").send_keys("\ue015").key_up("\ue008").perform()  # Shift and down
    page.settle()
    agree(page, python, [3, 3])
    page.keys(*["\ue014"] * 14)
    agree(page, python, [3, -15])  # round the back
    assert "The same image, bit for bit" in page.text("same")
    assert page.find("#same").get_attribute("data-same") == "true"


def test_fifty_images_as_in_python(page, python):
    """The shift and the verdicts of every sample."""
    shifts = torch.randint(-16, 16, (50, 2), generator=torch.Generator().manual_seed(0)).tolist()
    code = """
        const [shifts, done] = arguments, stage = document.getElementById("stage"), out = [];
        const press = (key) => stage.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
        const rest = async () => { do await new Promise((r) => setTimeout(r, 5)); while (window.unshift.busy()); };
        (async () => {
          for (let i = 0; i < shifts.length; i++) {
            const [down, right] = shifts[i];
            document.getElementById("strip").children[i].click();
            press("Home");
            for (let k = 0; k < Math.abs(down); k++) press(down > 0 ? "ArrowDown" : "ArrowUp");
            for (let k = 0; k < Math.abs(right); k++) press(right > 0 ? "ArrowRight" : "ArrowLeft");
            await rest();
            const sections = ["alone", "with", "found"].map((id) => document.getElementById(id));
            const [alone, restored, found] = sections.map((section) => section.dataset);
            const read = [found.shift.split(" ").map(Number), Number(alone.verdict), Number(restored.verdict)];
            out.push([window.unshift.state.shift, ...read, Array.from(window.unshift.state.image)]);
          }
          done(out);
        })();
    """
    rows = page.driver.execute_async_script(code, shifts)
    assert [row[0] for row in rows] == shifts
    images = torch.tensor([row[4] for row in rows], dtype=torch.float32).view(-1, 1, 32, 32)
    found, alone, restored = python(unshift.apply(images, torch.tensor(shifts)))
    assert [row[1] for row in rows] == found
    assert [row[2] for row in rows] == alone
    assert [row[3] for row in rows] == restored


@pytest.mark.slow
def test_map_of_all_shifts(page, python):
    """A patchwork beside one flat colour, and a click goes there."""
    tried = wait(
        lambda: page.js("return document.getElementById('sweep-with').dataset.tried") == "1024", 100, "the map"
    )
    assert tried
    label = page.js("return window.unshift.state.label")
    every = torch.cartesian_prod(torch.arange(32), torch.arange(32))
    found, alone, restored = python(unshift.apply(page.image.expand(1024, -1, -1, -1), every))
    assert len(found) == 1024
    count = {side: int(page.find(f"#sweep-{side}").get_attribute("data-good")) for side in ("alone", "with")}
    assert count == {"alone": alone.count(label), "with": restored.count(label)}
    assert 100 < count["alone"] < 900
    assert count["with"] == 1024
    assert "one and the same image, bit for bit" in page.text("sweep-more")
    from selenium.webdriver import ActionChains

    canvas = page.find("#sweep-alone")
    page.js("arguments[0].scrollIntoView({ block: 'center' })", canvas)
    cell = canvas.rect["width"] / 32
    at = (round(-7.5 * cell), round(3.5 * cell))  # from the middle: 8 to the left, 3 down
    ActionChains(page.driver).move_to_element_with_offset(canvas, *at).click().perform()
    wait(lambda: page.shift == [3, -8], what="the glide")
    page.settle()
    agree(page, python, [3, -8])
