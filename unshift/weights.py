"""One restorer, one ``.safetensors`` file: integers, and a JSON description of what they are.

The header holds the network's architecture, the coordinates, the size, the training data and the
measured rates, so a file explains itself (:func:`model_card`). No pickle: reading a file runs no code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import nn

from unshift.exact import IntegerEstimator
from unshift.polar import Polar
from unshift.restorer import Canvas, Restorer

__all__ = ["load", "model_card", "pretrained", "read_header", "save", "write_atomically"]

FORMAT = 1
COORDINATES: dict[str, Callable[..., nn.Module]] = {"canvas": Canvas, "polar": Polar}
_KEY = "unshift"


def save(restorer: Restorer, path: str | Path) -> None:
    """Write ``restorer`` to ``path``, all or nothing: a kill at any moment leaves no half file."""
    if not isinstance(restorer.scorer, IntegerEstimator):
        raise ValueError(f"only integer estimators can be saved, got {type(restorer.scorer).__name__}")
    header = {
        "format": FORMAT,
        "estimator": restorer.scorer.describe(),
        "coordinates": restorer.coordinates.describe(),  # type: ignore[operator]
        "metadata": restorer.metadata,
    }
    try:
        header = json.loads(json.dumps(header, allow_nan=True))  # as it will be read: the checksum is of that
    except (TypeError, ValueError) as error:
        raise ValueError(f"the restorer's metadata must be plain JSON data: {error}") from error
    tensors = {name: tensor.cpu().contiguous() for name, tensor in restorer.scorer.state_dict().items()}
    # Filters of few bits are stored in as many: a quarter of the file, and the values are the same.
    tensors = {name: _narrowed(tensor) for name, tensor in tensors.items()}
    header["sha256"] = checksum(header, tensors)
    write_atomically(Path(path), to_bytes(tensors, {_KEY: json.dumps(header, sort_keys=True)}))


def checksum(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 of a description and its tensors: safetensors itself has none."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _narrowed(tensor: torch.Tensor) -> torch.Tensor:
    for dtype in (torch.int8, torch.int16, torch.int32):
        limits = torch.iinfo(dtype)
        if limits.min <= int(tensor.min()) and int(tensor.max()) <= limits.max:
            return tensor.to(dtype)
    return tensor


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` beside ``path`` and rename it there, so that ``path`` is always whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.parent / f".{path.name}.partial"  # one name, so that kills leave one file, not a pile
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def load(path_or_name: str | Path, *, pad: int | None = None) -> Restorer:
    """Read a restorer from a file, or a shipped one by name (``unshift models`` lists them).

    ``pad`` puts images on a margin of so many constant pixels first, and cuts them out again after.
    """
    path = _resolve(path_or_name)
    header, tensors = _read(path)
    try:
        if wrong := [name for name, tensor in tensors.items() if tensor.is_floating_point() or tensor.is_complex()]:
            raise TypeError(f"{wrong[0]} does not hold integers")
        if _depth(header["estimator"]["network"]) > len(tensors):
            raise ValueError("it describes more layers than it holds")
        with torch.device("meta"):  # shapes first: a header that lies about them must not take memory
            scorer = IntegerEstimator(**header["estimator"])
        integers = {name: tensor.to(torch.int64) for name, tensor in tensors.items()}
        scorer.load_state_dict(integers, assign=True)
        _check_numbers(scorer)
        restorer = Restorer(scorer, coordinates=_coordinates(header["coordinates"], pad))
        restorer.metadata = dict(header["metadata"])
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError, MemoryError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path}: not a valid unshift restorer: {first}") from error
    return restorer.eval()


def _coordinates(description: dict[str, Any], pad: int | None) -> nn.Module:
    """Rebuild coordinates from what they said of themselves."""
    kind = description["kind"]
    settings = {key: value for key, value in description.items() if key != "kind"}
    if kind not in COORDINATES:
        raise KeyError(f"coordinates {description!r}")
    if pad is not None and kind != "canvas":
        raise ValueError(f"pad is for shifts, this restorer has {kind} coordinates")
    return COORDINATES[kind](**(settings if pad is None else {**settings, "pad": pad}))


def _depth(network: dict[str, Any]) -> int:
    return len(network["channels"]) + len(network["line_channels"])


def _check_numbers(scorer: IntegerEstimator) -> None:
    """Raise unless the numbers can be those of a network: a checksum vouches for the bytes, not for their sense."""
    for name, tensor in scorer.state_dict().items():
        if "divisor" in name and int(tensor.min()) < 1:
            raise ValueError(f"{name} must be 1 or more")
        if name.endswith("_bits"):
            value = float(tensor.view(torch.float64))
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must stand for a positive number, got {value}")


def _resolve(path_or_name: str | Path) -> Path:
    shipped = pretrained()
    if str(path_or_name) in shipped:
        return shipped[str(path_or_name)]
    path = Path(path_or_name)
    if path.is_file():
        return path
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a restorer is one .safetensors file")
    raise ValueError(f"no restorer {str(path_or_name)!r}: neither a file nor one of {', '.join(shipped) or '(none)'}")


def pretrained() -> dict[str, Path]:
    """Return the shipped restorers: name to file."""
    folder = Path(str(resources.files("unshift"))) / "pretrained"
    files = sorted(folder.glob("*.safetensors"), key=lambda path: path.stem)
    return {path.stem: path for path in files}


def read_header(path: Path) -> dict[str, Any]:
    """Return the description in a restorer's file, without its tensors."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    try:
        with safe_open(str(path), framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, RuntimeError, struct.error) as error:
        raise ValueError(f"{path}: not a readable safetensors file, or a truncated one ({error})") from error
    if text is None:
        raise ValueError(f"{path}: a safetensors file, but not of an unshift restorer")
    try:
        header = json.loads(text)
        version = header["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: the description in this file is damaged") from error
    if not isinstance(version, int) or not isinstance(header.get("metadata"), dict):
        raise ValueError(f"{path}: the description in this file is damaged")
    if version > FORMAT:
        raise ValueError(
            f"{path}: written in format {version} by a newer unshift; this one reads up to {FORMAT}: upgrade unshift"
        )
    if header.pop("sha256", None) != checksum(header, tensors):
        raise ValueError(f"{path}: damaged: its checksum is not that of its content; bring or make it anew")
    return header, tensors


