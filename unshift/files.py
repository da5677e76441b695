"""Files: one restorer is one ``.safetensors`` file, with integers and a JSON description of them.

The header holds the network and the coordinates of each stage, properties of the training images, and metadata that
nothing acts on. There is no pickle: reading a file runs no code. Files of unshift 0.1 (format 1) and 0.2 (format 2) are
read too.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import math
import os
import secrets
import struct
from collections.abc import Container, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from unshift.coordinates import from_description
from unshift.exact import LARGEST_SCALE, Curve, IntegerNetwork, network_from
from unshift.restorer import Chain, Restorer
from unshift.shifts import format_size

__all__ = ["CAUTIOUS", "describe_size", "load", "model_card", "pretrained", "read_header", "save", "write_atomically"]

FORMAT = 3
Tensors = dict[str, torch.Tensor]
_KEY = "unshift"


def save(restorer: Restorer | Chain, path: str | Path) -> None:
    """Write a restorer to a file. A kill at any moment leaves the old file or the new one.

    Args:
        restorer: The restorer, with its metadata, plain data. Its scorers must be quantised networks.
        path: The file, usually ``.safetensors``.
    """
    stages: list[dict[str, Any]] = []
    tensors: dict[str, torch.Tensor] = {}
    for number, stage in enumerate(restorer.stages):
        if not isinstance(stage.scorer, IntegerNetwork):
            raise ValueError(f"only integer networks can be saved, got {type(stage.scorer).__name__}")
        stages.append({"estimator": stage.scorer.describe(), "coordinates": stage.coordinates.describe()})
        if stage.curve is not None:
            stages[-1]["curve"] = stage.curve.describe()
        state = stage.scorer.state_dict().items()
        tensors |= {f"{number}.{name}": _narrow(tensor.cpu().contiguous()) for name, tensor in state}
    header = {"format": FORMAT, "stages": stages, "trained_on": restorer.trained_on, "metadata": restorer.metadata}
    if restorer.min_confidence:
        header["min_confidence"] = restorer.min_confidence
    try:
        header = json.loads(json.dumps(header))  # as it will be read back: the checksum is over this form
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


def _narrow(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same integers in the narrowest dtype that holds them."""
    held = (dtype for dtype in (torch.int8, torch.int16, torch.int32) if torch.equal(tensor.to(dtype), tensor))
    return tensor.to(next(held, tensor.dtype))


