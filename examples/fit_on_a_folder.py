"""Fit a restorer on a folder of photos: without labels and without shifted copies.

python examples/fit_on_a_folder.py [FOLDER]      default: a folder of 240 generated pictures
"""

import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image
from torch.nn.functional import interpolate

import unshift
from unshift.data import open_images, to_float
from unshift.evaluation import restoration_rates


def paint(folder: Path, count: int) -> Path:
    """Write ``count`` pictures of soft colours. Like photos, they do not continue across opposite edges."""
    coarse = torch.rand(count, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    fine = interpolate(coarse, (48, 48), mode="bicubic").clamp(0, 1)
    for number, picture in enumerate((255 * fine).byte().permute(0, 2, 3, 1).numpy()):
        Image.fromarray(picture).save(folder / f"{number:03}.png")
    return folder


folder = Path(sys.argv[1]) if len(sys.argv) > 1 else paint(Path(tempfile.mkdtemp()), 240)
photos = to_float(open_images(folder, size=(32, 32), channels=3).images)
train, test = photos[len(photos) // 4 :], photos[: len(photos) // 4]

restorer = unshift.fit(train, "seam", epochs=5, augment=["mirror"], data_name=folder.name, progress=False)
restorer.save(folder / "restorer.safetensors")
rates = restoration_rates(restorer, test)
print(f"{len(train)} photos, {restorer.metadata['seconds']:.0f} seconds: {folder / 'restorer.safetensors'}")
print(f"new photos located to the pixel: {rates.exact:.0%}; by chance: {1 / 32**2:.1%}")
print(unshift.verify(restorer, test[:1]))