def model_card(name: str, restorer: Restorer) -> str:
    """Return a Markdown model card, all of it out of the restorer's own metadata."""
    meta = restorer.metadata
    scorer = restorer.scorer
    assert isinstance(scorer, IntegerEstimator)
    network = scorer.describe()["network"]
    channels, what, unit = network["in_channels"], "circular shift of an image, exactly,", "pixel"
    if isinstance(polar := restorer.coordinates, Polar):
        channels //= polar.channels
        what = "rotation of an image, quarter turns exactly,"
        unit = f"step of {360 / polar.angles:g} degrees"
    rows = {
        "what": f"undoes the {what} before any classifier sees it",
        "preset": meta.get("preset", "custom"),
        "training data": f"{meta.get('data', 'unnamed')}, {meta.get('train_images', '?')} images, no labels",
        "images": f"{channels} channel(s), size {meta.get('size', '?')}",
        "preparation": json.dumps(meta.get("preparation", {})),
        "parameters": sum(t.numel() for n, t in scorer.state_dict().items() if n.endswith(("weight", "bias"))),
        "activations": f"{scorer.describe()['bits']} bits",
    }
    lines = [f"# {name}", "", "| | |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in rows.items()]
    for split in ("validation", "test"):
        if split in meta:
            r = meta[split]
            lines.append(
                f"| {split} | {r['images']} images: {100 * r['exact']:.2f}% restored exactly, "
                f"{100 * r['within_1']:.2f}% within 1 {unit}, {r['tied']} tied |"
            )
    recipe = {key: meta[key] for key in ("epochs", "batch_size", "learning_rate", "seed", "versions") if key in meta}
    lines += [f"| recipe | {json.dumps(recipe)} |", ""]
    return "\n".join(lines)
