"""Photographs that need no account: those among Debian's wallpapers, and the restorer ``photos`` that learns from them.

    python -m unshift.experiments.wallpapers          # fetch them, train, measure on photographs never trained on

The packages are fetched by ``apt-get download`` and unpacked by ``dpkg -x``, as any user may. What is no photograph
(most of it: drawings, patterns) is not used. Every fourth photograph is a test photograph: no crop of it is trained
on. A crop is a part of 40 to 100% of the photograph's shorter side, of a random shape, scaled to one size, mirrored
half of the time and compressed again as JPEG half of the time: what is left to learn is the seam, not the crop.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import Dataset

import unshift
from unshift.circular import CircularFilter
from unshift.data import root
from unshift.evaluation import restoration_rates
from unshift.recipes import RECIPES

__all__ = ["Crops", "crops_of", "fetch", "photographs"]

PACKAGES = {
    "plasma-workspace-wallpapers": "GPL-2+",
    "mate-backgrounds": "GPL-2+",
    "lomiri-wallpapers-16.04": "CC-BY-4.0, CC-BY-SA-3.0, CC-BY-SA-4.0, CC0-1.0",
    "lomiri-wallpapers-20.04": "CC-BY-4.0, CC-BY-SA-3.0, CC-BY-SA-4.0, CC0-1.0",
    "ukui-wallpapers": "CC-BY-SA-3.0",
    "gnome-backgrounds": "CC-BY-SA-3.0",
}
"""The packages and their licences; ``debian/copyright`` in each names the authors, file by file. The last two hold no
photographs in the version that this was written with."""

PHOTOGRAPHS = tuple(Path(__file__).with_name("wallpaper-photographs.txt").read_text(encoding="utf-8").split())
"""The photographs among them, by the name of the file, or of the folder that a Plasma wallpaper has for itself."""
EVERY = 4
"""Each photograph of this number is a test photograph."""
SIZES = ((96, 96), (128, 128), (160, 160), (224, 224), (320, 320), (375, 500), (512, 512), (768, 768), (1024, 1024))


def fetch(folder: Path) -> Path:
    """Fetch and unpack the packages into ``folder``, unless they are there.

    Raises:
        ValueError: If they cannot be had: without Debian's tools, or without a network.
    """
    if folder.is_dir() and any(folder.rglob("*.jpg")):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for package in PACKAGES:
            try:
                subprocess.run(["apt-get", "download", "-qq", package], cwd=place, check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as error:
                said = getattr(error, "stderr", b"") or str(error).encode()
                raise ValueError(
                    f"cannot fetch {package} ({said.decode().strip()}); it takes a Debian system, and `apt-get update`"
                ) from error
        for archive in sorted(Path(place).glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(archive), str(folder)], check=True)
    return folder


def photographs(split: str, folder: Path | None = None) -> dict[str, Path]:
    """Return the photographs of a split, ``"train"`` or ``"test"``, by name."""
    home = fetch(folder or root() / "wallpapers")
    found: dict[str, Path] = {}
    for path in sorted(home.rglob("*.jpg")):
        name = path.parents[2].name if path.parent.name == "images" else path.stem
        if name in PHOTOGRAPHS and "screenshot" not in path.name and not path.is_symlink():
            found.setdefault(name, path)
    if missing := sorted({*PHOTOGRAPHS} - {*found}):
        raise ValueError(f"{home} has no {', '.join(missing)}: another version of the packages?")
    return {name: found[name] for i, name in enumerate(PHOTOGRAPHS) if (i % EVERY == EVERY - 1) == (split == "test")}


def _opened(path: Path, short: int | None = None) -> Image.Image:
    """Return a photograph, if asked with ``short`` pixels along its shorter side, or fewer if it has fewer."""
    with Image.open(path) as image:
        photo = ImageOps.exif_transpose(image).convert("RGB")
    if short is not None and min(photo.size) > short:
        scale = short / min(photo.size)
        photo = photo.resize((round(photo.width * scale), round(photo.height * scale)), Image.Resampling.BICUBIC)
    return photo


def cut(photo: Image.Image, size: tuple[int, int], generator: torch.Generator) -> Image.Image:
    """Cut a random part out of a photograph and scale it to ``size``."""
    height, width = size
    scale, aspect, down, right = torch.rand(4, generator=generator).tolist()
    longest = min(photo.width / width, photo.height / height)
    part = longest * (0.4 + 0.6 * scale)
    stretch = (0.8 + 0.4 * aspect) ** 0.5  # not all cameras have the same shape of pixels, or of sensors
    w, h = min(photo.width, part * width * stretch), min(photo.height, part * height / stretch)
    left, top = right * (photo.width - w), down * (photo.height - h)
    return photo.resize((width, height), Image.Resampling.BICUBIC, box=(left, top, left + w, top + h))


def recompressed(photo: Image.Image, generator: torch.Generator) -> Image.Image:
    """Compress a photo as JPEG, half of the time, at a quality of 50 to 95."""
    whether, quality = torch.rand(2, generator=generator).tolist()
    if whether < 0.5:
        return photo
    buffer = io.BytesIO()
    photo.save(buffer, "JPEG", quality=50 + int(46 * quality))
    with Image.open(buffer) as again:
        return again.convert("RGB")


def _as_tensor(photo: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(photo).transpose(2, 0, 1).copy())


class Crops(Dataset[Tensor]):
    """Crops to train on, new ones in every epoch: drawn from PyTorch's generator, which ``fit`` seeds for each item.

    Args:
        paths: The photographs.
        count: Crops an epoch.
        size: Of each, height and width.
        short: Photographs are kept in memory, this long along their shorter side.
    """

    def __init__(self, paths: list[Path], count: int, size: tuple[int, int] = (96, 96), short: int = 640) -> None:
        self.photos = [_opened(path, short) for path in paths]
        self.count, self.size = count, size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        chance = torch.Generator().manual_seed(int(torch.randint(2**62, (1,))))
        photo = cut(self.photos[index % len(self.photos)], self.size, chance)
        if torch.rand(1, generator=chance) < 0.5:
            photo = ImageOps.mirror(photo)
        return _as_tensor(recompressed(photo, chance))


def crops_of(paths: list[Path], size: tuple[int, int], count: int, seed: int = 0) -> Tensor:
    """Return ``count`` crops ``(count, 3, *size)`` of photographs at their own resolution, as many of each."""
    chance = torch.Generator().manual_seed(seed)
    photos = [_opened(path) for path in paths]
    return torch.stack([_as_tensor(cut(photos[i % len(photos)], size, chance)) for i in range(count)])


def network() -> unshift.ShiftEstimator:
    """Return the network to train: a ``seam`` of 16 filters of 2x2, at half the cost of 24 of 3x3.

    Chosen on 7 of the training photographs (``--tune``): it found as many of their crops, given twice as many epochs.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        seam = unshift.ShiftEstimator.preset("seam", 3, (96, 96)).describe()
        net = unshift.ShiftEstimator(**{**seam, "channels": [16], "kernel_size": [2, 2]})
    for layer in net.modules():  # blind to brightness at first, as the preset is
        if isinstance(layer, CircularFilter) and layer.weight[0, 0].numel() > 1:
            layer.weight.data -= layer.weight.data.mean(tuple(range(2, layer.weight.ndim)), keepdim=True)
    return net


