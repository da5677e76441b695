"""Where the files of the data sets live, and the check that each one is the official one.

The folder is ``$UNSHIFT_DATA``, or ``~/.cache/unshift`` where that is unset. A file on disk counts by the
md5 of what it holds *unpacked*: the same bytes may have been packed again since they were downloaded.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DataError", "File", "read", "root"]


class DataError(ValueError):
    """A file of a data set is missing, damaged or out of reach. The message says what to do."""


@dataclass(frozen=True)
class File:
    """One official file of a data set."""

    path: str
    """Its place in the data folder. The last part is also its name at every mirror."""
    size: int
    """Bytes of its content, unpacked."""
    md5: str
    """Of its content, unpacked."""
    download_md5: str = ""
    """Of the file as the mirrors have it. Empty where it is not downloaded on its own."""
    shipped: Path | None = None
    """A copy that comes with the package."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def place(self) -> Path:
        """Return where to read the file: in the data folder, or else the copy that comes with the package."""
        path = root() / self.path
        return path if self.shipped is None or path.is_file() else self.shipped


def root() -> Path:
    """Return the folder of all data sets. It may not exist yet.

    Returns:
        ``$UNSHIFT_DATA``, or ``~/.cache/unshift`` where that is unset or empty.
    """
    told = os.environ.get("UNSHIFT_DATA")
    return Path(told).expanduser() if told else Path.home() / ".cache" / "unshift"


def read(path: Path, file: File, remedy: str) -> bytes:
    """Return the unpacked content of ``path``, which must be that of ``file``.

    Args:
        path: The file on disk. It is unpacked if its name ends in ``.gz``.
        file: What its content must be.
        remedy: The end of the error message: what to do about a damaged file.

    Returns:
        The content, checked by its length and its md5.

    Raises:
        DataError: If the content is not that of ``file``.
    """
    try:
        # One byte more than expected shows a file that is too long, however far it would unpack.
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            data = stream.read(file.size + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}); {remedy}") from error
    if len(data) != file.size:
        came = f"more than {file.size}" if len(data) > file.size else f"{len(data)} of {file.size}"
        raise DataError(f"{path} is damaged (it holds {came} bytes); {remedy}")
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if md5 != file.md5:
        raise DataError(f"{path} is damaged (md5 {md5}, expected {file.md5}); {remedy}")
    return data
