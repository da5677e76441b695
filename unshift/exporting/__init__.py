"""Export: one graph from shifted image to restored image, shift and confidence, and to logits with a classifier.

    unshift.export("mnist", "mnist.onnx", classifier=model)

The graph is one ``nn.Module`` (:class:`Graph`) around the restorer itself, which ``torch.export`` captures once for
both formats: the integers, the tie rule and the confidence are those of :mod:`unshift.exact`, in operations that every
runtime has. Written with ``onnx.helper`` instead, it would neither take a classifier nor make a ``.pt2``.

What is promised, and what is not, is in ``docs/export.md`` and, in short, in the file itself.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from unshift import __version__
from unshift.evaluation import in_its_dtype
from unshift.exact import IntegerEstimator, score_map
from unshift.exact.filters import IntegerFilter
from unshift.exact.task import FLOAT32
from unshift.exporting.onnx_file import OPSET, as_onnx, check_onnx, first_line, quiet
from unshift.restorer import Chain, Restorer
from unshift.weights import image_shape, load, write_atomically

__all__ = ["OPSET", "PROMISE", "Graph", "export", "program"]

PROMISE = (
    "For every finite float32 image, shift, tied, confidence, angle and scores are those of unshift in PyTorch, and "
    "restored is the same bit for bit, in any batch. Logits are the classifier's on that image, up to rounding. Where "
    "an image holds NaN or infinity, confidence is NaN and the rest means nothing."
)
"""What every file says of itself."""

Classifier = Callable[[Tensor], Tensor]


class Graph(nn.Module):
    """Images to a dictionary of ``restored``, ``shift``, ``confidence``, ``tied`` and what else was asked for."""

    def __init__(self, restorer: Restorer | Chain, classifier: Classifier | None, scores: bool) -> None:
        super().__init__()
        self.restorer, self.classifier, self.scores = restorer, classifier, scores
        reads = restorer.coordinates.reads
        wanted = {
            "turn": "turn" in reads,
            "angle": "angle" in reads,
            "logits": classifier is not None,
            "scores": scores,
            "doubtful": restorer.min_confidence > 0,
        }
        self.outputs = ["restored", "shift", "confidence", "tied", *(name for name, given in wanted.items() if given)]

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Estimate, undo and, with a classifier, classify."""
        estimate, scores = self.restorer.read(images, images)
        estimate = self.restorer.doubted(estimate)
        found: dict[str, Any] = {**estimate._asdict(), "scores": score_map(scores)}
        found["restored"] = self.restorer.undo(images, estimate)
        if self.classifier is not None:
            found["logits"] = in_its_dtype(self.classifier)(found["restored"].clone())  # it may work in place
        return {name: found[name] for name in self.outputs}