def write_atomically(path: Path, data: bytes, exclusive: bool = False) -> None:
    """Write ``data`` to a temporary file beside ``path`` and rename it, so that ``path`` is always complete.

    If ``exclusive``, raise a ``FileExistsError`` if ``path`` exists, even if another process created it just now.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):  # of writers that were killed
        owner = stale.name.removesuffix(".partial").rsplit(".", 1)[-1].partition("-")[0]
        if not owner.isdigit() or not is_alive(int(owner)):
            stale.unlink(missing_ok=True)
    partial = path.parent / f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial"
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if exclusive:
            try:
                os.link(partial, path)
            except FileExistsError:
                raise
            except OSError:  # a file system without hard links
                os.replace(partial, path)
            partial.unlink(missing_ok=True)
        else:
            os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:  # a full disk
            error.filename = str(path)
        raise


def is_alive(process: int) -> bool:
    """Return whether a process of this machine runs."""
    with contextlib.suppress(PermissionError):  # another user's
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


CAUTIOUS = 0.9
"""``min_confidence="cautious"``. ``python -m reproduction confidence --data shipped``."""


def load(
    path_or_name: str | Path, *, pad: int | None = None, min_confidence: float | Literal["cautious"] | None = None
) -> Restorer | Chain:
    """Read a restorer from a file, or a shipped one by name (``unshift models`` lists them).

    Args:
        path_or_name: A file, or a shipped restorer's name.
        pad: Width of a margin around the images, which is cut off again after.
        min_confidence: Images of a lower confidence pass unchanged, marked as ``rejected`` in the estimate. Exactness
            is promised for the others only. ``"cautious"`` is 0.9. Default: the file's own bound, which most files
            do not have.

    Returns:
        The restorer, in evaluation mode.

    Raises:
        ValueError: If there is no such file or name, or the file is not a restorer's, or damaged. The message names
            the file and the field.
    """
    path = _resolve(path_or_name)
    if min_confidence == "cautious":
        min_confidence = CAUTIOUS
    if min_confidence is not None and not (_is_number(min_confidence) and 0 <= min_confidence <= 1):
        raise ValueError(f'min_confidence must lie between 0 and 1, or be "cautious", got {min_confidence!r}')
    header, tensors = _read(path)
    with _naming(f"{path}: not a valid unshift restorer"):
        by_stage: dict[str, dict[str, torch.Tensor]] = {}
        for name, tensor in tensors.items():
            number, _, key = name.partition(".")
            by_stage.setdefault(number, {})[key] = tensor
        stages = []
        for k, stage in enumerate(header["stages"]):
            with _naming(f"stages[{k}]"):
                stages.append(_stage(stage, by_stage.pop(str(k), {}), pad))
        _check("the prefix of tensors", [*by_stage], not by_stage)
        with _naming("stages"):
            restorer = stages[0] if len(stages) == 1 else Chain(*stages)
        with _naming("trained_on"):
            restorer.trained_on = dict(header["trained_on"])
            _check_trained_on(restorer.trained_on)
        with _naming("metadata"):
            restorer.metadata = dict(header["metadata"])
            _check_metadata(restorer.metadata)
        least = header.get("min_confidence", 0.0) if min_confidence is None else min_confidence
        _check("min_confidence", least, _is_number(least) and 0 <= least <= 1)
        restorer.min_confidence = least
    return restorer.eval()


def _stage(stage: dict[str, Any], tensors: dict[str, torch.Tensor], pad: int | None) -> Restorer:
    """Rebuild one restorer from its description and its integers."""
    with _naming("estimator"):
        network = stage["estimator"]["network"]
        _check_whole_numbers("network", network)
        axes = network["axes"] if "axes" in network else len(network["kernel_size"]) - len(network.get("across", ()))
        judge = stage["estimator"].get("judge", {"network": {}})
        for described in (stage["estimator"], network, judge["network"]):
            _check_size("size", described.get("size"), (axes,))
        for field in ("judge", "count", "radius"):
            _check_whole_numbers(field, stage["estimator"].get(field))
        if wrong := [name for name, tensor in tensors.items() if tensor.is_floating_point() or tensor.is_complex()]:
            raise ValueError(f"{wrong[0]} does not hold integers")
        if len(network["channels"]) + len(network.get("line_channels", ())) > len(tensors):
            raise ValueError("network has more layers than the file holds")
        with torch.device("meta"):  # shapes first: a header with false shapes must not take memory
            scorer = network_from(stage["estimator"])
        scorer.load_state_dict({name: tensor.to(torch.int64) for name, tensor in tensors.items()}, assign=True)
        _check_numbers(scorer)
    with _naming("coordinates"):
        coordinates = from_description(stage["coordinates"], pad)
    restorer = Restorer(scorer, coordinates=coordinates)
    with _naming("curve"):
        restorer.curve = Curve(stage["curve"]) if "curve" in stage else None
    return restorer


# --- checks: a checksum guards the bytes, not their meaning -------------------------------------------------------

LARGEST = 2**24  # sizes and counts in a description are below this


@contextlib.contextmanager
def _naming(field: str) -> Iterator[None]:
    """Turn every error that a damaged file can cause into a ``ValueError`` that names the field."""
    try:
        yield
    except KeyError as error:
        raise ValueError(f"{field}: {error} is missing") from error
    except (ArithmeticError, AssertionError, AttributeError, IndexError, MemoryError, RuntimeError, TypeError) as error:
        raise ValueError(f"{field}: {str(error).partition(chr(10))[0] or type(error).__name__}") from error
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error


def _check(field: str, value: Any, valid: bool) -> None:
    if not valid:
        raise ValueError(f"{field} cannot be {value!r}")


def _check_whole_numbers(field: str, value: Any) -> None:
    """Raise unless all numbers in plain data are whole and neither negative nor too large."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            _check_whole_numbers(f"{field}[{key!r}]", part)
    else:
        number = isinstance(value, int) and 0 <= value < LARGEST
        _check(field, value, number or value is None or isinstance(value, str))


def _check_size(field: str, size: Any, axes: Container[int]) -> None:
    """Raise unless ``size`` is None or one positive whole number for each axis."""
    sizes = isinstance(size, list) and len(size) in axes and all(type(n) is int and 0 < n < LARGEST for n in size)
    _check(field, size, size is None or sizes)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _check_trained_on(properties: dict[str, Any]) -> None:
    """Raise unless the properties of the training images have the right types."""
    _check_size("size", properties.get("size"), range(4))
    _check_whole_numbers("channels", properties.get("channels"))
    _check_whole_numbers("preparation", properties.get("preparation", {}))
    for field, kind in (("preparation", dict), ("prints", list)):
        _check(field, properties.get(field), isinstance(properties.get(field, kind()), kind))
    for field in ("range", "background"):
        pair = properties.get(field)
        _check(field, pair, pair is None or (isinstance(pair, list) and len(pair) == 2 and all(map(_is_number, pair))))