def train(out: Path, paths: list[Path], *, count: int, workers: int, **recipe: Any) -> unshift.Restorer:
    """Train ``photos`` on crops of photographs, and save it; goes on after a kill."""
    restorer = unshift.fit(
        Crops(paths, count),
        network(),
        **{**RECIPES["seam"], "patience": recipe["epochs"], **recipe},
        augment=["windows"],
        workers=workers,
        checkpoint=Path(f"{out}.checkpoint"),
        resume=True,
        data_name="wallpapers",
    )
    restorer.trained_on["preparation"] = {}
    restorer.metadata["photographs"] = len(paths)
    restorer.save(out)
    return restorer


def finish(restorer: unshift.Restorer | unshift.Chain, out: Path, paths: list[Path], count: int) -> None:
    """Measure on ``count`` crops of other photographs, for every size, and write that into the file as well."""
    restorer.trained_on.pop("size", None)  # it is measured at many: none of them is unlike what it was made for
    sizes = {}
    for size in SIZES:
        rates = restoration_rates(restorer, crops_of(paths, size, count), batch_size=16).as_dict()
        sizes["x".join(map(str, size))] = rates
        print(size, json.dumps(rates), flush=True)
    restorer.metadata |= {"test": sizes["224x224"], "sizes": sizes, "test_photographs": len(paths)}
    restorer.save(out)


def main() -> None:
    """Fetch, train, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(unshift.__file__).parent / "pretrained" / "photos.safetensors")
    parser.add_argument("--crops", type=int, default=4800, help="crops an epoch")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--average", type=float, default=0.98)
    parser.add_argument("--test-crops", type=int, default=135, help="crops to measure on, of all test photographs")
    parser.add_argument("--workers", type=int, default=0, help="processes that cut crops beside the training")
    parser.add_argument("--threads", type=int, help="CPU threads; results differ in the last bits between counts")
    parser.add_argument("--tune", action="store_true", help="measure on a quarter of the training photographs instead")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    paths, held = (list(photographs(split).values()) for split in ("train", "test"))
    if given.tune:
        held = paths[2::4]
        paths = [path for path in paths if path not in held]
    restorer = train(
        given.out,
        paths,
        count=given.crops,
        epochs=given.epochs,
        workers=given.workers,
        average=given.average,
        batch_size=given.batch_size,
    )
    finish(restorer, given.out, held, given.test_crops)


if __name__ == "__main__":
    main()
