"""The page on a phone, in the dark, by keyboard alone, and when something is missing."""

from __future__ import annotations

import shutil

import pytest
from page import JUMPS, Page, file_server, wait


@pytest.mark.slow
def test_keyboard_alone(page):
    """Tab reaches every control; samples are one stop, chosen with arrows."""
    from selenium.webdriver import ActionChains

    page.js("document.activeElement.blur()")
    reached = []
    for _ in range(14):
        ActionChains(page.driver).send_keys("\ue004").perform()
        reached.append(
            page.js("const e = document.activeElement; return e.id || e.dataset.mode || e.getAttribute('role')")
        )
    assert {"upload", "radio", "stage", "shift", "random", "home"} <= set(reached)
    assert reached.count("radio") == 1
    before = page.js("return window.unshift.state.sample")
    page.find("#strip [tabindex='0']").send_keys("\ue014")  # right
    page.settle()
    assert page.js("return window.unshift.state.sample") == before + 1


def test_offers_only_what_it_has(page):
    buttons = page.driver.find_elements("css selector", "#datasets button")
    assert [button.text for button in buttons] == ["Digits"]
    assert not page.find("[data-mode=rotate]").is_enabled()  # this folder has no rotation restorer
    assert not page.find("[data-mode=pose]").is_displayed()  # nor one of both


@pytest.mark.slow
def test_phone_dark_and_no_jump(browser, address):
    """Nothing is cut off or moves while loading, at 390 pixels and in the dark; text has contrast."""
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": JUMPS})
    try:
        page = Page(browser, address)
        assert page.js("return document.documentElement.scrollWidth") <= 390
        assert sum(page.js("return window.jumps")) < 0.01  # a tenth of what is called good
        light, black = (
            luminance(page.js(f"return getComputedStyle(document.body).{what}"))
            for what in ("color", "backgroundColor")
        )
        assert (light + 0.05) / (black + 0.05) > 7
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def luminance(colour: str) -> float:
    values = [int(part) / 255 for part in colour.strip("rgb()").split(",")]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_says_when_it_cannot(browser, folder, tmp_path):
    """Without its runtime the page says so, lets the image be moved, and can be told to try again."""
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "runtime" / "ort.wasm").rename(tmp_path / "ort.wasm")
    with file_server(broken) as address:
        browser.get(address)
        state = "return document.documentElement.dataset.state"
        wait(lambda: browser.execute_script(state) == "failed", what="the failure")
        words = browser.find_element("id", "words").text
        assert "could not be loaded" in words
        assert "404" in words
        stage = browser.find_element("id", "stage")
        stage.send_keys("\ue011", "\ue014")
        assert browser.execute_script("return window.unshift.state.shift") == [0, 1]
        (tmp_path / "ort.wasm").rename(broken / "runtime" / "ort.wasm")
        browser.find_element("id", "retry").click()
        wait(lambda: browser.execute_script(state) == "ready", what="the second try")
    browser.get_log("browser")
