"""The browser's ONNX runtime: two files of the npm package onnxruntime-web, pinned by their hashes.

They are not in the repository. They come from ``--runtime`` (or ``$UNSHIFT_RUNTIME``), from the data folder, or from
the npm registry, once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path
from urllib.parse import urlsplit

from unshift.data import DataError, root
from unshift.data.files import retrieve, scratch_folder, without_password

VERSION = "1.30.0"
ARCHIVE = f"onnxruntime-web-{VERSION}.tgz"
SHA512 = (
    "ab4cbe26baedba45d2cec05610c71c55fa97db92d19a8b171c5f8269126683ca"
    "590a5cdc57bb2f35ce2b298de32f4d956fb42644c0ecd528a0a91e025c07ca61"
)
"""The hash of the archive, as the registry states it."""
FILES = {
    "ort.wasm.bundle.min.mjs": "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    "ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
"""The files that the page needs, with their SHA-256: the JavaScript interface and the WebAssembly."""


def runtime_files(given: Path | None = None, *, download: bool = True) -> dict[str, Path]:
    """Return the files of the runtime by name, each checked by its hash; download them if necessary.

    ``given`` is the npm archive, or a folder that holds the files (itself, or in ``dist`` or ``package/dist``). Raise a
    ``DataError`` if files are missing or damaged.
    """
    home = root() / f"onnxruntime-web-{VERSION}"
    for folder in [home] if given is None else [given, given / "dist", given / "package" / "dist"]:
        if _complete(folder):
            return _checked(folder)
    archive = given or root() / ARCHIVE
    if archive.is_dir():
        raise DataError(f"{given} does not hold {' and '.join(FILES)} of onnxruntime-web {VERSION}")
    if not archive.is_file() and (given or not download):
        raise DataError(f"no file or folder {archive}; get it with `npm pack onnxruntime-web@{VERSION}`")
    with scratch_folder() as scratch:
        if given is None and _complete(home):  # another process wrote them while we waited
            return _checked(home)
        _unpack(archive if archive.is_file() else _download(scratch), scratch)
        home.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            os.replace(scratch / name, home / name)
    return {name: home / name for name in FILES}


def registry() -> str:
    """Return the npm registry, with a final slash: from the environment, npm's settings, or the public one."""
    url = os.environ.get("NPM_CONFIG_REGISTRY")
    npm = shutil.which("npm")
    if not url and npm:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            settings = subprocess.run([npm, "config", "get", "registry"], capture_output=True, text=True, timeout=20)
            url = settings.stdout.strip()
    if not url or urlsplit(url).scheme not in ("http", "https"):
        url = "https://registry.npmjs.org"
    return url.rstrip("/") + "/"


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in FILES)


def _download(folder: Path) -> Path:
    url = f"{registry()}onnxruntime-web/-/{ARCHIVE}"
    print(f"downloading {ARCHIVE} (33 MB, once) from {without_password(url)}", file=sys.stderr)
    try:
        return retrieve([url], f"sha512:{SHA512}", folder)
    except DataError as error:
        hint = f"Go online once, or give --runtime a copy of {ARCHIVE} (from `npm pack onnxruntime-web@{VERSION}`)"
        raise DataError(f"cannot download {ARCHIVE}: {error}. {hint}") from error


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
        with (folder / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != sha256:
            raise DataError(f"{folder / name} is not of onnxruntime-web {VERSION}: wrong sha256 {digest[:12]}…")
    return {name: folder / name for name in FILES}
