"""Open a page on which you drag, rotate or draw a digit, and see what a classifier makes of it.

Side by side and live: the shifted image, the estimator's scores, the restored image, and the verdict of
a frozen classifier without and with the restorer; and a map of all shifts at once. Everything is computed
in the browser, from the exported models, by onnxruntime-web. Ctrl-C stops the server.

\b
Examples:
  unshift demo                          opens the page
  unshift demo --port 9000 --no-browser
  unshift demo --static site/           a folder to host anywhere
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from unshift.cli.errors import warn
from unshift.cli.outputs import check_folder


def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default lets this machine in only.")
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    static: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the page to this folder for any file server, and stop."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With --static: write into a folder that is not empty.")
    ] = False,
    runtime: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Take onnxruntime-web from this npm archive or folder.",
            envvar="UNSHIFT_RUNTIME",
            show_default="the data folder, or downloaded into it once",
        ),
    ] = None,
) -> None:
    """Open a page to drag, rotate and draw digits on."""
    if missing := [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]:
        raise ValueError(f"the demo needs {' and '.join(missing)}: pip install 'unshift[demo]'")
    if static is not None:
        _write_static(static, force, runtime)
        return
    from unshift.demo.server import is_loopback, listen, serve

    bound = listen(host, port)
    if not is_loopback(host):
        warn(f"--host {host} lets other machines in")
    with bound, tempfile.TemporaryDirectory(prefix="unshift-demo-") as folder:
        _write(Path(folder), runtime)
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{bound.getsockname()[1]}/"

        def ready() -> None:
            print(f"{address}  (Ctrl-C stops it)", flush=True)
            if browser:  # in a thread: some browsers return only when they are closed
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        serve(Path(folder), bound, ready)
    print("stopped")


def _write_static(folder: Path, force: bool, runtime: Path | None) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--static {folder} is a file; give a folder")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise ValueError(f"{folder} is not empty; --force writes the page into it")
    check_folder(folder)
    _write(folder, runtime)
    print(f"{folder / 'index.html'}: serve the folder with any file server, e.g. python3 -m http.server -d {folder}")


def _write(folder: Path, runtime: Path | None) -> None:
    from unshift.demo.runtime import runtime_files
    from unshift.demo.site import write

    write(folder, runtime_files(runtime), lambda text: print(text, file=sys.stderr))
