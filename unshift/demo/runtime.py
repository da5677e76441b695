"""The browser's ONNX runtime: two files of the npm package onnxruntime-web, pinned by their hashes.

They come from ``--runtime`` (or ``$UNSHIFT_RUNTIME``), from the data folder, or from ``npm pack``, once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

from unshift.data import DataError, root
from unshift.data.files import scratch_folder

VERSION = "1.30.0"
ARCHIVE = f"onnxruntime-web-{VERSION}.tgz"
PACK = ("npm", "pack", "--silent", f"onnxruntime-web@{VERSION}")
FILES = {
    "ort.wasm.bundle.min.mjs": "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    "ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
"""The files that the page needs, with their SHA-256: the JavaScript interface and the WebAssembly."""


def runtime_files(given: Path | None = None, *, download: bool = True) -> dict[str, Path]:
    """Return the files of the runtime by name, each checked by its hash; download them if necessary.

    ``given`` is the npm archive, or a folder that holds the files (itself, or in ``dist`` or ``package/dist``).
    """
    home = root() / f"onnxruntime-web-{VERSION}"
    for folder in [home] if given is None else [given, given / "dist", given / "package" / "dist"]:
        if all((folder / name).is_file() for name in FILES):
            return _checked(folder)
    archive = given or root() / ARCHIVE
    if archive.is_dir():
        raise DataError(f"{given} does not hold {' and '.join(FILES)} of onnxruntime-web {VERSION}")
    if not archive.is_file() and (given or not download):
        raise DataError(f"no file or folder {archive}; get it with `{' '.join(PACK)}`")
    with scratch_folder() as scratch:
        _unpack(archive if archive.is_file() else _pack(scratch), scratch)
        home.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            os.replace(scratch / name, home / name)
    return {name: home / name for name in FILES}


def _pack(folder: Path) -> Path:
    """Download the archive into ``folder`` with npm, which uses the registry that the user configured."""
    print(f"downloading {ARCHIVE} (33 MB, once) with npm", file=sys.stderr)
    try:
        subprocess.run(PACK, cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        hint = f"Install npm and go online once, or give --runtime the file that `{' '.join(PACK)}` writes elsewhere"
        raise DataError(f"cannot download {ARCHIVE} ({error}). {hint}") from error
    return folder / ARCHIVE


def _unpack(archive: Path, folder: Path) -> None:
    """Extract the wanted files of ``archive`` into ``folder``, and check them."""
    try:
        with tarfile.open(archive) as tar:
            for name in FILES:
                member = tar.extractfile(f"package/dist/{name}")
                assert member is not None, f"{name} is not a file"
                with (folder / name).open("wb") as out:
                    shutil.copyfileobj(member, out)
    except KeyError as error:
        raise DataError(f"{archive} is not onnxruntime-web {VERSION}: it lacks {error}") from error
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} cannot be unpacked ({error}); expected {ARCHIVE}") from error
    _checked(folder)


def _checked(folder: Path) -> dict[str, Path]:
    """Return the files in ``folder``; raise a ``DataError`` if their content is not the pinned one."""
    for name, sha256 in FILES.items():
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if digest != sha256:
            raise DataError(f"{folder / name} is not of onnxruntime-web {VERSION}: wrong sha256 {digest[:12]}…")
    return {name: folder / name for name in FILES}
