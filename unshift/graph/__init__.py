"""Export: one graph from shifted image to restored image, shift and confidence, and to logits with a classifier.

    unshift.export("mnist", "mnist.onnx", classifier=model)

The graph is one ``nn.Module`` of plain tensor operations (``module.Graph``) around the restorer's own integers, which
``torch.export`` captures once for both formats. It is a second spelling of :mod:`unshift.exact`: that one asks the
machine what it can do exactly and loops in Python, this one must be exact wherever it is run. Tests hold the two
together bit for bit. Written with ``onnx.helper`` instead, it would neither take a classifier nor make a ``.pt2``.

What is promised, and what is not, is in ``docs/export.md`` and, in short, in the file itself.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from unshift.exact import IntegerEstimator
from unshift.graph.module import Graph
from unshift.graph.onnx_file import OPSET, as_onnx, check_onnx, first_line, quiet
from unshift.polar import Polar
from unshift.restorer import Canvas, Restorer
from unshift.weights import load, write_atomically

__all__ = ["OPSET", "PROMISE", "export", "program"]

PROMISE = (
    "For every finite float32 image, shift, tied, confidence, angle and scores are those of unshift in PyTorch, and "
    "restored is the same bit for bit, in any batch. Logits are the classifier's on that image, up to rounding. Where "
    "an image holds NaN or infinity, confidence is NaN and the rest means nothing."
)
"""What every file says of itself."""

Classifier = Callable[[Tensor], Tensor]


def export(
    restorer: Restorer | str | Path,
    path: str | Path,
    *,
    classifier: Classifier | None = None,
    size: Sequence[int] | None = None,
    scores: bool = False,
    name: str | None = None,
) -> None:
    """Write ``restorer``, and ``classifier`` behind it, to one self-contained file: ONNX, or ``.pt2``.

    ``restorer`` is one, or what :func:`unshift.load` takes. The graph's input is ``images``, float32 ``(batch, channel,
    *size)``, any batch; its outputs are ``restored``, ``shift``, ``confidence``, ``tied``, of a rotation ``angle``,
    with a classifier ``logits``, and with ``scores`` the int64 map they were read off. ``size`` is needed where the
    restorer takes any and does not tell which it was made for. A path that ends in ``.pt2`` gets the program of
    ``torch.export``, any other ONNX, which takes ``pip install 'unshift[onnx]'``. ``name`` is what the file calls the
    restorer, where it was not loaded by name.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file in it")
    wants_onnx = path.suffix.lower() != ".pt2"
    script = classifier if isinstance(classifier, torch.jit.ScriptModule) else None
    if wants_onnx:
        check_onnx()
    elif script is not None:
        raise ValueError("torch.export cannot capture a TorchScript classifier; write ONNX, or give the model itself")
    model = _loaded(restorer)
    shape = _input_shape(model, size)
    captured, names = _capture(model, shape, classifier, scores)
    called = name or ("unnamed" if isinstance(restorer, Restorer) else Path(restorer).stem)
    about = _metadata(model, called, classifier, shape)
    data = as_onnx(captured, names, about, script, shape) if wants_onnx else _as_pt2(captured, about)
    try:
        write_atomically(path, data)
    except OSError as error:
        raise ValueError(f"cannot write {path} ({error.strerror or error})") from error


def program(
    restorer: Restorer | str | Path,
    *,
    classifier: Classifier | None = None,
    size: Sequence[int] | None = None,
    scores: bool = False,
) -> ExportedProgram:
    """Capture the graph with ``torch.export``: ``program("mnist").module()(images)`` is a dictionary of its outputs.

    The arguments are those of :func:`export`.
    """
    model = _loaded(restorer)
    return _capture(model, _input_shape(model, size), classifier, scores)[0]


def _loaded(restorer: Restorer | str | Path) -> Restorer:
    """Return a restorer whose parts have a spelling as a graph."""
    model = restorer if isinstance(restorer, Restorer) else load(restorer)
    if not isinstance(model.scorer, IntegerEstimator):
        raise ValueError(f"only restorers of quantised networks can be exported, got a {type(model.scorer).__name__}")
    if not isinstance(model.coordinates, Canvas | Polar):
        raise ValueError(f"only shifts and rotations can be exported, got a {type(model.coordinates).__name__}")
    if any(buffer.device.type != "cpu" for buffer in model.buffers()):
        raise ValueError("a graph is made on the CPU, and runs anywhere: export restorer.cpu()")
    return model