def export(
    restorer: Restorer | Chain | str | Path,
    path: str | Path,
    *,
    classifier: Classifier | None = None,
    size: Sequence[int] | None = None,
    scores: bool = False,
    name: str | None = None,
) -> None:
    """Write ``restorer``, and ``classifier`` behind it, to one self-contained file: ONNX, or ``.pt2``.

    The graph's input is ``images``, float32 ``(batch, channel, *size)``, any batch; its outputs are ``restored``,
    ``shift``, ``confidence``, ``tied`` and, where the restorer reads them, ``turn`` and ``angle``.

    Args:
        restorer: A restorer, or what :func:`unshift.load` takes.
        path: A path that ends in ``.pt2`` gets the program of ``torch.export``, one that ends in ``.onnx`` ONNX, which
            takes ``pip install 'unshift[onnx]'``.
        classifier: Put behind it; its logits are one more output.
        size: The images' size, where the restorer takes any. Default: that of the images it was trained on.
        scores: Whether the int64 map they were read off is one more output.
        name: What the file calls the restorer, where it was not loaded by name.

    Raises:
        ValueError: If the restorer or the classifier cannot be captured, or the file cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file in it")
    kind = path.suffix.lower()
    if kind not in (".onnx", ".pt2"):
        raise ValueError(f"a graph is written as .onnx or .pt2 (torch.export), by the name's ending; got {path.name}")
    wants_onnx = kind == ".onnx"
    script = classifier if isinstance(classifier, torch.jit.ScriptModule) else None
    if wants_onnx:
        check_onnx()
    elif script is not None:
        raise ValueError("torch.export cannot capture a TorchScript classifier; write ONNX, or give the model itself")
    model = _loaded(restorer)
    shape = _input_shape(model, size)
    captured, names, restored = _capture(model, shape, classifier, scores)
    called = name or ("unnamed" if isinstance(restorer, nn.Module) else Path(restorer).stem)
    about = _metadata(model, called, classifier, shape)
    data = as_onnx(captured, names, about, script, restored) if wants_onnx else _as_pt2(captured, about)
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
    """Capture the graph with ``torch.export``: ``program("mnist").module()(images)`` is a dictionary of its outputs.

    The arguments are those of :func:`export`.
    """
    model = _loaded(restorer)
    return _capture(model, _input_shape(model, size), classifier, scores)[0]


def _loaded(restorer: Restorer | Chain | str | Path) -> Restorer | Chain:
    """Return a restorer that can become a graph."""
    model = restorer if isinstance(restorer, Restorer | Chain) else load(restorer)
    for stage in model.stages:
        if not isinstance(stage.scorer, IntegerEstimator):
            raise ValueError(
                f"only restorers of quantised networks can be exported, got a {type(stage.scorer).__name__}"
            )
        worst = max(layer.worst for layer in stage.scorer.modules() if isinstance(layer, IntegerFilter))
        if worst >= FLOAT32:
            raise ValueError(
                f"this network's sums reach {worst:.0f}; they must stay below 2^24, the most that a graph holds: "
                "quantise it with sum_bits=24"
            )
    if any(buffer.device.type != "cpu" for buffer in model.buffers()):
        raise ValueError("a graph is made on the CPU, and runs anywhere: export restorer.cpu()")
    return model


def _input_shape(model: Restorer | Chain, size: Sequence[int] | None) -> tuple[int, ...]:
    """Return the channels and size of the images, or raise where ``size`` is wanted or makes no sense."""
    channels, chosen = image_shape(model, size)
    if chosen is None:
        raise ValueError("this restorer takes images of any size, a graph those of one: say which, as size=(32, 32)")
    if min(chosen, default=0) < 1:
        raise ValueError(f"the images must have a positive size, got {chosen}")
    return (channels, *chosen)


def _capture(
    model: Restorer | Chain, shape: Sequence[int], classifier: Classifier | None, scores: bool
) -> tuple[ExportedProgram, list[str], tuple[int, ...]]:
    """Return the program, the names of its outputs once a TorchScript classifier is behind it, and what that sees."""
    example = torch.zeros(3, *shape, dtype=torch.float32)  # more than one: a batch of one would be taken for a constant
    dynamic = ({0: torch.export.Dim("batch")},)
    inside = None if isinstance(classifier, torch.jit.ScriptModule) else classifier
    with _evaluating(classifier), torch.no_grad(), torch.autocast("cpu", enabled=False), quiet():
        restored = model.undo(example, model.read(example, example)[0])  # refuses what does not fit
        if classifier is not None:
            _try(in_its_dtype(classifier), restored)
        graph = Graph(model, inside, scores)
        try:
            captured = torch.export.export(graph, (example,), dynamic_shapes=dynamic, strict=False)
        except Exception as error:  # a user's own code may raise anything
            if inside is None:
                raise
            reason = first_line(error)
            if reason.startswith("Constraints violated"):
                reason = "it takes one batch size only; make it take any"
            raise ValueError(f"torch.export cannot capture this classifier: {reason}") from error
    names = list(graph.outputs)
    if inside is not classifier:
        names.insert(len(names) - scores, "logits")
    return captured, names, tuple(restored.shape[1:])


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


def _metadata(model: Restorer | Chain, name: str, classifier: Any, shape: Sequence[int]) -> dict[str, str]:
    """Return what the file says of itself."""
    return {
        "unshift": __version__,
        "restorer": name,
        "undoes": model.coordinates.undoes,
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
    with quiet():
        torch.export.save(captured, buffer, extra_files={"unshift.json": json.dumps(about, indent=2)})
    return buffer.getvalue()
