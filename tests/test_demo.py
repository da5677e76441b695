"""The demo's page in a real browser, against Python; what needs no browser is in test_demo_server.py."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from PIL import Image
from test_demo_server import running
from torch import nn

import unshift
from unshift.coordinates import Pose, rotate
from unshift.data import DataError, dataset, prepare, resize, to_float
from unshift.demo import runtime, samples, site
from unshift.experiments.classifiers import shipped
from unshift.weights import pretrained

MNIST = samples.CHOICES[0]


def wait(condition, seconds: float = 30.0, what: str = "it"):
    """Return the first true value of ``condition()``, or fail."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    pytest.fail(f"waited {seconds} s for {what}")


# --- what the browser tests stand on ---------------------------------------------------------------


@pytest.fixture(scope="session")
def runtime_files() -> dict[str, Path]:
    try:
        return runtime.runtime_files(download=False)
    except DataError as error:
        pytest.skip(f"no onnxruntime-web: {error}")


def shared(factory: pytest.TempPathFactory) -> Path:
    """A folder of this run, one for all of its processes."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


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


@pytest.fixture(scope="session")
def folder(runtime_files, browser, tmp_path_factory) -> Path:
    """The static folder, with digits and shifts alone: the rest takes minutes to export, and is in the slow tests."""
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
    if MNIST.pose not in pretrained():
        pytest.skip(f"{MNIST.pose} is not shipped yet")
    pytest.importorskip("onnxscript")
    with served(write_site(runtime_files, [replace(MNIST, rotation=None)], tmp_path_factory, "pose-site")) as found:
        yield found


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


def agree(page: Page, python, shift: list[int]) -> None:
    """Assert that the page, at this shift, says what Python says."""
    assert page.shift == shift
    moved = unshift.apply(page.image, torch.tensor([shift]))
    assert page.js("return window.unshift.input()") == moved.flatten().tolist()
    found, alone, restored = python(moved)
    assert page.found == found[0]
    assert page.verdicts == (alone[0], restored[0])


# --- the page in a browser -------------------------------------------------------------------------


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


@pytest.mark.slow
def test_a_second_finger_does_not_draw(page):
    page.find("[data-mode=draw]").click()
    page.find("#clear").click()
    x, y, width = page.js(
        "const b = document.getElementById('stage').getBoundingClientRect(); return [b.x, b.y, b.width]"
    )
    for kind, *at in (
        ("touchStart", (0.2, 0.2)),
        ("touchMove", (0.2, 0.4)),
        ("touchStart", (0.2, 0.4), (0.9, 0.9)),
        ("touchMove", (0.2, 0.6), (0.9, 0.8)),
        ("touchEnd",),
    ):
        points = [{"x": x + width * u, "y": y + width * v, "id": i} for i, (u, v) in enumerate(at)]
        page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.settle()
    assert page.image[..., :10].sum() > 10
    assert page.image[..., 10:].sum() == 0


def test_what_moves_does_not_move_a_drawing(page):
    """The way to a random shift ends where drawing begins, and the pen is gone where it ends."""
    page.js("document.getElementById('random').click(); document.querySelector('[data-mode=draw]').click()")
    time.sleep(0.6)
    assert page.shift == [0, 0]
    page.keys("\ue015")
    assert page.find("#pen").is_displayed()
    page.find("#strip button").click()
    assert not page.find("#pen").is_displayed()


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


def test_upload(page, python, tmp_path):
    digits = dataset("mnist-10k", "test")
    array = digits.images[0, 0].numpy()
    Image.fromarray(np.kron(255 - array, np.ones((8, 8), np.uint8))).save(tmp_path / "seven.png")  # dark on light
    said = page.upload(tmp_path / "seven.png")
    assert "seven.png: its middle square, 32x32" in said
    assert "inverted" in said
    page.keys("\ue011", *["\ue014"] * 9)
    agree(page, python, [0, 9])
    assert page.verdicts[1] == 7
    assert page.find("#with").get_attribute("data-state") == "open"  # nobody has said what it is
    page.js("const t = document.getElementById('truth'); t.value = 7; t.dispatchEvent(new Event('change'))")
    page.settle()
    assert page.find("#with").get_attribute("data-state") == "right"
    assert page.text("key-right") == "verdict right"


def bad_files(folder: Path) -> dict[str, tuple[Path, str]]:
    """Files that are refused, or taken with a word; each with what the page says."""
    (folder / "text.png").write_text("this is no image")
    (folder / "empty.png").touch()
    (folder / "cut.png").write_bytes(png(64, 64)[:60])
    with (folder / "large.png").open("wb") as file:
        file.truncate(50_000_000)
    (folder / "one.png").write_bytes(png(1, 1))
    bomb = bytearray(png(8, 8))
    bomb[16:24] = (60_000).to_bytes(4, "big") * 2
    (folder / "bomb.png").write_bytes(bomb)
    Image.new("CMYK", (40, 40), (0, 200, 200, 0)).save(folder / "cmyk.jpg")
    frames = [Image.new("L", (40, 40), shade) for shade in (0, 128, 255)]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:], duration=50)
    (folder / "picture.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'></svg>")
    said = {
        "text.png": "was not taken: it is not an image",
        "empty.png": "was not taken: it is empty",
        "cut.png": "was not taken: it is not an image",
        "large.png": "was not taken: it has 50 MB; at most 10 MB",
        "one.png": "was not taken: it is 1x1 pixels",
        "bomb.png": "was not taken: it is 60000x60000 pixels",
        "cmyk.jpg": "a CMYK JPEG",
        "moving.gif": "an animation: its first frame",
        "picture.svg": "was not taken",
    }
    return {name: (folder / name, words) for name, words in said.items()}


def png(width: int, height: int) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 90)).save(data, "PNG")
    return data.getvalue()


@pytest.mark.slow
def test_bad_uploads(page, python, tmp_path):
    """Each file has its message, and the page goes on after each."""
    for name, (path, words) in bad_files(tmp_path).items():
        said = page.upload(path)
        assert name in said
        assert words in said, said
        before = page.shift
        page.keys("\ue014")
        after = [before[0], (before[1] + 1 + 16) % 32 - 16]
        agree(page, python, after)
    assert page.errors() == []


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


# --- the page with everything: slow, since rotations take long to export ---------------------------


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


# --- shifts and rotations at once: slow, since two networks take long to export --------------------


def posed(page: Page, shift: list[int], angle: int) -> torch.Tensor:
    """Assert that the page, at this pose, shows and says what Python does; return the restored image."""
    restorer, classifier = unshift.load(MNIST.pose), shipped()[MNIST.classifier]()
    assert (page.shift, page.js("return window.unshift.state.angle")) == (shift, angle)
    pose = Pose(torch.tensor([shift]), angle=torch.tensor([float(angle)], dtype=torch.float64))
    moved = restorer.coordinates.move(page.image, pose)
    assert page.js("return window.unshift.input()") == moved.flatten().tolist()
    estimate, restored = restorer.estimate(moved), restorer(moved)
    assert page.found == estimate.shift[0].tolist()
    assert float(page.find("#found").get_attribute("data-angle")) == float(estimate.angle)
    assert torch.equal(page.restored.view(torch.int32), restored.view(torch.int32))
    with torch.no_grad():
        assert page.verdicts == (int(classifier(moved).argmax(1)), int(classifier(restored).argmax(1)))
    return restored


@pytest.fixture
def poser(browser, pose_address) -> Page:
    page = Page(browser, pose_address).start()
    page.find("[data-mode=pose]").click()
    wait(lambda: page.find("#found").get_attribute("data-angle"), 60, "the models")
    page.settle()
    return page


@pytest.mark.slow
def test_drag_and_rotate_at_once(poser):
    """The moved image is Python's to the last bit, and so are the pose that is found and the restored image."""
    posed(poser, [0, 0], 0)
    poser.drag(-7, 5)
    posed(poser, [-7, 5], 0)
    poser.slide(-37)
    posed(poser, [-7, 5], 37)
    poser.drag(3, 9)
    posed(poser, [-4, 14], 37)
    poser.slide(128)
    poser.keys(*["\ue014"] * 4)
    posed(poser, [-4, -14], -128)
    assert poser.text("words").startswith("Shifted by 14 left, 4 up, turned by 128° to the right; read as ")
    assert "°" in poser.text("found-angle")
    # The mark stands on the highest of the centre's scores.
    moved = torch.tensor(poser.js("return window.unshift.input()")).view(1, 1, 32, 32)
    _, scores = unshift.load(MNIST.pose).read(moved, moved)
    down, right = ((value + 16) % 32 for value in poser.found)
    assert int(scores[0, down, right]) == int(scores.max())
    at = [poser.js(f"return parseFloat(document.getElementById('peak').style.{side})") for side in ("top", "left")]
    assert at == [100 * (place + 0.5) / 32 for place in (down, right)]
    poser.keys("\ue011")  # Home
    posed(poser, [0, 0], 0)
    assert poser.errors() == []


