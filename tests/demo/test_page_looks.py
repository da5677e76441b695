"""The page by keyboard, and with missing files."""

from __future__ import annotations

import shutil

from page import HOME, RIGHT, served, wait


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
