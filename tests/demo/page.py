"""The page as a visitor uses it, and the servers that deliver it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import unshift
from unshift.demo import site

ROOT = Path(unshift.__file__).parents[1]
MNIST = site.CHOICES[0]
UP, DOWN, LEFT, RIGHT, HOME, END, TAB = "\ue013", "\ue015", "\ue012", "\ue014", "\ue011", "\ue010", "\ue004"


@contextlib.contextmanager
def running(folder: Path, seconds: float = 10.0, **options):
    """Run our server in a subprocess; yield the process and its port."""
    code = (
        "import sys; from pathlib import Path; from unshift.demo import server\n"
        "server.Handler.timeout = float(sys.argv[2])\n"
        "with server.Server(Path(sys.argv[1])) as opened:\n"
        "    opened.run(lambda: print(opened.server_address[1], flush=True))\n"
        "print('stopped')"
    )
    command = [sys.executable, "-c", code, str(folder), str(seconds)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    options.setdefault("stderr", subprocess.PIPE)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, **options)
    try:
        assert process.stdout
        port = process.stdout.readline()
        assert port, "the server did not start"
        yield process, int(port)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait(condition, seconds: float = 30.0, what: str = "it"):
    """Return the first true value of ``condition()``, or fail."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    pytest.fail(f"waited {seconds} s for {what}")


@contextlib.contextmanager
def served(folder: Path):
    """Serve a folder with our own server, since the page must work under its headers. Yield the address."""
    with running(folder, stderr=subprocess.DEVNULL) as (_, port):
        yield f"http://127.0.0.1:{port}/"


JUMPS = """
    window.jumps = [];
    new PerformanceObserver((list) => list.getEntries().forEach((e) => window.jumps.push(e.value)))
      .observe({ type: "layout-shift", buffered: true });
"""


@contextlib.contextmanager
def phone(browser, width: int):
    """Emulate a phone of this width, and record layout shifts in ``window.jumps``."""
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": JUMPS})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


class Page:
    """The page in a browser: loaded from ``address``, or as it is."""

    def __init__(self, driver, address: str | None) -> None:
        self.driver = driver
        if address is not None:
            driver.get(address)
        wait(lambda: self.state != "loading", 60, "the page")
        assert self.state == "ready", self.text("words")
        self.settle()

    def js(self, code: str, *args):
        return self.driver.execute_script(code, *args)

    @property
    def state(self) -> str:
        return self.js("return document.documentElement.dataset.state")

    def start(self) -> Page:
        self.js(
            "document.querySelector('[data-mode=shift]').click(); document.getElementById('strip').children[7].click()"
        )
        self.keys(HOME)
        return self

    def settle(self) -> None:
        wait(lambda: self.js("return !window.unshift.busy()"), what="an answer")

    def find(self, selector: str):
        return self.driver.find_element("css selector", selector)

    def text(self, name: str) -> str:
        return self.js("return document.getElementById(arguments[0]).textContent", name)

    def data(self, name: str, key: str) -> str | None:
        return self.find(f"#{name}").get_attribute(f"data-{key}")

    @property
    def shift(self) -> list[int]:
        return self.js("return window.unshift.state.shift")

    @property
    def estimate(self) -> list[int]:
        return [int(part) for part in self.data("estimate", "shift").split()]

    @property
    def predictions(self) -> tuple[int, int]:
        return tuple(int(self.data(name, "prediction")) for name in ("alone", "with"))

    def tensor(self, code: str, *size: int) -> torch.Tensor:
        return torch.tensor(self.js(f"return Array.from(window.unshift.{code})"), dtype=torch.float32).view(
            1, -1, *size
        )

    @property
    def image(self) -> torch.Tensor:
        """The unmoved image."""
        return self.tensor("state.image", 32, 32)

    @property
    def moved(self) -> torch.Tensor:
        """The image as the visitor moved it."""
        return self.tensor("input()", 32, 32)

    @property
    def restored(self) -> torch.Tensor:
        """The restored image."""
        return self.tensor("restored()", 32, 32)

    def slide(self, value: int) -> None:
        """Move the slider of the angle; to the right is clockwise."""
        self.js(
            "const s = document.getElementById('angle'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))",
            value,
        )
        self.settle()

    def keys(self, *keys: str) -> None:
        self.find("#stage").send_keys(*keys)
        self.settle()

    def drag(self, down: int, right: int) -> None:
        """Drag by whole pixels of the image, in several moves."""
        from selenium.webdriver import ActionChains

        stage = self.find("#stage")
        cell = stage.rect["width"] / 32
        actions = ActionChains(self.driver, duration=20).move_to_element(stage).click_and_hold()
        for step in (0.3, 0.7, 1.0):
            actions.move_to_element_with_offset(stage, round(right * cell * step), round(down * cell * step))
        actions.release().perform()
        self.settle()

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """Dispatch a touch event at points given in parts of the stage."""
        x, y, width = self.js(
            "const b = document.getElementById('stage').getBoundingClientRect(); return [b.x, b.y, b.width]"
        )
        places = [{"x": x + width * u, "y": y + width * v, "id": i} for i, (u, v) in enumerate(points)]
        self.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    def upload(self, path: Path) -> str:
        """Upload a file and return the page's note."""
        self.js("document.getElementById('note').textContent = ''")
        self.find("#upload").send_keys(str(path))
        note = wait(lambda: (text := self.text("note")) and not text.endswith("…") and text, what="a note")
        self.settle()
        return note

    def errors(self) -> list[str]:
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]


def agree(page: Page, python, shift: list[int]) -> None:
    """Assert that the page shows this shift, and the same results as Python."""
    assert page.shift == shift
    moved = unshift.apply(page.image, torch.tensor([shift]))
    assert torch.equal(page.moved, moved)
    estimate, alone, restored = python(moved)
    assert page.estimate == estimate[0]
    assert page.predictions == (alone[0], restored[0])
