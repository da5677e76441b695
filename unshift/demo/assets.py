"""The browser's ONNX runtime, onnxruntime-web: two files of its npm package, pinned by their hashes.

They are not in the repository. They come from ``--runtime``, from ``$UNSHIFT_RUNTIME``, from the data folder if
they were brought before, or else from the npm registry, once.
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
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pooch
import requests
import urllib3
from filelock import FileLock

from unshift.data.download import Resumable
from unshift.data.files import DataError, root
from unshift.weights import write_atomically

__all__ = ["FILES", "VERSION", "registry", "runtime"]

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
_HINT = f"or give --runtime a copy of {ARCHIVE} (`npm pack onnxruntime-web@{VERSION}` brings one) or its dist/ folder"


def runtime(given: Path | None = None) -> dict[str, Path]:
    """Return the runtime's files by name, each checked; download them where they are nowhere else.

    ``given`` is the npm archive, or a folder that holds the files (itself, or in ``dist`` or ``package/dist``).
    """
    told = os.environ.get("UNSHIFT_RUNTIME")
    place = given or (Path(told).expanduser() if told else None)
    if place is None:
        return _downloaded()
    if place.is_dir():
        for folder in (place, place / "dist", place / "package" / "dist"):
            if all((folder / name).is_file() for name in FILES):
                return _checked(folder, f"take it from onnxruntime-web {VERSION}")
        raise DataError(f"{place} does not hold {' and '.join(FILES)}; wanted is onnxruntime-web {VERSION}")
    if not place.is_file():
        raise DataError(f"no file or folder {place} to take onnxruntime-web from")
    with _writing():
        return _unpack(place, _home())


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


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Hold the data folder: two first runs at once would bring the archive twice."""
    try:
        root().mkdir(parents=True, exist_ok=True)
        held = FileLock(root() / ".runtime.lock").acquire()
    except OSError as error:
        raise DataError(f"cannot write to {root()} ({error}); set UNSHIFT_DATA to a folder you can") from error
    with held:
        yield


def _downloaded() -> dict[str, Path]:
    home = _home()
    if all((home / name).is_file() for name in FILES):
        return _checked(home, f"delete {home} and try again")
    with _writing():
        if not all((home / name).is_file() for name in FILES):
            archive = _download(f"{registry()}onnxruntime-web/-/{ARCHIVE}")
            try:
                return _unpack(archive, home)
            finally:
                archive.unlink(missing_ok=True)
    return _checked(home, f"delete {home} and try again")


def _download(url: str) -> Path:
    parts = urlsplit(url)
    shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))  # never a password
    print(f"bringing {ARCHIVE} (33 MB, once) from {shown}", file=sys.stderr)
    pooch.get_logger().setLevel("WARNING")
    try:
        path = pooch.retrieve(
            url, f"sha512:{SHA512}", fname=ARCHIVE, path=root(), downloader=Resumable(root() / f"{ARCHIVE}.part")
        )
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        reason = str(getattr(error.args[0] if error.args else None, "reason", None) or error)
        why = reason.partition("): ")[2] or reason  # without the connection's name before it
        if parts.netloc != urlsplit(shown).netloc:
            why = type(error).__name__
        raise DataError(f"cannot bring {ARCHIVE} from {shown} ({why}). Go online once, {_HINT}") from error
    except ValueError as error:  # the hash
        (root() / ARCHIVE).unlink(missing_ok=True)
        raise DataError(f"{shown} gave another file than the pinned {ARCHIVE}; it was not kept. Try again, {_HINT}") \
            from error  # fmt: skip
    return Path(path)


def _unpack(archive: Path, home: Path) -> dict[str, Path]:
    """Take the wanted files out of ``archive``, checked, into ``home``."""
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
                write_atomically(home / name, (Path(place) / name).read_bytes())
    except KeyError as error:
        raise DataError(f"{archive} is not onnxruntime-web {VERSION}: it lacks {error}") from error
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} cannot be unpacked ({error}); wanted is {ARCHIVE}") from error
    return {name: home / name for name in FILES}


def _checked(folder: Path, mend: str) -> dict[str, Path]:
    for name, sha256 in FILES.items():
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            raise DataError(f"{folder / name} is not the pinned one (sha256 {found[:12]}…): {mend}")
    return {name: folder / name for name in FILES}
