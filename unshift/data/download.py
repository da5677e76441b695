"""Download official files, each from the first mirror that gives it, whole or not at all.

pooch downloads into a scratch folder and checks the hash. Only a file that passed is renamed to its
place, so a kill at any moment leaves either the whole file or none under the final name. The next
download clears the scratch folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock

from unshift.data.files import DataError, File, root

__all__ = ["fetch", "fetch_archive", "retrieve", "scratch_folder", "without_password"]

TIMEOUT = 30  # seconds to connect, and between two packets


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder inside the data folder, to one process at a time.

    Raises:
        DataError: If the data folder cannot be written to.
    """
    folder = root() / ".download"
    try:
        root().mkdir(parents=True, exist_ok=True)
        # The system drops this lock when its holder dies, however it dies.
        lock = FileLock(root() / ".download.lock").acquire()
    except OSError as error:
        raise DataError(f"cannot write to {root()} ({error}); set UNSHIFT_DATA to a folder you can write to") from error
    with lock:
        shutil.rmtree(folder, ignore_errors=True)  # left by a run that was killed
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def retrieve(urls: Sequence[str], known_hash: str, folder: Path) -> Path:
    """Download one file into ``folder`` from the first of ``urls`` that gives it.

    Args:
        urls: Where the same file is to be had, the best place first.
        known_hash: Its hash as pooch writes it, such as ``md5:6bbc9ace...``.
        folder: Where to put it.

    Returns:
        The path of the file, whose hash is the known one.

    Raises:
        DataError: If the file could not be downloaded from any address. The message has the reason for each.
    """
    import pooch  # here: it is needed once, and brings a web client along

    pooch.get_logger().setLevel("WARNING")
    problems = []
    for url in urls:
        downloader = pooch.HTTPDownloader(
            progressbar=sys.stderr.isatty(),
            timeout=TIMEOUT,
            headers={"Accept-Encoding": "identity"},  # a .gz is wanted as it is, not unpacked on the way
        )
        name = url.rpartition("/")[2]
        try:
            return Path(pooch.retrieve(url, known_hash, fname=name, path=folder, downloader=downloader))
        except (OSError, ValueError) as error:  # OSError: all that the web client raises; ValueError: the hash
            problems.append(f"{without_password(url)}: {' '.join(without_password(url, str(error)).split())}")
    raise DataError("the file could not be downloaded from any address. " + "; ".join(problems))


def without_password(url: str, text: str | None = None) -> str:
    """Return ``text`` (the address itself, unless given) without the user and password in ``url``."""
    secret = urlsplit(url).netloc.rpartition("@")[0]
    text = url if text is None else text
    return text.replace(f"{secret}@", "") if secret else text


def fetch(file: File, urls: Sequence[str]) -> None:
    """Download ``file`` into the data folder, unless it is there."""
    target = root() / file.path
    with scratch_folder() as folder:
        if not target.is_file():  # another process may have downloaded it while we waited
            _put(retrieve(urls, f"md5:{file.download_md5}", folder), target)


def fetch_archive(wanted: Sequence[File], urls: Sequence[str], md5: str) -> None:
    """Download a tar archive and take out of it the ``wanted`` files that are not there yet."""
    with scratch_folder() as folder:
        missing = [file for file in wanted if not (root() / file.path).is_file()]
        if not missing:
            return
        with tarfile.open(retrieve(urls, f"md5:{md5}", folder)) as archive:
            for file in missing:
                # Only the bytes are taken: no name, link or mode in the archive decides where they go.
                content = archive.extractfile(file.path)
                assert content is not None, f"{file.path} is not in the archive with this md5"
                with (folder / "member").open("wb") as out:
                    shutil.copyfileobj(content, out)
                _put(folder / "member", root() / file.path)


def _put(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, target)
