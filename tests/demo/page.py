"""The demo's page as a visitor has it, and the folders and servers that show it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from filelock import FileLock

import unshift
from unshift.demo import samples, site

ROOT = Path(unshift.__file__).parents[1]


@contextlib.contextmanager
def running(folder: Path, seconds: float = 10.0, **options):
    """Run the server in a process of its own; yields the process and its port."""
    code = (
        "import sys; from pathlib import Path; from unshift.demo import server\n"
        "server.REQUEST_SECONDS = float(sys.argv[2])\n"
        "bound = server.listen('127.0.0.1', 0)\n"
        "server.serve(Path(sys.argv[1]), bound, lambda: print(bound.getsockname()[1], flush=True))\n"
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


MNIST = samples.CHOICES[0]


def wait(condition, seconds: float = 30.0, what: str = "it"):
    """Return the first true value of ``condition()``, or fail."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    pytest.fail(f"waited {seconds} s for {what}")


def shared(factory: pytest.TempPathFactory) -> Path:
    """A folder of this run, one for all of its processes."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def write_site(runtime, entries, factory: pytest.TempPathFactory, name: str) -> Path:
    folder = shared(factory) / name
    with FileLock(f"{folder}.lock"):
        if not (folder / "manifest.json").exists():
            site.write(folder, runtime, entries=entries)
    return folder


@contextlib.contextmanager
def served(folder: Path):
    """Our own server, in a process of its own: the page must work under its policies. Yields its address."""
    with running(folder, stderr=subprocess.DEVNULL) as (_, port):
        yield f"http://127.0.0.1:{port}/"


@contextlib.contextmanager
def file_server(folder: Path):
    """Any file server: Python's own, in a process of its own. Yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "-d", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, what="the file server")
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait()


JUMPS = """
    window.jumps = [];
    new PerformanceObserver((list) => list.getEntries().forEach((e) => window.jumps.push(e.value)))
      .observe({ type: "layout-shift", buffered: true });
"""


class Page:
    """The page, as a visitor has it."""

    def __init__(self, driver, address: str) -> None:
        self.driver = driver
        driver.get(address)
        self.ready()

    def js(self, code: str, *args):
        return self.driver.execute_script(code, *args)

    def ready(self) -> None:
        wait(lambda: self.js("return document.documentElement.dataset.state") != "loading", 60, "the page")
        assert self.js("return document.documentElement.dataset.state") == "ready", self.text("words")
        self.settle()

    def start(self) -> Page:
        self.js(
            "document.querySelector('[data-mode=shift]').click(); document.getElementById('strip').children[7].click()"
        )
        self.keys("\ue011")  # Home
        return self

    def settle(self) -> None:
        wait(lambda: self.js("return !window.unshift.busy() && !!document.querySelector('#words')"), what="an answer")

    def find(self, selector: str):
        return self.driver.find_element("css selector", selector)

    def text(self, name: str) -> str:
        return self.js("return document.getElementById(arguments[0]).textContent", name)

    @property
    def shift(self) -> list[int]:
        return self.js("return window.unshift.state.shift")

    @property
    def found(self) -> list[int]:
        return [int(part) for part in self.find("#found").get_attribute("data-shift").split()]

    @property
    def verdicts(self) -> tuple[int, int]:
        return tuple(int(self.find(f"#{name}").get_attribute("data-verdict")) for name in ("alone", "with"))

    @property
    def image(self) -> torch.Tensor:
        """The unmoved image that the page works on."""
        values = self.js("return Array.from(window.unshift.state.image)")
        return torch.tensor(values, dtype=torch.float32).view(1, -1, 32, 32)

    @property
    def restored(self) -> torch.Tensor:
        """The restored image that the page shows."""
        values = self.js("return window.unshift.restored()")
        return torch.tensor(values, dtype=torch.float32).view(1, -1, 32, 32)

    def slide(self, value: int) -> None:
        """Put the slider of the angle somewhere: to the right is clockwise."""
        self.js(
            "const s = document.getElementById('angle'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))",
            value,
        )
        self.settle()

    def keys(self, *keys: str) -> None:
        self.find("#stage").send_keys(*keys)
        self.settle()

    def drag(self, down: int, right: int) -> None:
        """Drag by whole pixels of the image, in a few moves, as a hand does."""
        from selenium.webdriver import ActionChains

        stage = self.find("#stage")
        cell = stage.rect["width"] / 32
        actions = ActionChains(self.driver, duration=20).move_to_element(stage).click_and_hold()
        for step in (0.3, 0.7, 1.0):
            at = (round(right * cell * step), round(down * cell * step))
            actions.move_to_element_with_offset(stage, *at)
        actions.release().perform()
        self.settle()

    def upload(self, path: Path) -> str:
        """Upload a file and return what the page says of it."""
        self.js("document.getElementById('note').textContent = ''")
        self.find("#upload").send_keys(str(path))
        said = wait(lambda: (text := self.text("note")) and "Reading" not in text and text, what="a note")
        self.settle()
        return said

    def errors(self) -> list[str]:
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] == "SEVERE"]


def agree(page: Page, python, shift: list[int]) -> None:
    """Assert that the page, at this shift, says what Python says."""
    assert page.shift == shift
    moved = unshift.apply(page.image, torch.tensor([shift]))
    assert page.js("return window.unshift.input()") == moved.flatten().tolist()
    found, alone, restored = python(moved)
    assert page.found == found[0]
    assert page.verdicts == (alone[0], restored[0])
