"""One restorer, one ``.safetensors`` file: integers, and a JSON description of what they are.

The header holds, for each stage, the network's architecture and the coordinates; what the training images were like;
and, as metadata that nothing acts on, the recipe and the measured rates. So a file explains itself
(:func:`model_card`). No pickle: reading a file runs no code. Files of unshift 0.1 (format 1) are read too.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from unshift.coordinates import from_description
from unshift.exact import LARGEST_SCALE, Curve, IntegerEstimator
from unshift.restorer import Chain, Restorer
from unshift.shifts import times

__all__ = ["image_shape", "load", "model_card", "pretrained", "read_header", "save", "sizes_of", "write_atomically"]

FORMAT = 2
_KEY = "unshift"


def save(restorer: Restorer | Chain, path: str | Path) -> None:
    """Write a restorer to a file, all or nothing: a kill at any moment leaves no half file.

    Args:
        restorer: What to write; its metadata too.
        path: The file, usually ``.safetensors``.

    Raises:
        ValueError: If it has another scorer than a quantised network, or metadata that is not plain data.
    """
    stages: list[dict[str, Any]] = []
    tensors: dict[str, torch.Tensor] = {}
    for number, stage in enumerate(restorer.stages):
        if not isinstance(stage.scorer, IntegerEstimator):
            raise ValueError(f"only integer estimators can be saved, got {type(stage.scorer).__name__}")
        stages.append({"estimator": stage.scorer.describe(), "coordinates": stage.coordinates.describe()})
        if stage.curve is not None:
            stages[-1]["curve"] = stage.curve.describe()
        # Filters of few bits are stored in as many: a quarter of the file, and the values are the same.
        state = stage.scorer.state_dict().items()
        tensors |= {f"{number}.{name}": _narrowed(tensor.cpu().contiguous()) for name, tensor in state}
    header = {
        "format": FORMAT,
        "stages": stages,
        "trained_on": restorer.trained_on,
        "metadata": restorer.metadata,
    }
    try:
        header = json.loads(json.dumps(header, allow_nan=True))  # as it will be read: the checksum is of that
    except (TypeError, ValueError) as error:
        raise ValueError(f"the restorer's metadata must be plain JSON data: {error}") from error
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


def load(path_or_name: str | Path, *, pad: int | None = None, min_confidence: float = 0.0) -> Restorer | Chain:
    """Read a restorer from a file, or a shipped one by name (``unshift models`` lists them).

    Args:
        path_or_name: A file, or a shipped restorer's name.
        pad: Put images on a margin of this many constant pixels first, and cut them out again after.
        min_confidence: Pass images of a lower confidence unchanged, marked as ``doubtful`` in the estimate.

    Returns:
        The restorer, in evaluation mode.

    Raises:
        ValueError: If there is no such file or name, or the file is not a restorer's, or damaged.
    """
    path = _resolve(path_or_name)
    header, tensors = _read(path)
    if not 0 <= min_confidence <= 1:
        raise ValueError(f"min_confidence must lie between 0 and 1, got {min_confidence}")
    try:
        if wrong := [name for name, tensor in tensors.items() if tensor.is_floating_point() or tensor.is_complex()]:
            raise TypeError(f"{wrong[0]} does not hold integers")
        stages = [
            _stage(stage, {n.removeprefix(f"{k}."): t for n, t in tensors.items() if n.startswith(f"{k}.")}, pad)
            for k, stage in enumerate(header["stages"])
        ]
        restorer = stages[0] if len(stages) == 1 else Chain(*stages)
        restorer.metadata, restorer.trained_on = dict(header["metadata"]), dict(header["trained_on"])
        restorer.min_confidence = min_confidence
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError, MemoryError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path}: not a valid unshift restorer: {first}") from error
    return restorer.eval()


def _stage(stage: dict[str, Any], tensors: dict[str, torch.Tensor], pad: int | None) -> Restorer:
    """Rebuild one restorer from its description and its integers."""
    if _depth(stage["estimator"]["network"]) > len(tensors):
        raise ValueError("its description has more layers than the file holds")
    with torch.device("meta"):  # shapes first: a header that lies about them must not take memory
        scorer = IntegerEstimator(**stage["estimator"])
    scorer.load_state_dict({name: tensor.to(torch.int64) for name, tensor in tensors.items()}, assign=True)
    _check_numbers(scorer)
    restorer = Restorer(scorer, coordinates=from_description(stage["coordinates"], pad))
    restorer.curve = Curve(stage["curve"]) if "curve" in stage else None
    return restorer


def _depth(network: dict[str, Any]) -> int:
    return len(network["channels"]) + len(network["line_channels"])


def _check_numbers(scorer: IntegerEstimator) -> None:
    """Raise unless the numbers can be those of a network: a checksum vouches for the bytes, not for their sense."""
    for name, tensor in scorer.state_dict().items():
        if "divisor" in name and int(tensor.min()) < 1:
            raise ValueError(f"{name} must be 1 or more everywhere")
        if name.endswith("_bits"):
            value = float(tensor.view(torch.float64))
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must stand for a positive number, got {value}")
            if name == "pixel_scale_bits" and value > LARGEST_SCALE:
                raise ValueError(f"{name} must stand for at most {LARGEST_SCALE:g}, got {value}")


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
        raise ValueError(f"{path}: damaged: its checksum does not match its content; download it or fit it again")
    return _modern(header, tensors)


def _modern(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Convert a file of format 1 (unshift 0.1): it had one stage, and kept ``trained_on`` among its metadata."""
    if header["format"] > 1:
        return header, tensors
    metadata = header["metadata"]
    trained_on = {key: metadata[key] for key in ("size", "preparation") if key in metadata}
    stage = {key: header[key] for key in ("estimator", "coordinates") if key in header}
    header = {"format": FORMAT, "stages": [stage], "trained_on": trained_on, "metadata": metadata}
    return header, {f"0.{name}": tensor for name, tensor in tensors.items()}