@pytest.mark.slow
def test_quarter_turns_and_shifts_are_one_image(poser):
    upright = posed(poser, [0, 0], 0)
    for slider, down, right in ((90, 4, -6), (180, 3, 2), (-90, -9, -5)):
        poser.slide(slider)
        poser.drag(down, right)
        moved = posed(poser, poser.shift, 180 if slider == 180 else -slider)
        assert torch.equal(moved.view(torch.int32), upright.view(torch.int32))
    assert poser.find("#same").get_attribute("data-same") == "true"
    assert re.fullmatch(
        r"The same image, bit for bit, at all \d+ shifts and quarter turns you tried.", poser.text("same")
    )
    poser.slide(20)
    poser.drag(6, 6)
    assert re.fullmatch(r"The same image, bit for bit, at (both|all \d+) shifts at 20° you tried.", poser.text("same"))


@pytest.mark.slow
def test_every_shift_of_a_turned_image(poser):
    poser.slide(-25)
    tried = "return document.getElementById('sweep-with').dataset.tried"
    wait(lambda: poser.js(tried) == "1024", 200, "the map")
    assert "one and the same image, bit for bit" in poser.text("sweep-more")
    poser.slide(-26)  # another image: its map begins anew
    assert int(poser.js(tried)) < 1024
    poser.slide(-25)
    assert poser.js(tried) == "1024"


