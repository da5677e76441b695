"""A browser, and the page in it. Tests install nothing: `.ci/browser` does."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from page import MNIST, Page, served, write_site

import unshift
from unshift.data import DataError
from unshift.demo import runtime
from unshift.experiments.classifiers import shipped


@pytest.fixture(scope="session")
def runtime_files() -> dict[str, Path]:
    try:
        return runtime.runtime_files(download=False)
    except DataError as error:
        pytest.skip(f"no onnxruntime-web: {error}")


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium. Tests install nothing: `.ci/browser` does."""
    pytest.importorskip("selenium")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("chromium and chromedriver are not installed; .ci/browser installs them")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1280,1700"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened.set_script_timeout(120)
    yield opened
    opened.quit()


@pytest.fixture(scope="session")
def folder(runtime_files, browser, tmp_path_factory) -> Path:
    """The static folder, with digits, shifts and scenes: the rest takes minutes to export, and is in the slow tests."""
    pytest.importorskip("onnxscript")
    return write_site(runtime_files, [replace(MNIST, rotation=None, pose=None)], tmp_path_factory, "site")


@pytest.fixture(scope="session")
def address(folder):
    with served(folder) as found:
        yield found


@pytest.fixture(scope="session")
def full_folder(runtime_files, browser, tmp_path_factory) -> Path:
    return write_site(runtime_files, None, tmp_path_factory, "full-site")


@pytest.fixture(scope="session")
def full_address(full_folder):
    with served(full_folder) as found:
        yield found


@pytest.fixture(scope="session")
def pose_address(runtime_files, browser, tmp_path_factory):
    """The page with shifts, and with shifts and rotations at once."""
    pytest.importorskip("onnxscript")
    with served(
        write_site(runtime_files, [replace(MNIST, rotation=None, scene=None)], tmp_path_factory, "pose-site")
    ) as found:
        yield found


@pytest.fixture
def fresh(browser, address) -> Page:
    return Page(browser, address)


@pytest.fixture
def page(browser, address) -> Page:
    """The page with its first sample, unmoved; loaded anew only if the last test left it elsewhere."""
    here = browser.current_url == address and browser.execute_script("return document.documentElement.dataset.state")
    if here != "ready":
        return Page(browser, address).start()
    found = Page.__new__(Page)
    found.driver = browser
    return found.start()


@pytest.fixture(scope="module")
def python():
    """What Python makes of images: shift, and the verdicts alone and restored."""
    restorer, classifier = unshift.load("mnist"), shipped()["lenet5-mnist"]()

    @torch.no_grad()
    def judge(images: torch.Tensor) -> tuple[list[list[int]], list[int], list[int]]:
        restored = restorer(images)
        alone, good = classifier(images).argmax(1), classifier(restored).argmax(1)
        return restorer.estimate(images).shift.tolist(), alone.tolist(), good.tolist()

    return judge
