"""Load the classifier of a command from any source, and try it on two images first."""

from __future__ import annotations

import os
import pkgutil
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshift.cli.errors import first_line

if TYPE_CHECKING:
    from torch import Tensor

    Classifier = Callable[[Tensor], Tensor]


def load_classifier(spec: str, device: str = "cpu") -> Classifier:
    """Return the classifier named by ``spec``: shipped, a TorchScript or ``.pt2`` file, or ``module:function``."""
    import torch

    from unshift.classifiers import load, names

    path = Path(spec)
    if spec in names():
        classifier: Any = load(spec)
    elif path.is_dir():
        raise ValueError(f"classifier {spec} is a folder; give a file")
    elif path.is_file() and path.suffix == ".pt2":
        classifier = _load_exported(path)
    elif path.is_file():
        try:
            classifier = torch.jit.load(str(path), map_location="cpu").eval()
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"classifier {path} is not a TorchScript model; write one with torch.jit.script(model).save(...), "
                "or a .pt2 with torch.export.save: a plain torch.save file has weights but no model"
            ) from error
    elif re.fullmatch(r"[\w.]+:[\w.]+", spec):
        classifier = _import(spec)
    else:
        raise ValueError(
            f"no classifier {spec!r}: neither a file, nor module:function, nor one of {', '.join(names())}"
        )
    return classifier.to(device) if isinstance(classifier, torch.nn.Module) else classifier


def adapt_images(classifier: Classifier, device: str = "cpu") -> Classifier:
    """Return a classifier that converts images to its dtype, device and, if it is a shipped one, size."""
    from unshift.data import resize
    from unshift.evaluation import in_its_dtype

    size, run = getattr(classifier, "image_size", None), in_its_dtype(classifier)
    return lambda images: run((images if size is None else resize(images, size)).to(device)).cpu()


def _load_exported(path: Path) -> Classifier:
    import torch

    try:
        program = torch.export.load(str(path))
        module = program.module()
    # The zip reader, the JSON reader and the deserialiser raise errors of many types.
    except Exception as error:
        raise ValueError(f"classifier {path} is not a torch.export program ({first_line(error)})") from error
    inputs = program.graph_signature.user_inputs
    if len(inputs) != 1:
        raise ValueError(f"classifier {path} takes {len(inputs)} inputs; give a model that takes one, the images")
    size = next(node for node in program.graph.nodes if node.name == inputs[0]).meta["val"].shape[0]
    if not isinstance(size, int):
        return module

    def run(images: Tensor) -> Tensor:
        """Call a program that was exported for one batch size: pad the last batch with copies of its last image."""
        logits = []
        for batch in images.split(size):
            padding = batch[-1:].expand(size - len(batch), *batch.shape[1:])
            logits.append(module(torch.cat([batch, padding]))[: len(batch)])
        return torch.cat(logits)

    return run


def _import(spec: str) -> Classifier:
    """Return the module named by ``module:function``: the result of the function, or the object if it is a module."""
    from torch import nn

    folder = os.getcwd()
    sys.path.insert(0, folder)  # `module` may be a file in the current folder
    try:
        value = pkgutil.resolve_name(spec)
        value = value if isinstance(value, nn.Module) else value()
    # The user's code: it may raise anything.
    except Exception as error:
        raise ValueError(f"classifier {spec} failed: {type(error).__name__}: {first_line(error)}") from error
    finally:
        sys.path.remove(folder)
    if not isinstance(value, nn.Module):
        raise ValueError(f"classifier {spec} returned a {type(value).__name__}; it must return an nn.Module")
    return value.eval()


def try_classifier(classifier: Classifier, name: str, images: Tensor, classes: int) -> None:
    """Classify ``images``. Raise a ``ValueError`` if the classifier cannot, or outputs fewer than ``classes``."""
    import torch

    shape = tuple(images.shape)
    try:
        with torch.no_grad():
            logits = classifier(images)
    except Exception as error:
        raise ValueError(
            f"classifier {name} cannot take these images, (batch, channel, height, width) = {shape}: "
            f"{first_line(error)}"
        ) from error
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or len(logits) != len(images):
        returned = f"shape {tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else f"a {type(logits).__name__}"
        raise ValueError(f"classifier {name} must return logits (batch, classes), got {returned} for images {shape}")
    if logits.shape[1] < classes:
        raise ValueError(f"classifier {name} outputs {logits.shape[1]} classes, but the data has {classes}")
