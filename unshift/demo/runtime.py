"""The browser's ONNX runtime, onnxruntime-web: two files of its npm package, pinned by their hashes.

They are not in the repository. They come from ``--runtime``, from ``$UNSHIFT_RUNTIME``, from the data folder if
they or the archive are there, or else from the npm registry, once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path
from urllib.parse import urlsplit

from unshift.data import DataError, root
from unshift.data.download import retrieve, scratch_folder, without_password

__all__ = ["FILES", "VERSION", "registry", "runtime_files"]

VERSION = "1.30.0"
ARCHIVE = f"onnxruntime-web-{VERSION}.tgz"
SHA512 = (
    "ab4cbe26baedba45d2cec05610c71c55fa97db92d19a8b171c5f8269126683ca"
    "590a5cdc57bb2f35ce2b298de32f4d956fb42644c0ecd528a0a91e025c07ca61"
)
"""Of the archive, as the registry states it."""
FILES = {
    "ort.wasm.bundle.min.mjs": "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    "ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
"""What the page needs of it, and the sha256 of each: the programming interface, and the WebAssembly."""
_PUBLIC = "https://registry.npmjs.org/"
_HINT = f"or give --runtime a copy of {ARCHIVE} (from `npm pack onnxruntime-web@{VERSION}`) or its dist/ folder"


def runtime_files(given: Path | None = None, *, download: bool = True) -> dict[str, Path]:
    """Find the files of the runtime, and download them if need be.

    Args:
        given: The npm archive, or a folder that holds the files (itself, or in ``dist`` or ``package/dist``).
            Default: ``$UNSHIFT_RUNTIME``, or the data folder.
        download: Whether to download the archive where it is nowhere else.

    Returns:
        The files by name, each checked by its hash.

    Raises:
        DataError: If there are none, or they are not the pinned ones.
    """
    told = os.environ.get("UNSHIFT_RUNTIME")
    place = given or (Path(told).expanduser() if told else None)
    if place is None:
        return _from_data_folder(download)
    if place.is_dir():
        for folder in (place, place / "dist", place / "package" / "dist"):
            if _complete(folder):
                return _checked(folder, f"take it from onnxruntime-web {VERSION}")
        raise DataError(f"{place} does not hold {' and '.join(FILES)} of onnxruntime-web {VERSION}")
    if not place.is_file():
        raise DataError(f"no file or folder {place} to take onnxruntime-web from")
    with scratch_folder():
        return _unpack(place)


def registry() -> str:
    """Return the npm registry to ask: the environment's, npm's own, or the public one. Ends in a slash."""
    told = os.environ.get("NPM_CONFIG_REGISTRY")
    npm = shutil.which("npm")
    if not told and npm:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            asked = subprocess.run([npm, "config", "get", "registry"], capture_output=True, text=True, timeout=20)
            told = asked.stdout.strip()
    if not told or urlsplit(told).scheme not in ("http", "https"):
        told = _PUBLIC
    return told.rstrip("/") + "/"


def _home() -> Path:
    return root() / f"onnxruntime-web-{VERSION}"


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in FILES)


def _from_data_folder(download: bool) -> dict[str, Path]:
    if not _complete(_home()):
        if not download and not (root() / ARCHIVE).is_file():
            raise DataError(f"{ARCHIVE} is not in {root()}; get it with `npm pack onnxruntime-web@{VERSION}`")
        with scratch_folder() as scratch:
            if (root() / ARCHIVE).is_file():
                return _unpack(root() / ARCHIVE)
            if not _complete(_home()):  # another process may have brought them while we waited
                return _unpack(_download(scratch))
    return _checked(_home(), f"delete {_home()} and try again")


def _download(folder: Path) -> Path:
    url = f"{registry()}onnxruntime-web/-/{ARCHIVE}"
    print(f"downloading {ARCHIVE} (33 MB, once) from {without_password(url)}", file=sys.stderr)
    try:
        return retrieve([url], f"sha512:{SHA512}", folder)
    except DataError as error:
        raise DataError(f"cannot download {ARCHIVE}: {error}. Go online once, {_HINT}") from error


def _unpack(archive: Path) -> dict[str, Path]:
    """Take the wanted files out of ``archive``, checked, into the data folder."""
    home = _home()
    home.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as tar, tempfile.TemporaryDirectory(dir=home) as place:
            for name in FILES:
                member = tar.extractfile(f"package/dist/{name}")
                if member is None:
                    raise KeyError(name)
                with (Path(place) / name).open("wb") as out:
                    shutil.copyfileobj(member, out)
            _checked(Path(place), f"{archive} is not onnxruntime-web {VERSION}")
            for name in FILES:
                os.replace(Path(place) / name, home / name)
    except KeyError as error:
        raise DataError(f"{archive} is not onnxruntime-web {VERSION}: it lacks {error}") from error
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} cannot be unpacked ({error}); expected {ARCHIVE}") from error
    return {name: home / name for name in FILES}


def _checked(folder: Path, remedy: str) -> dict[str, Path]:
    for name, sha256 in FILES.items():
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            raise DataError(f"{folder / name} is not the pinned one (sha256 {found[:12]}…): {remedy}")
    return {name: folder / name for name in FILES}
