"""Where the datasets' files live, and the check that each one is the official one.

The folder is ``$UNSHIFT_DATA``, or ``~/.cache/unshift`` where that is unset. A file counts by the
md5 of what it holds *unpacked*: two mirrors may gzip the same bytes differently.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path


class DataError(ValueError):
    """A dataset's file is missing, damaged or out of reach; the message says how to mend it."""


@dataclass(frozen=True)
class File:
    """One official file: its place in the data folder, and the md5 and length of its content."""

    path: str
    md5: str
    size: int

    @property
    def name(self) -> str:
        """Return the last part of the path, which is also its name at every mirror."""
        return self.path.rpartition("/")[2]


# Files found intact by this process, as (path, bytes on disk, mtime): each is hashed once.
_intact: set[tuple[str, int, int]] = set()


def root() -> Path:
    """Return the folder of all datasets. It may not exist yet."""
    told = os.environ.get("UNSHIFT_DATA")
    return Path(told).expanduser() if told else Path.home() / ".cache" / "unshift"


def read(path: Path, file: File, mend: str) -> bytes:
    """Return the unpacked content of ``path``, which must be that of ``file``.

    ``mend`` ends the error's message: it tells the user what to do about a damaged file.
    """
    found = path.stat()
    key = (str(path), found.st_size, found.st_mtime_ns)
    try:
        # One byte more than expected shows a file that is too long, however far it would unpack.
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            data = stream.read(file.size + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}); {mend}") from error
    if len(data) != file.size:
        came = f"more than {file.size}" if len(data) > file.size else f"{len(data)} of {file.size}"
        raise DataError(f"{path} is damaged (it holds {came} bytes); {mend}")
    if key not in _intact:
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if md5 != file.md5:
            raise DataError(f"{path} is damaged (md5 {md5}, expected {file.md5}); {mend}")
        _intact.add(key)
    return data
