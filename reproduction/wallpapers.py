"""Photographs that need no account: Debian's wallpapers. ``python -m reproduction fetch wallpapers`` brings them.

``apt-get download`` fetches the packages and ``dpkg -x`` unpacks them, as any user may. Only the photographs are used,
a small part of the files. Every fourth one is a test photograph: no crop of it is trained on.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from unshift.data import DataError, root

__all__ = ["PHOTOGRAPHS", "crops_of", "cut", "fetch", "folder", "open_photograph", "photographs", "to_tensor"]

PACKAGES = {
    "plasma-workspace-wallpapers": "GPL-2+",
    "mate-backgrounds": "GPL-2+",
    "lomiri-wallpapers-16.04": "CC-BY-4.0, CC-BY-SA-3.0, CC-BY-SA-4.0, CC0-1.0",
    "lomiri-wallpapers-20.04": "CC-BY-4.0, CC-BY-SA-3.0, CC-BY-SA-4.0, CC0-1.0",
    "ukui-wallpapers": "CC-BY-SA-3.0",
    "gnome-backgrounds": "CC-BY-SA-3.0",
}
"""Packages and licences; ``debian/copyright`` in each names the authors of each file."""
PHOTOGRAPHS = tuple(Path(__file__).with_name("wallpaper-photographs.txt").read_text(encoding="utf-8").split())
"""Names of the photographs: of the file, or of the folder that a Plasma wallpaper has for itself."""
EVERY = 4


def folder() -> Path:
    """Return where the packages are unpacked."""
    return root() / "wallpapers"


def fetch() -> None:
    """Download and unpack the packages.

    Raises:
        DataError: If that fails, as it does without Debian's tools or without a network.
    """
    folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for package in PACKAGES:
            try:
                subprocess.run(["apt-get", "download", "-qq", package], cwd=place, check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as error:
                reason = (getattr(error, "stderr", b"") or str(error).encode()).decode().strip()
                raise DataError(
                    f"cannot download {package} ({reason}); this needs Debian and `apt-get update`"
                ) from error
        for archive in sorted(Path(place).glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(archive), str(folder())], check=True)


def photographs(split: str) -> dict[str, Path]:
    """Return the photographs of a split, "train" or "test", by name.

    Raises:
        DataError: If one of them is missing.
    """
    paths: dict[str, Path] = {}
    for path in sorted(folder().rglob("*.jpg")):
        name = path.parents[2].name if path.parent.name == "images" else path.stem
        if name in PHOTOGRAPHS and "screenshot" not in path.name and not path.is_symlink():
            paths.setdefault(name, path)
    if missing := sorted({*PHOTOGRAPHS} - {*paths}):
        raise DataError(
            f"{folder()} has no {', '.join(missing)}; `python -m reproduction fetch wallpapers` brings them"
        )
    return {name: paths[name] for i, name in enumerate(PHOTOGRAPHS) if (i % EVERY == EVERY - 1) == (split == "test")}


def open_photograph(path: Path, short: int | None = None) -> Image.Image:
    """Return a photograph, scaled down to ``short`` pixels along its shorter side if it has more."""
    with Image.open(path) as image:
        photo = ImageOps.exif_transpose(image).convert("RGB")
    if short is not None and min(photo.size) > short:
        scale = short / min(photo.size)
        photo = photo.resize((round(photo.width * scale), round(photo.height * scale)), Image.Resampling.BICUBIC)
    return photo


def cut(photo: Image.Image, size: tuple[int, int], generator: torch.Generator) -> Image.Image:
    """Cut out a random part, 40 to 100% of the photograph and slightly stretched, and scale it to ``size``."""
    height, width = size
    scale, aspect, down, right = torch.rand(4, generator=generator).tolist()
    part = min(photo.width / width, photo.height / height) * (0.4 + 0.6 * scale)
    stretch = (0.8 + 0.4 * aspect) ** 0.5
    w, h = min(photo.width, part * width * stretch), min(photo.height, part * height / stretch)
    left, top = right * (photo.width - w), down * (photo.height - h)
    return photo.resize((width, height), Image.Resampling.BICUBIC, box=(left, top, left + w, top + h))


def to_tensor(photo: Image.Image) -> Tensor:
    """Return a photograph as uint8 ``(3, height, width)``."""
    return torch.from_numpy(np.asarray(photo).transpose(2, 0, 1).copy())


def crops_of(paths: list[Path], size: tuple[int, int], count: int, seed: int = 0) -> Tensor:
    """Return ``count`` crops ``(count, 3, *size)`` of photographs at full resolution, equally many of each."""
    generator = torch.Generator().manual_seed(seed)
    photos = [open_photograph(path) for path in paths]
    return torch.stack([to_tensor(cut(photos[i % len(photos)], size, generator)) for i in range(count)])
