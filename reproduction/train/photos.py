"""``photos``: colour photographs of any size, by their seam.

    python -m reproduction fetch photographs
    python -m reproduction.train.photos --out photos.safetensors

It starts from ``cifar10-seam``: from the 16 of its 24 filters that matter most. Half of the batches are the 50,000
training images of CIFAR-10, 32x32; the others are crops of photographs in Debian's packages, 96x96: sharpened, blurred,
noisy, framed, and compressed again as JPEG, so that only the seam can be learnt. A frame has the same width on opposite
sides, so by convention the seam is in the middle of a uniform border.

Calibrated on photographs of other sources, of PyPI's packages; measured once on those of npm's.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps
from torch import Tensor

import unshift
from reproduction.photographs import cut, open_photograph, photographs, squares, to_tensor
from reproduction.train.common import main, prepared
from unshift.evaluation import calibrate, rates_from, restoration_rates
from unshift.network import as_float
from unshift.training.start import network_of

HELD_OUT = 300
CROPS, SHORT = 60, 900
"""Crops of each photograph, which is first scaled down to this many pixels along its shorter side."""
CALIBRATION_CROPS = 10
SIZES = (96, 224, 512)
"""Sides of the squares that it is measured on."""
FILTERS = 16


def spoiled(photo: Image.Image, generator: torch.Generator) -> Image.Image:
    """Sharpen or blur a photo, add noise and a frame, and compress it as JPEG: each with some probability."""
    change, strength, noise, level, frame, *rest = torch.rand(12, generator=generator).tolist()
    if change < 0.15:
        photo = photo.filter(ImageFilter.UnsharpMask(1 + strength, int(50 + 150 * rest[0]), 2))
    elif change < 0.25:
        photo = photo.filter(ImageFilter.GaussianBlur(0.4 + 0.8 * strength))
    if noise < 0.15:
        random = torch.randn(photo.height, photo.width, 3, generator=generator).numpy() * (2 + 10 * level)
        photo = Image.fromarray((np.asarray(photo) + random).clip(0, 255).astype(np.uint8))
    if frame < 0.12:
        photo = framed(photo, 1 + int(10 * rest[1]), int(3 * rest[2]), int(3 * rest[3]), rest[4])
    if rest[5] < 0.5:
        buffer = io.BytesIO()
        photo.save(buffer, "JPEG", quality=40 + int(56 * rest[6]))
        with Image.open(buffer) as again:
            photo = again.convert("RGB")
    return photo


def framed(photo: Image.Image, width: int, sides: int, colour: int, grey: float) -> Image.Image:
    """Put a frame around a photo (sides 0), or bars on its left and right (1), or above and below (2)."""
    across, down = (0 if sides == 2 else width), (0 if sides == 1 else width)
    small = photo.resize((photo.width - 2 * across, photo.height - 2 * down))
    fill = (0, 255, int(255 * grey))[colour]
    return ImageOps.expand(small, (across, down, across, down), fill=(fill, fill, fill))


def crops(split: str, side: int, count: int, seed: int) -> Tensor:
    """Return ``count`` spoiled crops of each photograph of a split."""
    generator = torch.Generator().manual_seed(seed)
    photos = (open_photograph(path, SHORT) for path in photographs(split))
    made = [
        to_tensor(spoiled(cut(photo, (side, side), generator), generator)) for photo in photos for _ in range(count)
    ]
    return torch.stack(made)


def images(split: str) -> Any:
    """Return crops to train on; the test photographs at 224x224."""
    return crops("train", 96, CROPS, 0) if split == "train" else squares(photographs("test"), 224)


@torch.no_grad()
def network(thumbnails: Tensor) -> unshift.ShiftEstimator:
    """Return ``cifar10-seam`` without the filters whose means matter least to the layers after them."""
    whole = network_of(unshift.load("cifar10-seam"))
    local: Any = whole.local[0]
    features = local(as_float(thumbnails))
    spread = features.mean(3).std((0, 2)) + features.mean(2).std((0, 2))
    firsts: Any = [line[0] for line in whole.lines]  # type: ignore[index]
    matters = spread * sum(first.weight.square().sum((0, 2)) for first in firsts).sqrt()
    kept = matters.topk(FILTERS).indices.sort().values
    net = unshift.ShiftEstimator(**{**whole.describe(), "channels": [FILTERS]})
    state = whole.state_dict()
    state["local.0.weight"], state["local.0.bias"] = local.weight[kept], local.bias[kept]
    for axis, first in enumerate(firsts):
        state[f"lines.{axis}.0.weight"] = first.weight[:, kept]
    net.load_state_dict(state)
    return net


def measure(restorer: unshift.Restorer) -> None:
    """Add the rates on the test photographs at several sizes to the metadata."""
    sizes = {side: squares(photographs("test"), side) for side in SIZES}
    rates = {f"{side}x{side}": restoration_rates(restorer, images, batch_size=16) for side, images in sizes.items()}
    restorer.metadata["sizes"] = {size: rate.as_dict() for size, rate in rates.items()}


def train(**options: Any) -> unshift.Restorer:
    """Fit on both kinds of images; calibrate on photographs of other sources."""
    thumbnails = prepared("cifar10", "train", {})

    def mixed(images: Tensor, generator: torch.Generator) -> Tensor:
        """Replace half of the batches by thumbnails, four times as many: nearly as many pixels."""
        if torch.rand(1, generator=generator) < 0.5:
            return images
        return thumbnails[torch.randint(len(thumbnails), (4 * len(images),), generator=generator)]

    recipe: Any = {"epochs": 1, "patience": 1, "learning_rate": 0.001, "batch_size": 48, "average": 0.99}
    recipe |= {"optimizer": "muon", "augment": [mixed, "mirror", "windows", "colour"], "validation": HELD_OUT}
    restorer = unshift.fit(
        images("train"), network(thumbnails[:1000]), data_name="photographs and cifar10", drop_unusable=True,
        **{**recipe, **options},
    )  # fmt: skip
    restorer.metadata["photographs"] = len(photographs("train"))
    restorer.trained_on["preparation"] = {}
    restorer.trained_on.pop("size", None)  # it is measured at many sizes, so none of them is unusual
    calibration = crops("held-out", 224, CALIBRATION_CROPS, 1)
    rates = rates_from(calibrate(restorer, lambda: ([part] for part in calibration.split(32))))
    restorer.metadata["validation"] = rates.as_dict()
    return restorer


if __name__ == "__main__":
    main()
