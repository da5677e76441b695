"""The data sets as entries: their description, their official files, and how these are downloaded and checked.

The folder is ``$UNSHIFT_DATA``, or ``~/.cache/unshift`` if that is unset. A file on disk is checked by the md5 of its
*unpacked* content, since it may have been compressed again. A download is moved into the folder once its md5 is right,
so an interruption at any moment leaves the whole file or none.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import shutil
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torch import Tensor

from unshift.data.pixels import ImageSet
from unshift.shifts import format_size

SPLITS = ("train", "test")
TIMEOUT = 30  # seconds to connect, and between two packets


class DataError(ValueError):
    """A file of a data set is missing, damaged, or cannot be downloaded. The message states the remedy."""


@dataclass(frozen=True)
class File:
    """One official file of a data set."""

    path: str  # its path in the data folder. The last part is also its name at every mirror
    size: int  # bytes of its unpacked content
    md5: str  # md5 of its unpacked content
    download_md5: str = ""  # md5 of the file at the mirrors. Empty if it is not downloaded on its own
    shipped: Path | None = None  # a copy that is part of the package

    def install(self, path: Path) -> None:
        """Move a complete file to its place in the data folder."""
        (root() / self.path).parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, root() / self.path)

    def location(self) -> Path:
        """Return the path to read: in the data folder, or otherwise the copy in the package."""
        path = root() / self.path
        return path if self.shipped is None or path.is_file() else self.shipped


def root() -> Path:
    """Return the folder of all data sets, which may not exist: ``$UNSHIFT_DATA``, or ``~/.cache/unshift``."""
    folder = os.environ.get("UNSHIFT_DATA")
    return Path(folder).expanduser() if folder else Path.home() / ".cache" / "unshift"


def read(path: Path, file: File, remedy: str) -> bytes:
    """Return the unpacked content of ``path``. Raise a ``DataError`` that ends in ``remedy`` if it is damaged."""
    try:
        # One byte more than expected detects a file that is too long, however large it would unpack.
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            data = stream.read(file.size + 1)
        if (md5 := hashlib.md5(data, usedforsecurity=False).hexdigest()) != file.md5:
            raise EOFError(f"md5 {md5}, expected {file.md5}")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}); {remedy}") from error
    return data


def _import_extra(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise DataError(f"downloading needs {name}: pip install 'unshift[data]'") from error


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder inside the data folder, to one process at a time."""
    filelock, folder = _import_extra("filelock"), root() / ".download"
    try:
        root().mkdir(parents=True, exist_ok=True)
        # The system releases this lock when its holder dies, for any reason.
        lock = filelock.FileLock(root() / ".download.lock").acquire()
    except OSError as error:
        raise DataError(f"cannot write to {root()} ({error}); set UNSHIFT_DATA to a writable folder") from error
    with lock:
        shutil.rmtree(folder, ignore_errors=True)  # left by a run that was killed
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def retrieve(urls: Sequence[str], known_hash: str, folder: Path) -> Path:
    """Download one file into ``folder`` from the first of ``urls`` that serves it, and return its path."""
    pooch = _import_extra("pooch")
    pooch.get_logger().setLevel("WARNING")
    problems = []
    for url in urls:
        downloader = pooch.HTTPDownloader(
            progressbar=sys.stderr.isatty(),
            timeout=TIMEOUT,
            headers={"Accept-Encoding": "identity"},  # do not unpack a .gz in transit
        )
        try:
            file = pooch.retrieve(url, known_hash, fname=url.rpartition("/")[2], path=folder, downloader=downloader)
            return Path(file)
        except (OSError, ValueError) as error:  # OSError: all errors of the web client; ValueError: the hash
            problem, password = f"{url}: {' '.join(str(error).split())}", urlsplit(url).netloc.rpartition("@")[0]
            problems.append(problem.replace(f"{password}@", "") if password else problem)
    raise DataError("the file could not be downloaded from any address. " + "; ".join(problems))


