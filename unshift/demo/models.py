"""The page's models as ONNX files: exported once, which takes seconds each, then kept in the data folder."""

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

__all__ = ["export_module", "put", "put_classifier", "put_restorer"]


Progress = Callable[[str], None]


def put_restorer(folder: Path, name: str, progress: Progress, size: Sequence[int] | None = None) -> str:
    """Write the shipped restorer ``name`` with its scores into ``folder``/models; return its place in ``folder``.

    Args:
        folder: The page's.
        name: Of the restorer.
        progress: Is told before an export.
        size: Of the images, where the restorer takes any.
    """
    return put(folder, name, lambda path: unshift.export(name, path, scores=True, size=size), progress)


def put_classifier(folder: Path, name: str, classifier: nn.Module, example: Tensor, progress: Progress) -> str:
    """Write ``classifier``, which takes batches like ``example``, likewise."""
    batch = {0: torch.export.Dim("batch")}
    return put(
        folder, name, lambda path: export_module(classifier, example, path, ("images", "logits"), batch), progress
    )


def export_module(module: nn.Module, example: Tensor, path: Path, names: tuple[str, str], free: dict[int, Any]) -> None:
    """Write a module as a graph.

    Args:
        module: From one tensor to one.
        example: What it takes.
        path: Where to.
        names: Of its input and its output.
        free: The axes of the input that may have any length, by number.
    """
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)  # the exporter talks to its own authors
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
                dynamic_shapes=(free,),
            )
    finally:
        logger.setLevel(before)


def put(folder: Path, name: str, export: Callable[[Path], object], progress: Progress) -> str:
    """Put a model into a folder, exported only if the data folder has no copy.

    Args:
        folder: The page's.
        name: Of the model.
        export: Writes the model to a path.
        progress: Is told before an export.

    Returns:
        The model's path in the folder.
    """
    place = f"models/{name}.onnx"
    kept = root() / "demo" / f"{name}-{_fingerprint()}.onnx"
    if kept.is_file():
        shutil.copyfile(kept, folder / place)
        return place
    progress(f"exporting {name} (once, then kept)")
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / "model.onnx"
        export(fresh)
        shutil.copyfile(fresh, folder / place)
    # A data folder that cannot be written to costs the seconds again, no more.
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        for old in kept.parent.glob(f"{name}-{'[0-9a-f]' * 16}.onnx"):
            old.unlink()
        partial = kept.with_suffix(".partial")
        shutil.copyfile(folder / place, partial)
        partial.replace(kept)
    return place


@functools.cache
def _fingerprint() -> str:
    """Return a hash of all that an exported model may depend on: our sources and weights, and PyTorch's version."""
    package = Path(unshift.__file__).parent
    hashed = hashlib.sha256(torch.__version__.encode())
    for pattern in ("*.py", "*.safetensors"):
        for path in sorted(package.rglob(pattern)):
            hashed.update(path.name.encode() + path.read_bytes())
    return hashed.hexdigest()[:16]
