"""A user's own classifier: loaded from whatever it is, and tried on two images."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshift.cli.errors import first_line

if TYPE_CHECKING:
    from torch import Tensor


def load_classifier(spec: str) -> Callable[[Tensor], Tensor]:
    """Return the classifier that ``spec`` names: shipped, a TorchScript or ``.pt2`` file, ``module:function``."""
    from unshift.experiments.classifiers import shipped

    names = shipped()
    if spec in names:
        return names[spec]().eval()
    path = Path(spec)
    if path.is_dir():
        raise ValueError(f"classifier {spec} is a folder; give a file")
    if path.is_file():
        return _exported(path) if path.suffix == ".pt2" else _scripted(path)
    if re.fullmatch(r"[\w.]+:[\w.]+", spec):
        return _imported(*spec.split(":"))
    raise ValueError(
        f"no classifier {spec!r}: neither a file, nor module:function, nor one of {', '.join(names) or '(none)'}"
    )


def at_its_size(classifier: Callable[[Tensor], Tensor], spec: str) -> Callable[[Tensor], Tensor]:
    """Have images brought to the size that a shipped classifier takes: restorers of rotations look at larger ones."""
    from unshift.data import resize
    from unshift.evaluation import in_its_dtype
    from unshift.experiments.classifiers import RECIPES

    classifier = in_its_dtype(classifier)
    size = dict(RECIPES[spec].preparation).get("resize") if spec in RECIPES else None
    return classifier if size is None else lambda images: classifier(resize(images, (size[0], size[1])))


def _scripted(path: Path) -> Callable[[Tensor], Tensor]:
    import torch

    try:
        model: Callable[[Tensor], Tensor] = torch.jit.load(str(path), map_location="cpu").eval()
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"classifier {path} is not a TorchScript model; write one with torch.jit.script(model).save(...), "
            "or a .pt2 with torch.export.save: a plain torch.save file has weights but no model"
        ) from error
    return model


def _exported(path: Path) -> Callable[[Tensor], Tensor]:
    import torch

    try:
        program = torch.export.load(str(path))
        module = program.module()
    # Whatever the zip reader, the JSON reader or the deserialiser stumbles on.
    except Exception as error:
        raise ValueError(f"classifier {path} is not a torch.export program ({first_line(error)})") from error
    inputs = program.graph_signature.user_inputs
    node = next((node for node in program.graph.nodes if [node.name] == list(inputs)), None)
    if node is None:
        raise ValueError(f"classifier {path} takes {len(inputs)} inputs; give a model that takes one, the images")
    batch = node.meta["val"].shape[0]
    return _in_batches_of(module, batch) if isinstance(batch, int) else module


def _in_batches_of(module: Callable[[Tensor], Tensor], size: int) -> Callable[[Tensor], Tensor]:
    """Feed a program that was exported for one batch size: in parts, the last filled up with its last image."""
    import torch

    def run(images: Tensor) -> Tensor:
        parts = []
        for part in images.split(size):
            missing = part[-1:].expand(size - len(part), *part.shape[1:])
            parts.append(module(torch.cat([part, missing]))[: len(part)])
        return torch.cat(parts)

    return run


def _imported(module: str, function: str) -> Callable[[Tensor], Tensor]:
    from torch import nn

    spec = f"{module}:{function}"
    with _current_folder_importable():
        try:
            found: Any = import_module(module)
        # The user's own code: it may raise anything.
        except Exception as error:
            raise ValueError(f"classifier {spec}: cannot import {module} ({first_line(error)})") from error
        try:
            for name in function.split("."):
                found = getattr(found, name)
        except AttributeError as error:
            raise ValueError(f"classifier {spec}: {first_line(error)}") from error
        if not isinstance(found, nn.Module):
            if not callable(found):
                raise ValueError(f"classifier {spec} is a {type(found).__name__}, not a function")
            try:
                found = found()
            except Exception as error:
                raise ValueError(f"classifier {spec}() failed ({first_line(error)})") from error
    if not isinstance(found, nn.Module):
        raise ValueError(f"classifier {spec}() returned a {type(found).__name__}; it must return an nn.Module")
    return found.eval()


@contextlib.contextmanager
def _current_folder_importable() -> Iterator[None]:
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


class OneSize:
    """Refuses, as soon as one is read, images of another size than the first: a classifier gets them in batches."""

    def __init__(self, classifier: str) -> None:
        self.classifier = classifier
        self._shape: tuple[int, ...] = ()

    def __call__(self, images: Tensor) -> Tensor:
        """Look at images, and pass them on."""
        shape = tuple(images.shape[1:])
        self._shape = self._shape or shape
        if shape != self._shape:
            sizes = " and ".join("x".join(map(str, size[1:])) for size in (self._shape, shape))
            raise ValueError(
                f"classifier {self.classifier} is shown images of one size, and these are of several, {sizes}: "
                "give one with --size HxW, or leave --classifier out"
            )
        return images


def try_classifier(classifier: Callable[[Tensor], Tensor], name: str, images: Tensor, classes: int) -> None:
    """Run two images through a classifier, so that a misfit shows at once and says what it is."""
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
    if not isinstance(logits, torch.Tensor):
        raise ValueError(f"classifier {name} must return logits (batch, classes), got a {type(logits).__name__}")
    if logits.ndim != 2 or len(logits) != len(images):
        raise ValueError(
            f"classifier {name} must return logits (batch, classes), got shape {tuple(logits.shape)} for {shape}"
        )
    if logits.shape[1] < classes:
        raise ValueError(f"classifier {name} tells {logits.shape[1]} classes apart, the data has {classes}")
