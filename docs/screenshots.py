"""Take screenshots of the demo page: ``python docs/screenshots.py`` writes docs/images/demo-*.png.

Needs Debian's ``chromium`` and ``chromium-driver``, and the extras ``dev`` and ``demo``.
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
SHOTS = {
    # name: width, height (None for the whole page), pixels per point, dark, mode
    "desktop": (1280, None, 1, False, "shift"),
    "phone": (390, 1560, 2, False, "shift"),
    "dark": (1280, None, 1, True, "shift"),
    "rotation": (1280, 1255, 1, False, "rotate"),
    "scenes": (1280, None, 1, False, "scenes"),
    "genomes": (1280, None, 1, False, "genomes"),
}


def until(driver: webdriver.Chrome, condition: str) -> None:
    """Wait until a condition of the page holds."""
    end = time.monotonic() + 240
    while not driver.execute_script(f"return {condition}"):
        if time.monotonic() > end:
            raise SystemExit(f"waited 240 s for {condition}: {driver.find_element('id', 'words').text}")
        time.sleep(0.1)


def photograph(driver: webdriver.Chrome, address: str, name: str) -> None:
    """Take one picture, once the page has computed everything in it."""
    width, height, scale, dark, mode = SHOTS[name]
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    metrics = {"width": width, "height": height or 900, "deviceScaleFactor": scale, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.get(address)
    until(driver, "document.documentElement.dataset.state === 'ready' && !window.unshift.busy()")
    is_tab = mode in ("scenes", "genomes")
    driver.find_element("css selector", f"[data-{'tab' if is_tab else 'mode'}={mode}]:is(button)").click()
    if is_tab:
        until(driver, f"window.unshift.{mode} && !window.unshift.{mode}.busy()")
    else:
        try_all_moves(driver, mode)
    driver.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    if height is None:
        height = driver.execute_script("return Math.ceil(document.body.getBoundingClientRect().bottom)")
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**metrics, "height": height})
    time.sleep(0.5)
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    path = IMAGES / f"demo-{name}.png"
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {picture.width}x{picture.height}, {path.stat().st_size / 1000:.0f} kB")


def try_all_moves(driver: webdriver.Chrome, mode: str) -> None:
    """Move the image, and wait until the page has tried all moves."""
    if mode == "rotate":
        driver.execute_script("const a = document.getElementById('angle'); a.value = 105; a.oninput({ target: a })")
        until(driver, "document.getElementById('estimate').dataset.angle && !window.unshift.busy()")
    else:
        for key in (Keys.ARROW_RIGHT, Keys.ARROW_LEFT):
            driver.find_element("id", "stage").send_keys(key)
            until(driver, "!window.unshift.busy()")
    total = "120" if mode == "rotate" else "1024"
    until(driver, f"document.getElementById('sweep-with').dataset.tried === '{total}'")


def main() -> None:
    """Write the page, serve it, and take the screenshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *SHOTS], default=[])
    names = parser.parse_args().names or SHOTS
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    with tempfile.TemporaryDirectory() as folder:
        site.write(Path(folder), runtime.runtime_files(), print)
        handler = partial(http.server.SimpleHTTPRequestHandler, directory=folder)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
            try:
                for name in names:
                    photograph(driver, f"http://127.0.0.1:{server.server_port}/", name)
            finally:
                driver.quit()
                server.shutdown()


if __name__ == "__main__":
    main()
