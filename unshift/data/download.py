"""Bring an official file from the first mirror that gives it, whole or not at all.

A download grows in ``<data folder>/.partial`` and is renamed to its place only once its content is
checked, so a kill at any moment leaves either the whole file or none under the final name. The next
run continues the part with an HTTP ``Range`` request.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import pooch
import requests
import urllib3
from filelock import FileLock
from tqdm import tqdm

from unshift.data import files
from unshift.data.files import DataError, File

TIMEOUT = (10, 30)  # seconds to connect, and between two packets
RETRIES = 3  # further requests to one mirror that breaks off, each continuing where the last ended


class Resumable:
    """A pooch downloader that keeps what came in ``part`` and continues from there."""

    def __init__(self, part: Path) -> None:
        self.part = part

    def __call__(self, url: str, output_file: str, _pooch: object) -> None:
        """Download ``url`` to ``output_file``: pooch calls this."""
        for attempt in range(RETRIES + 1):
            before = self._length()
            try:
                self._request(url)
                break
            except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError):
                # A mirror that sent nothing is dead: leave it for the next one.
                if attempt == RETRIES or self._length() <= before:
                    raise
        os.replace(self.part, output_file)

    def _length(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _request(self, url: str) -> None:
        start = self._length()
        # "identity", and the raw stream below: a .gz is wanted as it is, not unpacked on the way.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                # Nothing lies past our part: it is whole, or it is of another file. The check of
                # the content tells the two apart.
                return
            response.raise_for_status()
            if response.status_code != requests.codes.partial_content:
                start = 0  # this server ignores Range and sends everything
            length = response.headers.get("Content-Length")
            total = start + int(length) if length else None
            with (
                self.part.open("ab" if start else "wb") as out,
                # disable=None: no bar where stderr is not a terminal.
                tqdm(desc=url.rpartition("/")[2], total=total, initial=start, unit="B", unit_scale=True,
                     disable=None) as bar,
            ):  # fmt: skip
                for chunk in response.raw.stream(1 << 16, decode_content=False):
                    out.write(chunk)
                    bar.update(len(chunk))
        if total is not None and self._length() != total:
            raise requests.ConnectionError(f"it sent {self._length()} of {total} bytes")


@contextlib.contextmanager
def _staging() -> Iterator[Path]:
    """Hold the folder of partial downloads: one process at a time, or two would mix their parts."""
    folder = files.root() / ".partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write to {files.root()} ({error}); set UNSHIFT_DATA to a folder you can") from error
    # The system drops this lock when its holder dies, however it dies.
    with FileLock(files.root() / ".partial.lock"):
        folder.mkdir(exist_ok=True)  # the holder before us may have removed it
        for orphan in folder.glob("tmp*"):  # of a run that was killed
            shutil.rmtree(orphan) if orphan.is_dir() else orphan.unlink()
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):  # not empty: a part waits there for the next run
                folder.rmdir()


def _bring(urls: Sequence[str], folder: Path, check: Callable[[Path], object]) -> Path:
    """Download from the first of ``urls`` whose file passes ``check``, which raises ValueError."""
    pooch.get_logger().setLevel("WARNING")
    problems = []
    for url in urls:
        # The mirror is in the name, so that a part is only ever continued by its own mirror.
        tag = hashlib.md5(url.encode(), usedforsecurity=False).hexdigest()[:8]
        name = f"{tag}-{url.rpartition('/')[2]}"
        for _ in range(2):
            download = Resumable(folder / f"{name}.part")
            continued = download.part.exists() or (folder / name).exists()
            # No hash for pooch: two mirrors may pack the same content differently. `check` unpacks.
            cache = pooch.create(path=folder, base_url="", registry={name: None}, urls={name: url})
            try:
                path = Path(cache.fetch(name, downloader=download))
                check(path)
                return path
            except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                problems.append(f"{url}: {error}")
                break
            except ValueError as error:
                (folder / name).unlink(missing_ok=True)
                problems.append(f"{url}: {error}")
                if not continued:
                    break
                # The part may have been of an older file: once more, from nothing.
    raise DataError("no mirror gave the file. " + "; ".join(problems))


def fetch(file: File, urls: Sequence[str]) -> Path:
    """Bring ``file`` into the data folder unless it is there, and return its path."""
    target = files.root() / file.path
    if target.exists():
        return target
    with _staging() as folder:
        if not target.exists():  # another process may have brought it while we waited
            got = _bring(urls, folder, lambda path: files.read(path, file, "it was not kept"))
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(got, target)
        for part in folder.glob(f"*-{file.name}.part"):  # of the mirrors that failed
            part.unlink()
    return target


def fetch_archive(wanted: Sequence[File], urls: Sequence[str], md5: str) -> None:
    """Bring a tar archive and unpack the ``wanted`` files of it that are not there yet."""
    with _staging() as folder:
        missing = [file for file in wanted if not (files.root() / file.path).exists()]
        if not missing:
            return
        archive = _bring(urls, folder, lambda path: pooch.hashes.hash_matches(path, f"md5:{md5}", strict=True))
        with tempfile.TemporaryDirectory(dir=folder, prefix="tmp") as place:
            unpack(archive, missing, Path(place))
            for file in missing:
                target = files.root() / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(place) / file.path, target)
        archive.unlink()


def unpack(archive: Path, wanted: Sequence[File], folder: Path) -> None:
    """Unpack the ``wanted`` members into ``folder``, checked; refuse an archive with a bad name.

    Other members are left alone, but a link, a device or a path that leaves the folder anywhere in
    the archive means that it is not the dataset: nothing of it is used.
    """
    sizes = {file.path: file.size for file in wanted}
    try:
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            for member in members:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
                    raise DataError(f"{archive}: refused, its member {member.name!r} is not a plain file inside it")
                if sizes.get(member.name, member.size) != member.size:
                    raise DataError(
                        f"{archive}: refused, {member.name} has {member.size} bytes, not {sizes[member.name]}"
                    )
            for member in members:
                if member.name in sizes:
                    tar.extract(member, folder, filter="data")
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{archive} cannot be unpacked ({error}); delete it and try again") from error
    for file in wanted:
        if not (folder / file.path).is_file():
            raise DataError(f"{archive}: refused, it has no {file.path}")
        files.read(folder / file.path, file, f"delete {archive} and try again")