def fetch(files: Sequence[File], mirrors: Sequence[str], archive_md5: str = "") -> None:
    """Download missing files one by one or, with ``archive_md5``, extract them from the tar archive at ``mirrors``."""
    with scratch_folder() as folder:
        # Another process may have downloaded them in the meantime.
        missing = [file for file in files if not (root() / file.path).is_file()]
        if not archive_md5:
            for file in missing:
                urls = [url + Path(file.path).name for url in mirrors]
                file.install(retrieve(urls, f"md5:{file.download_md5}", folder))
        elif missing:
            with tarfile.open(retrieve(mirrors, f"md5:{archive_md5}", folder)) as archive:
                for file in missing:
                    # Take only the bytes, so that no name, link or mode in the archive decides where they are written.
                    content = archive.extractfile(file.path)
                    assert content is not None, f"{file.path} is not in the archive with this md5"
                    (folder / "member").write_bytes(content.read())
                    file.install(folder / "member")


@dataclass(frozen=True)
class Entry:
    """One data set: its description, its files, and how they are read."""

    name: str
    about: str
    licence: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # shape of an image, `(channel, *spatial)`
    counts: Mapping[str, int]  # number of images in each split
    read: Callable[[str, list[bytes]], tuple[Tensor, Tensor]]
    """Function from a split and the contents of its files, in order, to images and their int64 labels."""
    preparation: Mapping[str, Any] = field(default_factory=dict)
    """Steps of :func:`unshift.data.prepare` for the paper's estimator."""
    files: Mapping[str, tuple[File, ...]] = field(default_factory=dict)
    """The official files of each split. Empty if the data set is computed."""
    mirrors: tuple[str, ...] = ()  # addresses of the folder with the files, or of the archive
    archive_md5: str = ""  # md5 of the tar archive, if the mirrors have an archive instead of the files
    download_size: int = 0  # bytes to download

    def summary(self) -> str:
        """Return a description in one line: ``handwritten digits, 28x28 grey, 60,000 + 10,000``."""
        colour = {1: " grey", 3: " colour"}[self.shape[0]] if len(self.shape) == 3 else ""
        counts = " + ".join(f"{self.counts[split]:,}" for split in SPLITS)
        return f"{self.about}, {format_size(self.shape[1:])}{colour}, {counts}"

    def all_files(self, *splits: str) -> list[File]:
        """Return the files of these splits, by default of all."""
        return [file for split in splits or SPLITS for file in self.files.get(split, ())]

    def folder(self) -> Path:
        """Return the folder of the files, which may not exist yet."""
        files = self.all_files()
        return files[0].location().parent if files else root() / self.name

    def size(self) -> int:
        """Return the bytes on disk, or to download if a file is missing."""
        present = self.present()
        return sum(file.location().stat().st_size for file in self.all_files()) if present else self.download_size

    def present(self, *splits: str) -> bool:
        """Return whether the files of these splits (by default all) are on this computer."""
        return all(file.location().is_file() for file in self.all_files(*splits))

    def download(self, split: str) -> list[bytes]:
        """Download the missing files of a split, and return the checked contents of all its files."""
        missing = [file for file in self.all_files(split) if not file.location().is_file()]
        try:
            if missing:
                fetch(self.all_files() if self.archive_md5 else missing, self.mirrors, self.archive_md5)
        except DataError as error:
            raise DataError(f"cannot download {self.name} to {self.folder()}: {error}") from error
        contents = []
        for file in self.all_files(split):
            path, remedy = file.location(), "it is part of the package: reinstall unshift"
            if path != file.shipped:
                remedy = f"delete {path} and run `unshift data get {self.name}`"
            contents.append(read(path, file, remedy))
        return contents

    def load(self, split: str) -> ImageSet:
        """Return the images and labels of a split."""
        images, labels = self.read(split, self.download(split))
        wanted = (self.counts[split], *self.shape)
        assert images.shape == wanted, f"the entry of {self.name} promises images {wanted}, read {tuple(images.shape)}"
        return ImageSet(images, labels, f"{self.name}/{split}", self.classes)