def _check_metadata(metadata: dict[str, Any]) -> None:
    """Raise unless the metadata that model cards show have the right types."""
    rates, curve = ("images", "exact", "within_1", "tied"), ("images", "ece_before", "ece")
    numbers = {"validation": rates, "test": rates, "calibration": curve}
    tables = [(field, metadata[field], names) for field, names in numbers.items() if field in metadata]
    tables += [(f"sizes[{size!r}]", table, rates[:2]) for size, table in metadata.get("sizes", {}).items()]
    for field, table, names in tables:
        for name in names:
            _check(f"{field}[{name!r}]", table[name], _is_number(table[name]))
    _check("about", metadata.get("about"), isinstance(metadata.get("about", {}), dict))


def _check_numbers(scorer: IntegerNetwork) -> None:
    """Raise unless the integers can be those of a network."""
    for name, tensor in scorer.state_dict().items():
        if "divisor" in name and int(tensor.min()) < 1:
            raise ValueError(f"{name} must be 1 or more everywhere")
        if name.endswith("_bits"):
            value = float(tensor.view(torch.float64))
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must stand for a positive number, got {value}")
            if name.endswith("pixel_scale_bits") and value > LARGEST_SCALE:
                raise ValueError(f"{name} must stand for at most {LARGEST_SCALE:g}, got {value}")


# --- reading ------------------------------------------------------------------------------------------------------


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
    if not 1 <= version <= FORMAT:
        raise ValueError(
            f"{path}: written in format {version}, probably by a newer unshift; this one reads formats 1 to {FORMAT}"
        )
    if header.pop("sha256", None) != checksum(header, tensors):
        raise ValueError(f"{path}: damaged: its checksum does not match its content; download it or fit it again")
    return _convert_old(header, tensors)


def _convert_old(header: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    """Convert a file of format 1 (unshift 0.1): it had one stage, and kept ``trained_on`` among its metadata."""
    if header["format"] > 1:
        return header, tensors
    metadata = header["metadata"]
    trained_on = {key: metadata[key] for key in ("size", "preparation") if key in metadata}
    stage = {key: header[key] for key in ("estimator", "coordinates") if key in header}
    header = {"format": FORMAT, "stages": [stage], "trained_on": trained_on, "metadata": metadata}
    return header, {f"0.{name}": tensor for name, tensor in tensors.items()}


def model_card(name: str, restorer: Restorer | Chain) -> str:
    """Return a Markdown model card, made from the restorer's metadata.

    Args:
        name: The title.
        restorer: The restorer to describe.
    """
    meta, trained_on = restorer.metadata, restorer.trained_on
    scorers = [stage.scorer for stage in restorer.stages if isinstance(stage.scorer, IntegerNetwork)]
    channels = trained_on.get("channels", restorer.image_shape()[0])
    state = [item for scorer in scorers for item in scorer.state_dict().items()]
    rows = {
        "task": f"undoes {restorer.coordinates.labels.undoes}, before any model sees it",
        "preset": meta.get("preset", "custom"),
        "training data": f"{meta.get('data', 'unnamed')}, {meta.get('train_images', '?')} images, no labels",
        "images": f"{channels} channel(s), {describe_size(restorer)}",
        "preparation": json.dumps(trained_on["preparation"]) if trained_on.get("preparation") else "none",
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
                f"{100 * r['within_1']:.2f}% within 1 {restorer.coordinates.labels.step}, {r['tied']} tied |"
            )
    if "sizes" in meta:
        by_area = sorted(meta["sizes"].items(), key=lambda item: math.prod(map(int, item[0].split("x"))))
        rates = ", ".join(f"{100 * r['exact']:.1f}% of {r['images']} at {size}" for size, r in by_area)
        lines.append(f"| test, by size | restored exactly: {rates} |")
    confidence = "not calibrated: it ranks images but is not a probability"
    if "calibration" in meta:
        c = meta["calibration"]
        confidence = f"calibrated on {c['images']} images held out: expected calibration error "
        confidence += f"{c['ece_before']:.4f} before, {c['ece']:.4f} after"
    lines.append(f"| confidence | {confidence} |")
    recipe = {key: meta[key] for key in ("epochs", "batch_size", "learning_rate", "seed", "versions") if key in meta}
    lines += [f"| recipe | {json.dumps(recipe)} |", ""]
    return "\n".join(lines)


def describe_size(restorer: Restorer | Chain) -> str:
    """Return the size of the images that a restorer was made for, as text."""
    if restorer.coordinates.labels.scenes:
        return "scenes of any size"
    any_size = "any length" if restorer.stages[0].scorer.axes == 1 else "any size"
    return format_size(restorer.trained_on.get("size") or []) or any_size
