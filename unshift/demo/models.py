"""The page's models as ONNX files. An export takes seconds, so the files are cached in the data folder."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import unshift
from unshift.data import root

__all__ = ["export_module", "put"]


def export_module(
    module: nn.Module, example: Tensor, path: Path, dynamic: dict[int, Any], names: Sequence[str] = ("images", "logits")
) -> None:
    """Export a module that maps one tensor to one tensor.

    Args:
        module: The module.
        example: An input.
        path: The ONNX file to write.
        dynamic: The axes of the input that may have any length, by number.
        names: The names of the input and the output.
    """
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)  # the exporter's messages are for its developers
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                (example,),
                path,
                dynamo=True,
                external_data=False,
                verbose=False,
                input_names=[names[0]],
                output_names=[names[1]],
                dynamic_shapes=(dynamic,),
            )
    finally:
        logger.setLevel(before)


def put(folder: Path, name: str, export: Callable[[Path], object], progress: Callable[[str], None]) -> str:
    """Write a model to the page's folder, from the cache if it is there.

    Args:
        folder: The page's folder.
        name: The name of the model.
        export: Writes the model to a path.
        progress: Called with a line before an export.

    Returns:
        The model's path relative to ``folder``.
    """
    place = f"models/{name}.onnx"
    cached = root() / "demo" / f"{name}-{_fingerprint()}.onnx"
    if cached.is_file():
        shutil.copyfile(cached, folder / place)
        return place
    progress(f"exporting {name} (once, then cached)")
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / "model.onnx"
        export(fresh)
        shutil.copyfile(fresh, folder / place)
    # If the data folder is read-only, the model is exported again next time.
    with contextlib.suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        for old in cached.parent.glob(f"{name}-{'[0-9a-f]' * 16}.onnx"):
            old.unlink()
        partial = cached.with_suffix(".partial")
        shutil.copyfile(folder / place, partial)
        partial.replace(cached)
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