@pytest.mark.slow
def test_drawing(page, python):
    """A digit drawn in a corner: found, moved to the middle, and read."""
    from selenium.webdriver import ActionChains

    page.find("[data-mode=draw]").click()
    assert "Draw a digit" in page.text("hint")
    stage = page.find("#stage")
    cell = stage.rect["width"] / 32

    def stroke(*points: tuple[float, float]) -> None:
        actions = ActionChains(page.driver, duration=10)
        for i, (x, y) in enumerate(points):
            actions.move_to_element_with_offset(stage, round((x - 16) * cell), round((y - 16) * cell))
            if i == 0:
                actions.click_and_hold()
        actions.release().perform()

    stroke((2, 3), (14, 3), (10, 12), (6, 23))  # a seven, in the upper left
    page.settle()
    assert page.text("hint") == ""
    agree(page, python, [0, 0])
    assert page.verdicts[1] == 7
    page.find("#drawn").click()
    page.keys(*["\ue015"] * 4)
    agree(page, python, [4, 0])
    assert page.verdicts[1] == 7
    # And with the keyboard alone: space puts the pen down, arrows draw.
    page.find("[data-mode=draw]").click()
    page.find("#clear").click()
    page.keys(" ", *["\ue015"] * 16)
    assert page.js("return Math.max(...window.unshift.state.image)") > 0.9
    agree(page, python, [0, 0])
    assert page.verdicts[1] == 1


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
