"""What the tests of data share: files to serve, archives and pictures to write."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from unshift.data.files import File


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


NOISE = np.random.default_rng(0).bytes(500_000)
BLOB = File("set/blob.bin", len(NOISE), md5(NOISE), md5(NOISE))


def tree(folder: Path) -> set[str]:
    """Return the files in `folder`, the lock aside."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".download.lock")
    return {path.relative_to(folder).as_posix() for path in paths}


def tar_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def gradient(height: int, width: int) -> np.ndarray:
    """Return an RGB image in which every pixel differs."""
    y, x = np.mgrid[:height, :width]
    return np.stack([y * 3, x * 3, y + x], -1).astype(np.uint8)


def save(path: Path, pixels_: np.ndarray, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels_).save(path, **options)
    return path
