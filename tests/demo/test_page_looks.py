"""The page by keyboard, and with missing files."""

from __future__ import annotations

import shutil

import pytest
from page import HOME, RIGHT, TAB, Page, served, wait


@pytest.mark.slow
def test_keyboard_alone(browser, address):
    """Tab reaches every control; samples are one stop, chosen with arrows."""
    from selenium.webdriver import ActionChains

    page = Page(browser, address)
    reached = []
    for _ in range(16):
        ActionChains(page.driver).send_keys(TAB).perform()
        reached.append(
            page.js("const e = document.activeElement; return e.id || e.dataset.mode || e.getAttribute('role')")
        )
    assert {"upload", "radio", "stage", "shift", "random", "home"} <= set(reached)
    assert reached.count("radio") == 1
    before = page.js("return window.unshift.state.sample")
    page.find("#strip [tabindex='0']").send_keys(RIGHT)
    page.settle()
    assert page.js("return window.unshift.state.sample") == before + 1


def test_reports_a_missing_runtime(browser, folder, tmp_path):
    """Without its runtime the page reports an error, lets the image be moved, and offers a retry."""
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "runtime" / "ort.wasm").rename(tmp_path / "ort.wasm")
    with served(broken) as address:
        browser.get(address)
        state = "return document.documentElement.dataset.state"
        wait(lambda: browser.execute_script(state) == "failed", what="the failure")
        assert "404" in browser.find_element("id", "words").text
        stage = browser.find_element("id", "stage")
        stage.send_keys(HOME, RIGHT)
        assert browser.execute_script("return window.unshift.state.shift") == [0, 1]
        (tmp_path / "ort.wasm").rename(broken / "runtime" / "ort.wasm")
        browser.find_element("id", "retry").click()
        wait(lambda: browser.execute_script(state) == "ready", what="the second try")
    browser.get_log("browser")
