"""The page's models as ONNX files. An export takes seconds, so the files are cached in the data folder."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift.data import root
from unshift.files import write_atomically
from unshift.pose_network import strided_correlation


def export_module(
    module: nn.Module, example: Tensor, path: Path, dynamic: dict[int, Any], names: Sequence[str] = ("images", "logits")
) -> None:
    """Export a module that maps one tensor to one tensor; the axes in ``dynamic`` may have any length."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)  # the exporter's messages are for its developers
    settings: dict[str, Any] = {"dynamo": True, "external_data": False, "verbose": False}
    settings |= {"input_names": [names[0]], "output_names": [names[1]], "dynamic_shapes": (dynamic,)}
    try:
        with warnings.catch_warnings(action="ignore"):
            torch.onnx.export(module, (example,), path, **settings)
    finally:
        logger.setLevel(before)


def write_cached(folder: Path, name: str, export: Callable[[Path], object], progress: Callable[[str], None]) -> str:
    """Write a model to the page's folder, from the cache if it is there, and return its path relative to ``folder``.

    ``export`` writes the model to a path; ``progress`` is called with a line before that.
    """
    place = f"models/{name}.onnx"
    cached = root() / "demo" / f"{name}-{_fingerprint()}.onnx"
    if cached.is_file():
        (folder / place).write_bytes(cached.read_bytes())
        return place
    progress(f"exporting {name} (once, then cached)")
    with tempfile.TemporaryDirectory() as scratch:
        export(Path(scratch) / "model.onnx")
        content = (Path(scratch) / "model.onnx").read_bytes()
    (folder / place).write_bytes(content)
    # If the data folder is read-only, the model is exported again next time.
    with contextlib.suppress(OSError):
        for old in cached.parent.glob(f"{name}-{'[0-9a-f]' * 16}.onnx"):
            old.unlink()
        write_atomically(cached, content)
    return place


@functools.cache
def _fingerprint() -> str:
    """Return a hash of everything that an export may depend on: our sources, our weights, PyTorch's version."""
    package = Path(unshift.__file__).parent
    digest = hashlib.sha256(torch.__version__.encode())
    for pattern in ("*.py", "*.safetensors"):
        for path in sorted(package.rglob(pattern)):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class Windows(nn.Module):
    """Score windows ``(batch, 4, margin + length + margin)``: float32 ``(batch, length)`` that hold integers.

    Each window comes with a margin of its circle. The graph therefore needs no wrap-around and takes any length, and a
    genome is scored window by window in bounded memory.

    Args:
        scorer: A scorer of sequences whose sums stay below 2^24, so that float32 is exact.
    """

    def __init__(self, scorer: Any) -> None:
        super().__init__()
        self.scorer, widths = scorer, [layer.weight.shape[-1] for layer in scorer.local]
        assert all(width % 2 for width in widths)
        self.taps, self.margin = max(widths), sum(width // 2 for width in widths)

    def forward(self, windows: Tensor) -> Tensor:
        """Score the positions between the margins."""
        return last_sums(self.scorer, windows).squeeze(1)


class Evidence(nn.Module):
    """The evidence at each position of an image of any size: float32 ``(batch, positions)`` that hold integers.

    Args:
        scorer: A scorer of poses whose sums stay below 2^24.
    """

    def __init__(self, scorer: Any) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, images: Tensor) -> Tensor:
        """Return the sums of the last layer, of which the score is the mean."""
        return last_sums(self.scorer, images).flatten(1)


def last_sums(scorer: Any, images: Tensor) -> Tensor:
    """Return the sums of a scorer's last layer, without padding: integers in float32, because none reaches 2^24."""
    features = (images * scorer.pixel_scale).round().clamp(-scorer.largest, scorer.largest)
    for layer in scorer.local:
        assert layer.worst < 2**24
        weight, bias = layer.weight.to(torch.float32), layer.bias.to(torch.float32)
        sums = strided_correlation(features, weight, bias, layer.stride or 1)
        if layer.divisor is None:
            return sums
        if layer.activation == "abs":
            sums = sums.abs()
        least = -scorer.largest if layer.activation == "none" else 0
        # No sum reaches 2^24, so larger divisors give the same quotients.
        divisor = layer.divisor.clamp(max=2**24).to(torch.float32).view(-1, *[1] * scorer.axes)
        features = sums.div(divisor).floor().clamp(least, scorer.largest)
    raise AssertionError("the last layer has no divisor")


def export_windows(windows: Windows, path: Path) -> None:
    """Export the graph of both strands of a window of any length."""
    example = torch.zeros(2, 4, 2 * windows.margin + 100)
    length = torch.export.Dim("length", min=2 * windows.margin + 1)
    export_module(windows, example, path, {2: length}, ("windows", "scores"))


def export_evidence(evidence: Evidence, path: Path) -> None:
    """Export the graph of one image of any size that has a position."""
    least = evidence.scorer.least
    sides = {axis: torch.export.Dim(name, min=least) for axis, name in ((2, "height"), (3, "width"))}
    export_module(evidence, torch.zeros(1, 1, least + 100, least + 60), path, sides, ("images", "scores"))