def _input_shape(model: Restorer, size: Sequence[int] | None) -> tuple[int, ...]:
    """Return the channels and size of the images, or raise where ``size`` is wanted or makes no sense."""
    scorer, coordinates = model.scorer, model.coordinates
    assert isinstance(scorer, IntegerEstimator)
    if isinstance(coordinates, Polar):
        own: Sequence[int] | None = [coordinates.size] * coordinates.spatial_axes
        channels = scorer.in_channels // coordinates.channels
    else:
        assert isinstance(coordinates, Canvas)
        canvas = scorer.size or model.metadata.get("size")
        own = [n - 2 * coordinates.pad for n in canvas] if canvas else None
        channels = scorer.in_channels
    if size is None and own is None:
        raise ValueError("this restorer takes images of any size, a graph those of one: say which, as size=(32, 32)")
    chosen = tuple(size if size is not None else own or ())
    if min(chosen, default=0) < 1:
        raise ValueError(f"the images must have a positive size, got {chosen}")
    return (channels, *chosen)


def _capture(
    model: Restorer, shape: Sequence[int], classifier: Classifier | None, scores: bool
) -> tuple[ExportedProgram, list[str]]:
    """Return the program, and the names of its outputs once a TorchScript classifier has been put behind it."""
    example = torch.zeros(3, *shape, dtype=torch.float32)  # more than one: a batch of one would be taken for a constant
    dynamic = ({0: torch.export.Dim("batch")},)
    inside = None if isinstance(classifier, torch.jit.ScriptModule) else classifier
    with _evaluating(classifier), torch.no_grad(), torch.autocast("cpu", enabled=False), quiet():
        restored = model(example)  # refuses what does not fit, in the restorer's own words
        if classifier is not None:
            _try(classifier, restored)
        graph = Graph(model, shape[1:], inside, scores)
        try:
            captured = torch.export.export(graph, (example,), dynamic_shapes=dynamic, strict=False)
        except Exception as error:  # a user's own code may raise anything
            if inside is None:
                raise
            reason = first_line(error)
            if reason.startswith("Constraints violated"):
                reason = "it takes one batch size only; make it take any"
            raise ValueError(f"torch.export cannot capture this classifier: {reason}") from error
    names = graph.outputs
    if inside is not classifier:
        names.insert(len(names) - scores, "logits")
    return captured, names


def _try(classifier: Classifier, images: Tensor) -> None:
    """Run a few images through a classifier, so that a misfit shows at once and says what it is."""
    shape = tuple(images.shape)
    try:
        logits = classifier(images)
    except Exception as error:
        raise ValueError(f"the classifier cannot take images of shape {shape}: {first_line(error)}") from error
    if not isinstance(logits, Tensor) or logits.ndim < 1 or len(logits) != len(images):
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the classifier must return one row of logits per image, got {found} for images {shape}")


@contextlib.contextmanager
def _evaluating(classifier: Any) -> Iterator[None]:
    """Put the classifier in evaluation mode, and leave it as it was."""
    modules = list(classifier.modules()) if isinstance(classifier, nn.Module) else []
    training = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module, mode in zip(modules, training, strict=True):
            module.training = mode


def _metadata(model: Restorer, name: str, classifier: Any, shape: Sequence[int]) -> dict[str, str]:
    """Return what the file says of itself."""
    try:
        ours = version("unshift")
    except PackageNotFoundError:
        ours = "not installed"
    return {
        "unshift": ours,
        "restorer": name,
        "undoes": "rotation" if isinstance(model.coordinates, Polar) else "shift",
        "preset": str(model.metadata.get("preset", "custom")),
        "data": str(model.metadata.get("data", "unnamed")),
        "preparation": json.dumps(model.metadata.get("preparation", {})),
        "coordinates": json.dumps(model.coordinates.describe()),  # type: ignore[operator]
        "channels": str(shape[0]),
        "size": json.dumps(list(shape[1:])),
        "classifier": "none" if classifier is None else type(classifier).__name__,
        "promise": PROMISE,
    }


def _as_pt2(captured: ExportedProgram, about: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with quiet():
        torch.export.save(captured, buffer, extra_files={"unshift.json": json.dumps(about, indent=2)})
    return buffer.getvalue()
