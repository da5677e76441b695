"""Fixtures: a headless browser, and the page in it. `.ci/browser` installs what they need."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from page import MNIST, Page, served

import unshift
from unshift import classifiers
from unshift.data import DataError
from unshift.demo import runtime, site


@pytest.fixture(scope="session")
def runtime_files() -> dict[str, Path]:
    try:
        return runtime.runtime_files(download=False)
    except DataError as error:
        pytest.skip(f"no onnxruntime-web: {error}")


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium."""
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
def write_site(runtime_files, browser, tmp_path_factory):
    """Write a static folder, once for all processes of this run."""
    pytest.importorskip("onnxscript")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def write(name: str, choices=None) -> Path:
        folder = shared / name
        with FileLock(f"{folder}.lock"):
            if not (folder / "manifest.json").exists():
                site.write(folder, runtime_files, choices=choices)
        return folder

    return write


@pytest.fixture(scope="session")
def folder(write_site) -> Path:
    """The page with digits, shifts and scenes. The rest takes minutes to export: only slow tests use it."""
    return write_site("site", [replace(MNIST, rotation=None, pose=None)])


@pytest.fixture(scope="session")
def full_folder(write_site) -> Path:
    return write_site("full-site")


@pytest.fixture(scope="session")
def address(folder):
    with served(folder) as url:
        yield url


@pytest.fixture(scope="session")
def full_address(full_folder):
    with served(full_folder) as url:
        yield url


@pytest.fixture
def page(browser, address) -> Page:
    """The page with an unmoved sample; reloaded only if the last test left another page open."""
    here = browser.current_url == address and browser.execute_script("return document.documentElement.dataset.state")
    return Page(browser, None if here == "ready" else address).start()


@pytest.fixture(scope="module")
def python():
    """Python's results for images: the shift, and the predictions alone and restored."""
    restorer, classifier = unshift.load("mnist"), classifiers.load("lenet5-mnist")

    @torch.no_grad()
    def run(images: torch.Tensor) -> tuple[list[list[int]], list[int], list[int]]:
        alone, restored = classifier(images).argmax(1), classifier(restorer(images)).argmax(1)
        return restorer.estimate(images).shift.tolist(), alone.tolist(), restored.tolist()

    return run
