"""The page with every data set and rotations: slow, since they take long to export."""

from __future__ import annotations

import shutil
import time

import pytest
import torch
from page import JUMPS, MNIST, Page, file_server, wait
from PIL import Image
from torch import nn

import unshift
from unshift.coordinates import rotate
from unshift.data import resize, to_float
from unshift.demo import samples, site
from unshift.experiments.classifiers import shipped


@pytest.mark.slow
def test_rotation(browser, full_address):
    """The page's turned image is Python's; of that very image, angle and verdict are Python's as well."""
    page = Page(browser, full_address)
    page.find("[data-mode=rotate]").click()
    restorer, classifier = unshift.load("mnist-rotation"), shipped()["lenet5-mnist"]()
    small = nn.Sequential(nn.Upsample((32, 32), mode="bilinear"), classifier)
    number = page.js("return window.unshift.state.sample")
    native = samples.samples(MNIST)[number : number + 1]
    upright = resize(to_float(native), (224, 224))
    for value in (-40, 90, 137, 0):
        page.slide(value)
        wait(lambda: page.find("#found").get_attribute("data-angle") not in ("", None), what="an angle")
        page.settle()
        turned = torch.tensor(page.js("return window.unshift.input()")).view(1, 1, 224, 224)
        assert torch.allclose(turned, rotate(upright, -value), atol=1e-6)
        assert page.find("#found").get_attribute(
            "data-angle"
        ) == f"{float(restorer.estimate(turned).angle):g}" or float(
            page.find("#found").get_attribute("data-angle")
        ) == float(restorer.estimate(turned).angle)
        with torch.no_grad():
            wanted = int(small(turned).argmax(1)), int(small(restorer(turned)).argmax(1))
        assert page.verdicts == wanted
    page.find("#angle").send_keys("\ue010")  # End: half a turn, and the thumb stays there
    assert page.find("#angle").get_property("value") == "180"
    page.settle()
    page.js("document.getElementById('stage').focus()")
    page.keys("\ue011")  # Home
    page.keys("\ue012")  # left: to the left by one degree
    assert page.js("return window.unshift.state.angle") == 1
    tried = lambda: page.js("return document.getElementById('sweep-with').dataset.tried") == "120"  # noqa: E731
    wait(tried, 200, "the ring")
    assert page.errors() == []


@pytest.mark.slow
@pytest.mark.parametrize("entry", samples.CHOICES[1:], ids=lambda entry: entry.name)
def test_other_datasets(browser, full_address, entry):
    if entry not in site.offered():
        pytest.skip(f"{entry.name} is not offered: its classifier or its pictures are not here")
    page = Page(browser, full_address)
    for _ in range(12):
        page.keys("\ue014")
    assert "the median here" in page.text("timing")
    page.find(f"[data-name={entry.name}]").click()
    assert page.text("timing") == ""  # that was of other models
    page.settle()
    wait(lambda: len(page.found) == 2 and not page.js("return window.unshift.busy()"))
    restorer, classifier = unshift.load(entry.restorer), shipped()[entry.classifier]()
    page.keys("\ue011", *["\ue014"] * 4, *["\ue013"] * 7)
    moved = unshift.apply(page.image, torch.tensor([[-7, 4]]))
    assert page.js("return window.unshift.input()") == moved.flatten().tolist()
    assert page.found == restorer.estimate(moved).shift[0].tolist()
    with torch.no_grad():
        assert page.verdicts == (int(classifier(moved).argmax(1)), int(classifier(restorer(moved)).argmax(1)))
    assert page.errors() == []


@pytest.mark.slow
def test_goes_on_after_a_missing_model(browser, full_folder, tmp_path):
    """What can be computed is, what cannot says so; once the model is there, all is well, the map as well."""
    broken = tmp_path / "broken"
    shutil.copytree(full_folder, broken)
    model = broken / "models" / "fashion-mnist.onnx"
    model.rename(tmp_path / "away.onnx")
    with file_server(broken) as address:
        page = Page(browser, address)
        state = "return document.documentElement.dataset.state"
        page.find("[data-name=fashion-mnist]").click()
        wait(lambda: page.js(state) == "failed", what="the failure")
        assert "404" in page.text("words")
        page.find("[data-name=mnist]").click()
        wait(lambda: page.js(state) == "ready", what="digits again")
        assert not page.find("#retry").is_displayed()
        page.find("[data-name=fashion-mnist]").click()
        wait(lambda: page.js(state) == "failed", what="the failure")
        (tmp_path / "away.onnx").rename(model)
        page.find("#retry").click()
        wait(lambda: page.js(state) == "ready", what="the second try")
        tried = "return Number(document.getElementById('sweep-with').dataset.tried)"
        wait(lambda: page.js(tried) > 0, what="the map")
    browser.get_log("browser")


@pytest.mark.slow
def test_another_kind_is_chosen_while_a_file_is_read(browser, full_address, tmp_path):
    if samples.CHOICES[2] not in site.offered():
        pytest.skip("cifar10 is not offered: its pictures are not here")
    page = Page(browser, full_address)
    page.find("[data-name=cifar10]").click()
    page.settle()
    page.find("[data-name=mnist]").click()
    page.settle()
    Image.effect_noise((3000, 3000), 80).save(tmp_path / "noise.jpg")
    page.find("#upload").send_keys(str(tmp_path / "noise.jpg"))
    page.js("document.querySelector('[data-name=cifar10]').click()")
    wait(lambda: "its middle square" in page.text("note"), what="the picture")
    page.settle()
    assert page.js("return window.unshift.state.image.length") == 3 * 32 * 32
    page.keys("\ue014")
    assert page.errors() == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 390, 768, 1024])
def test_fits_every_width(browser, full_address, width):
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": JUMPS})
    try:
        page = Page(browser, full_address)
        assert sum(page.js("return window.jumps")) < 0.01
        for button in page.driver.find_elements("css selector", "#datasets button"):
            button.click()
            page.settle()
            assert page.js("return document.documentElement.scrollWidth") <= width
            assert page.js("return window.innerWidth") == width  # a phone would zoom out to show what sticks out
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.slow
def test_latency(browser, full_address, capsys):
    """From the pointer's event to the restored image on its canvas, in the page: the median of a long drag."""
    page = Page(browser, full_address)
    time.sleep(3)
    page.js("performance.clearMeasures()")
    for right in (12, -9, 7, -12, 10, -8, 13, -11, 9, -13):
        page.drag(3 if right > 0 else -3, right)
    code = "return performance.getEntriesByName('unshift:drag-to-restored').map((e) => e.duration)"
    times = sorted(page.js(code))
    median = times[len(times) // 2]
    with capsys.disabled():
        print(f"\ndrag to restored image: median {median:.1f} ms, worst {times[-1]:.1f} ms, n = {len(times)}")
    assert len(times) >= 20
    assert median < 50
