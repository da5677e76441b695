"""Photograph the demo page: ``python docs/screenshots.py`` writes docs/images/demo-*.png, one for each of ``SHOTS``.

Needs Debian's ``chromium`` and ``chromium-driver``, and the extras ``dev`` and ``demo``. ``--site DIR`` takes a
folder that ``unshift demo --static`` has written; without it, one is written first.
"""

from __future__ import annotations

import argparse
import http.server
import io
import shutil
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver import Keys

from unshift.demo import runtime, site

IMAGES = Path(__file__).resolve().parent / "images"
LIMIT = 300_000
"""bytes of a picture: a page must open at once"""

SHOTS = {
    # name: width, height (None: the whole page), pixels per point, dark, mode
    "desktop": (1280, None, 1, False, "shift"),
    "phone": (390, 1560, 2, False, "shift"),
    "dark": (1280, None, 1, True, "shift"),
    "rotation": (1280, 1255, 1, False, "rotate"),
    "pose": (1280, 1310, 1, False, "pose"),
    "scenes": (1280, None, 1, False, "scenes"),
    "genomes": (1280, None, 1, False, "genomes"),
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that keeps its log to itself."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def until(driver: webdriver.Chrome, condition: str) -> None:
    """Wait until a condition of the page holds."""
    end = time.monotonic() + 240
    while not driver.execute_script(f"return {condition}"):
        if time.monotonic() > end:
            raise SystemExit(f"waited too long for {condition}: {driver.find_element('id', 'words').text}")
        time.sleep(0.1)


def photograph(driver: webdriver.Chrome, address: str, name: str) -> None:
    """Take one picture, once all is computed that it shows."""
    width, height, scale, dark, mode = SHOTS[name]
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    metrics = {"width": width, "height": height or 900, "deviceScaleFactor": scale, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.get(address)
    until(driver, "document.documentElement.dataset.state === 'ready' && !window.unshift.busy()")
    is_tab = mode in ("scenes", "genomes")
    tab = f"[data-{'tab' if is_tab else 'mode'}={mode}]:is(button)"
    if not driver.find_element("css selector", tab).is_displayed():
        return print(f"demo-{name}.png: left as it is, since the page has no such mode")
    driver.execute_script(f"document.querySelector('{tab}').click()")
    if is_tab:
        until(driver, f"window.unshift.{mode} && !window.unshift.{mode}.busy()")
    else:
        all_shifts(driver, mode)
    driver.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    if height is None:
        height = driver.execute_script("return Math.ceil(document.body.getBoundingClientRect().bottom)")
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**metrics, "height": height})
    time.sleep(0.5)
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    path = IMAGES / f"demo-{name}.png"
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.name}: {picture.width}x{picture.height}, {size / 1000:.0f} kB")
    if size > LIMIT:
        raise SystemExit(f"{path} has {size} bytes, more than {LIMIT}")


def all_shifts(driver: webdriver.Chrome, mode: str) -> None:
    """Move the image, and wait until all shifts are tried."""
    stage = driver.find_element("id", "stage")
    if mode in ("rotate", "pose"):
        driver.execute_script("const a = document.getElementById('angle'); a.value = 105; a.oninput({ target: a })")
        until(driver, "document.getElementById('found').dataset.angle && !window.unshift.busy()")
    else:
        for key in (Keys.ARROW_RIGHT, Keys.ARROW_LEFT):
            stage.send_keys(key)
            until(driver, "!window.unshift.busy()")
    total = "120" if mode == "rotate" else "1024"
    until(driver, f"document.getElementById('sweep-with').dataset.tried === '{total}'")


def main() -> None:
    """Write the page, serve it, and photograph it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *SHOTS], default=[])
    parser.add_argument("--site", type=Path)
    arguments = parser.parse_args()
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.site or Path(scratch)
        if arguments.site is None:
            site.write(folder, runtime.runtime_files(), print)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
            try:
                for name in arguments.names or SHOTS:
                    photograph(driver, f"http://127.0.0.1:{server.server_port}/", name)
            finally:
                driver.quit()
                server.shutdown()


if __name__ == "__main__":
    main()