def model_card(name: str, restorer: Restorer | Chain) -> str:
    """Return a Markdown model card, all of it out of what the restorer's file says.

    Args:
        name: The title.
        restorer: What to describe.
    """
    meta, made_for = restorer.metadata, restorer.trained_on
    scorers = [stage.scorer for stage in restorer.stages if isinstance(stage.scorer, IntegerEstimator)]
    channels = made_for.get("channels", image_shape(restorer)[0])
    state = [item for scorer in scorers for item in scorer.state_dict().items()]
    rows = {
        "what": f"undoes {restorer.coordinates.undoes}, before any model sees it",
        "preset": meta.get("preset", "custom"),
        "training data": f"{meta.get('data', 'unnamed')}, {meta.get('train_images', '?')} images, no labels",
        "images": f"{channels} channel(s), {sizes_of(restorer)}",
        "preparation": json.dumps(made_for["preparation"]) if made_for.get("preparation") else "none",
        "parameters": sum(tensor.numel() for key, tensor in state if key.endswith(("weight", "bias"))),
        "activations": f"{scorers[0].describe()['bits']} bits",
    }
    rows |= meta.get("about", {})
    lines = [f"# {name}", "", "| | |", "|---|---|"]
    lines += [f"| {key} | {value} |" for key, value in rows.items()]
    for split in ("validation", "test"):
        if split in meta:
            r = meta[split]
            lines.append(
                f"| {split} | {r['images']} images: {100 * r['exact']:.2f}% restored exactly, "
                f"{100 * r['within_1']:.2f}% within 1 {restorer.coordinates.step}, {r['tied']} tied |"
            )
    if "sizes" in meta:
        by_area = sorted(meta["sizes"].items(), key=lambda one: math.prod(map(int, one[0].split("x"))))
        told = ", ".join(f"{100 * r['exact']:.1f}% of {r['images']} at {size}" for size, r in by_area)
        lines.append(f"| test, by size | restored exactly: {told} |")
    if "calibration" in meta:
        c = meta["calibration"]
        lines.append(
            f"| confidence | calibrated on {c['images']} images held out: expected calibration error "
            f"{c['ece_before']:.4f} before, {c['ece']:.4f} after |"
        )
    else:
        lines.append("| confidence | not calibrated: it ranks images, and is no probability |")
    recipe = {key: meta[key] for key in ("epochs", "batch_size", "learning_rate", "seed", "versions") if key in meta}
    lines += [f"| recipe | {json.dumps(recipe)} |", ""]
    return "\n".join(lines)


def sizes_of(restorer: Restorer | Chain) -> str:
    """Return in words the size of the images a restorer was made for: one, or any."""
    first = restorer.stages[0]
    if first.coordinates.window is not None:
        return "scenes of any size"
    any_size = "any length" if getattr(first.scorer, "axes", None) == 1 else "any size"
    return times(restorer.trained_on.get("size") or []) or any_size


def image_shape(restorer: Restorer | Chain, size: Sequence[int] | None = None) -> tuple[int, tuple[int, ...] | None]:
    """Return the channels and the size of the images a restorer takes; the size is None where it takes any.

    Args:
        restorer: Any restorer of a quantised network.
        size: The images' size, where it is known.
    """
    first = restorer.stages[0]
    scorer, coordinates = first.scorer, first.coordinates
    assert isinstance(scorer, IntegerEstimator)
    # A net of one size decides: on a margin, its images are smaller than those it was trained on.
    sizes = (size, coordinates.image_size(scorer.size), restorer.trained_on.get("size"))
    own = next((found for found in sizes if found), None) or coordinates.image_size(scorer.calibrated)
    if own is None:
        return restorer.trained_on.get("channels", scorer.in_channels), None
    return coordinates.image_channels(scorer.in_channels, tuple(own)), tuple(own)
