"""Export: one graph from shifted image to restored image, shift and confidence, and to logits with a classifier.

``torch.export`` captures the restorer itself, once for both formats. ``docs/export.md`` states what an exported file
promises; the file itself repeats it in short.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from unshift import __version__
from unshift.evaluation import in_its_dtype
from unshift.exact import IntegerNetwork
from unshift.files import load, write_atomically
from unshift.restorer import Chain, Restorer

OPSET = 18  # the version of ONNX's operators in exported files

LARGEST = 2**31 - 1  # the most bytes that one ONNX file can hold

PROMISE = (
    "For every finite float32 image, shift, tied, confidence, angle and scores are those of unshift in PyTorch, and "
    "restored is the same bit for bit, in any batch. Logits are the classifier's on that image, up to rounding. If an "
    "image holds NaN or infinity, its confidence is NaN and its other outputs are meaningless."
)
"""The promise that every exported file repeats."""

Classifier = Callable[[Tensor], Tensor]


class Graph(nn.Module):
    """Map images to a dictionary of ``restored``, ``shift``, ``confidence``, ``tied`` and the optional outputs."""

    def __init__(self, restorer: Restorer | Chain, classifier: Classifier | None, scores: bool) -> None:
        super().__init__()
        self.restorer, self.classifier = restorer, classifier
        reads = restorer.coordinates.labels.reads
        optional = {
            "turn": "turn" in reads,
            "angle": "angle" in reads,
            "logits": classifier is not None,
            "scores": scores,
            "rejected": restorer.min_confidence > 0,
        }
        self.outputs = ["restored", "shift", "confidence", "tied", *(name for name, given in optional.items() if given)]

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Estimate, undo and, with a classifier, classify."""
        estimate, scores = self.restorer.capture(images, images)
        scored = scores.map()[:, 0] if scores.shape[0] == 1 else scores.map()
        results: dict[str, Any] = {**estimate._asdict(), "scores": scored}
        results["restored"] = self.restorer.undo(images, estimate)
        if self.classifier is not None:
            results["logits"] = in_its_dtype(self.classifier)(results["restored"].clone())  # it may work in place
        return {name: results[name] for name in self.outputs}


def export(
    restorer: Restorer | Chain | str | Path,
    path: str | Path,
    *,
    classifier: Classifier | None = None,
    size: Sequence[int] | None = None,
    scores: bool = False,
    name: str | None = None,
) -> None:
    """Write ``restorer``, with or without a classifier, to one self-contained file: ONNX, or ``.pt2``.

    The graph's input is ``images``, float32 ``(batch, channel, *size)``, any batch. Its outputs are ``restored``,
    ``shift``, ``confidence``, ``tied`` and, where the restorer reads them, ``turn`` and ``angle``.

    Args:
        restorer: A restorer, or an argument of :func:`unshift.load`.
        path: A path that ends in ``.pt2`` gets the program of ``torch.export``, one that ends in ``.onnx`` ONNX, which
            needs ``pip install 'unshift[onnx]'``.
        classifier: A model behind the restorer; its logits are one more output.
        size: The size of the images, if the restorer takes any. Default: that of the images it was trained on.
        scores: Whether the int64 map of scores is one more output.
        name: The restorer's name in the file, if it was not loaded by name.

    Raises:
        ValueError: If the restorer or the classifier cannot be captured, or the file cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file in it")
    kind = path.suffix.lower()
    if kind not in (".onnx", ".pt2"):
        raise ValueError(f"a graph is written as .onnx or .pt2 (torch.export), by the name's ending; got {path.name}")
    if kind == ".onnx":
        _check_onnx()
    model = _loaded(restorer)
    shape = _input_shape(model, size)
    captured, names = _capture(model, shape, classifier, scores)
    called = name or ("unnamed" if isinstance(restorer, nn.Module) else Path(restorer).stem)
    about = _metadata(model, called, classifier, shape)
    data = _as_onnx(captured, names, about) if kind == ".onnx" else _as_pt2(captured, about)
    try:
        write_atomically(path, data)
    except OSError as error:
        raise ValueError(f"cannot write {path} ({error.strerror or error})") from error


def program(
    restorer: Restorer | Chain | str | Path,
    *,
    classifier: Classifier | None = None,
    size: Sequence[int] | None = None,
    scores: bool = False,
) -> ExportedProgram:
    """Capture the graph with ``torch.export``: ``program("mnist").module()(images)`` is a dictionary of its outputs."""
    model = _loaded(restorer)
    return _capture(model, _input_shape(model, size), classifier, scores)[0]


# --- capture ------------------------------------------------------------------------------------------------------


def _loaded(restorer: Restorer | Chain | str | Path) -> Restorer | Chain:
    """Return a restorer that can become a graph."""
    model = restorer if isinstance(restorer, Restorer | Chain) else load(restorer)
    for stage in model.stages:
        if not isinstance(stage.scorer, IntegerNetwork):
            kind = type(getattr(stage.scorer, "module", stage.scorer)).__name__
            raise ValueError(f"only restorers of quantised networks can be exported, got a {kind}")
    if any(buffer.device.type != "cpu" for buffer in model.buffers()):
        raise ValueError("a graph is made on the CPU, and runs anywhere: export restorer.cpu()")
    return model


def _input_shape(model: Restorer | Chain, size: Sequence[int] | None) -> tuple[int, ...]:
    """Return the channels and size of the images. Raise a ``ValueError`` if a ``size`` is missing or not positive."""
    channels, chosen = model.image_shape(size)
    if chosen is None or channels is None:
        raise ValueError("this restorer takes any image size, but a graph takes one: choose it, such as size=(32, 32)")
    if min(chosen) < 1 or (size is not None and tuple(size) != tuple(chosen)):
        raise ValueError(f"this restorer takes images of size {chosen}, got size={size}")
    return (channels, *chosen)


def _capture(
    model: Restorer | Chain, shape: Sequence[int], classifier: Classifier | None, scores: bool
) -> tuple[ExportedProgram, list[str]]:
    """Return the program and the names of its outputs."""
    if isinstance(classifier, torch.jit.ScriptModule):
        raise ValueError("torch.export cannot capture a TorchScript classifier; give the model itself")
    example = torch.zeros(3, *shape, dtype=torch.float32)  # more than one: a batch of one would become a constant
    dynamic = ({0: torch.export.Dim("batch")},)
    with _evaluating(classifier), torch.no_grad(), torch.autocast("cpu", enabled=False):
        restored = model.undo(example, model.read(example, example)[0])  # raises if the size does not fit
        if classifier is not None:
            _check_classifier(in_its_dtype(classifier), restored)
        graph = Graph(model, classifier, scores)
        try:
            captured = torch.export.export(graph, (example,), dynamic_shapes=dynamic, strict=False)
        except Exception as error:  # a user's own code may raise anything
            reason = _first_line(error)
            if reason.startswith("Constraints violated"):
                reason = "it takes one batch size only; make it take any"
            kinds = " and ".join(type(stage.coordinates).__name__ for stage in model.stages)
            behind = "" if classifier is None else "this classifier behind "
            raise ValueError(f"torch.export cannot capture {behind}a restorer of {kinds}: {reason}") from error
    return captured, graph.outputs


def _check_classifier(classifier: Classifier, images: Tensor) -> None:
    """Run a few images through a classifier, and raise a ``ValueError`` if its logits do not fit."""
    shape = tuple(images.shape)
    try:
        logits = classifier(images)
    except Exception as error:
        raise ValueError(f"the classifier cannot take images of shape {shape}: {_first_line(error)}") from error
    if not isinstance(logits, Tensor) or logits.ndim < 1 or len(logits) != len(images):
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the classifier must return one row of logits per image, got {got} for images {shape}")


@contextlib.contextmanager
def _evaluating(classifier: Any) -> Iterator[None]:
    """Put the classifier in evaluation mode, and restore the mode of each part at the end."""
    modules = list(classifier.modules()) if isinstance(classifier, nn.Module) else []
    training = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module, mode in zip(modules, training, strict=True):
            module.training = mode


def _first_line(error: BaseException) -> str:
    """Return the first line of the original error, without the advice that exporters add."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


