"""Open a page on which you drag, rotate or draw a digit and see how a frozen classifier labels it.

The page shows the shifted image, the estimator's scores, the restored image, a map of all shifts, and the prediction
of a frozen classifier without and with the restorer. The exported models run in the browser, with onnxruntime-web.
Ctrl-C stops the server.

\b
Examples:
  unshift demo                          open the page
  unshift demo --port 9000 --no-browser
  unshift demo --static site/           write a folder to host anywhere
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from unshift.cli.errors import warn
from unshift.cli.outputs import check_folder

RUNTIME_HELP = "npm archive or folder of onnxruntime-web. Default: downloaded once into the data folder."


def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free port.")] = 8765,
    host: Annotated[str, typer.Option(help="Address to listen on. Default: only for this computer.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    static: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the page to a folder, and exit.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write to a --static folder that is not empty.")] = False,
    runtime: Annotated[Path | None, typer.Option(metavar="PATH", envvar="UNSHIFT_RUNTIME", help=RUNTIME_HELP)] = None,
) -> None:
    """Open a page to drag, rotate and draw digits on."""
    from unshift.demo.runtime import runtime_files
    from unshift.demo.server import Server
    from unshift.demo.site import write

    def write_page(folder: Path) -> None:
        write(folder, runtime_files(runtime), lambda text: print(text, file=sys.stderr))

    if missing := [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]:
        raise ValueError(f"the demo needs {' and '.join(missing)}: pip install 'unshift[demo]'")
    if static is not None:
        if static.exists() and not static.is_dir():
            raise ValueError(f"--static {static} is a file; give a folder")
        if static.is_dir() and any(static.iterdir()) and not force:
            raise ValueError(f"{static} is not empty; --force writes the page into it")
        check_folder(static)
        write_page(static)
        print(f"{static / 'index.html'}: serve the folder, for example with python3 -m http.server -d {static}")
        return

    with tempfile.TemporaryDirectory(prefix="unshift-demo-") as folder, Server(Path(folder), host, port) as server:
        if not server.is_local:
            warn(f"--host {host} lets other machines connect")
        write_page(Path(folder))
        address = f"http://{f'[{host}]' if ':' in host else host}:{server.server_address[1]}/"

        def ready() -> None:
            print(f"{address}  (Ctrl-C stops it)", flush=True)
            if browser:  # in a process of its own: some browsers return only when they are closed
                command = [sys.executable, "-m", "webbrowser", address]
                quiet = subprocess.DEVNULL
                subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)

        server.run(ready)
    print("stopped")