# --- files --------------------------------------------------------------------------------------------------------


def _metadata(model: Restorer | Chain, name: str, classifier: Any, shape: Sequence[int]) -> dict[str, str]:
    """Return the description that a file carries."""
    return {
        "unshift": __version__,
        "restorer": name,
        "undoes": model.coordinates.labels.undoes,
        "preset": str(model.metadata.get("preset", "custom")),
        "data": str(model.metadata.get("data", "unnamed")),
        "preparation": json.dumps(model.trained_on.get("preparation", {})),
        "coordinates": json.dumps(model.coordinates.describe()),
        "channels": str(shape[0]),
        "size": json.dumps(list(shape[1:])),
        "classifier": "none" if classifier is None else type(classifier).__name__,
        "promise": PROMISE,
    }


def _as_pt2(captured: ExportedProgram, about: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(captured, buffer, extra_files={"unshift.json": json.dumps(about, indent=2)})
    return buffer.getvalue()


def _check_onnx() -> None:
    """Raise a ``ValueError`` that names the extra, unless the packages that write ONNX are installed."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "writing ONNX needs the packages onnx and onnxscript, the extra 'onnx': pip install 'unshift[onnx]', "
            "or in a copy of the repository '.[onnx]'"
        ) from error


def _as_onnx(captured: ExportedProgram, names: Sequence[str], about: Mapping[str, str]) -> bytes:
    """Return the ONNX file of a program with outputs ``names``."""
    try:
        made = torch.onnx.export(
            captured, dynamo=True, opset_version=OPSET, verbose=False, input_names=["images"], output_names=[*names]
        )
        assert made is not None
        proto = made.model_proto
    except Exception as error:  # each part of the exporter raises its own types
        raise ValueError(f"torch.onnx cannot write this as ONNX: {_first_line(error)}") from error
    assert not proto.functions
    _strip(proto.graph, proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param)
    proto.producer_name, proto.doc_string = "unshift", about["promise"]
    del proto.metadata_props[:]
    for key, value in about.items():
        proto.metadata_props.add(key=key, value=value)
    if proto.ByteSize() >= 2**31:
        raise ValueError("with this classifier the file would exceed 2 GB, the most that one ONNX file can hold")
    return bytes(proto.SerializeToString())


def _strip(graph: Any, batch: str) -> None:
    """Remove the exporter's notes on each node, such as paths of this machine, and name the batch axis."""
    del graph.value_info[:]  # intermediate shapes: any runtime infers them
    for part in (graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == batch:
                dim.dim_param = "batch"
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _strip(attribute.g, batch)
