"""The classifiers that the experiments put behind a restorer: their recipes, training and weights.

``python -m unshift.experiments.classifiers NAME…`` trains them, on the full training set less a part held out to
say how good each is. The small ones come with the package; the others are kept in the data folder, and
``unshift reproduce`` trains what it does not find there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import nn

from unshift.data import dataset, prepare, root, to_float
from unshift.evaluation import accuracy
from unshift.experiments.architectures import ARCHITECTURES
from unshift.experiments.classifier_training import Recipe, train_classifier
from unshift.weights import write_atomically

__all__ = ["RECIPES", "load_classifier", "make", "obtain", "save_classifier", "shipped"]


def _cifar(architecture: str, small_epochs: float, epochs: float, **changes: Any) -> Recipe:
    """Padded by 4 to 40x40, flips, no translation: one pass of the data is minutes to hours on a CPU."""
    recipe = Recipe(
        architecture,
        "cifar10",
        (("pad", 4),),
        epochs,
        small_epochs,
        batch_size=64,
        optimizer="sgd",
        learning_rate=0.05,
        weight_decay=5e-4,
        flips=True,
    )
    return replace(recipe, **changes)


_GREY = (("resize", [32, 32]),)
_PLAIN: dict[str, Any] = {"preparation": (), "learning_rate": 0.1}
RECIPES = {
    "lenet5-mnist": Recipe("lenet5", "mnist", _GREY),
    "lenet5-mnist-augmented": Recipe("lenet5", "mnist", _GREY, scope=3),
    "lenet5-mnist-shifts": Recipe("lenet5", "mnist", _GREY, scope=16),
    "lenet5-fashion-mnist": Recipe("lenet5", "fashion-mnist", _GREY),
    "lenet5-fashion-mnist-augmented": Recipe("lenet5", "fashion-mnist", _GREY, scope=3),
    "vgg16-cifar10": _cifar("vgg16", 0, 8, window=32, batch_size=128, learning_rate=0.1, bfloat16=True),
    "resnet18-cifar10": _cifar("resnet18", 2, 0.4),
    "mobilenet-v2-cifar10": _cifar("mobilenet-v2", 0, 9, window=32, batch_size=128, learning_rate=0.1),
    "densenet121-cifar10": _cifar("densenet121", 0.6, 0.12),
    "resnet20-cifar10-plain": _cifar("resnet20", 6, 2, **_PLAIN),
    # What has to be trained to bear shifts, trained like the plain one.
    "resnet20-cifar10-shifts": _cifar("resnet20", 6, 2, **_PLAIN, scope=16),
    "resnet20-cifar10-polyphase": _cifar("resnet20-polyphase", 6, 2, **_PLAIN),
    "resnet20-cifar10-blurred": _cifar("resnet20-blurred", 6, 2, **_PLAIN),
    "voxels3d-mnist3d": Recipe("voxels3d", "mnist3d", epochs=12),
}
"""Name to recipe. The CIFAR-10 nets take 15 to 50 minutes each on two idle cores; ``--budget`` multiplies that."""

_HELD_OUT = {"mnist3d": 500}
"""Training images that say how good a classifier is; 5,000 of any other data set."""


def full(recipe: Recipe) -> Recipe:
    """Return the recipe to run where there is a GPU: 200 epochs at full size."""
    rate = 0.1 if recipe.optimizer == "sgd" else recipe.learning_rate
    return replace(recipe, epochs=200.0, small_epochs=0.0, batch_size=128, learning_rate=rate)


def _scaled(name: str, recipe: str, budget: float) -> Recipe:
    chosen = full(RECIPES[name]) if recipe == "full" else RECIPES[name]
    return replace(chosen, epochs=chosen.epochs * budget, small_epochs=chosen.small_epochs * budget)


def save_classifier(model: nn.Module, path: Path, metadata: dict[str, object]) -> None:
    """Write weights and what is known of them to one safetensors file; ``metadata`` names the architecture."""
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(path, to_bytes(tensors, {"classifier": json.dumps(metadata)}))


def load_classifier(path: Path) -> nn.Module:
    """Read a classifier that :func:`save_classifier` wrote; what is known of it is in its ``about``."""
    with safe_open(str(path), framework="pt") as file:
        metadata = json.loads((file.metadata() or {}).get("classifier", "{}"))
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if metadata.get("architecture") not in ARCHITECTURES:
        raise ValueError(f"{path}: not a classifier of the experiments")
    model = ARCHITECTURES[metadata["architecture"]]()
    model.load_state_dict(tensors)
    model.about = metadata
    return model.eval()


def shipped() -> dict[str, Callable[[], nn.Module]]:
    """Return the classifiers that come with the package: name to a function that loads it."""
    folder = Path(str(resources.files("unshift"))) / "experiments" / "weights"
    return {path.stem: partial(load_classifier, path) for path in sorted(folder.glob("*.safetensors"))}


def make(
    name: str, folder: Path, *, recipe: str = "cpu", budget: float = 1.0, device: str = "cpu", progress: bool = True
) -> nn.Module:
    """Train a classifier on its full training set, less a part held out; a killed run goes on.

    Args:
        name: One of :data:`RECIPES`.
        folder: Where its weights go, and its checkpoint until then.
        recipe: "cpu", or "full" for 200 epochs on a GPU.
        budget: Multiplies the epochs.
        device: Where to train.
        progress: Whether to show a progress bar.

    Returns:
        The classifier; its ``about`` says how it was made, and its accuracy on the part held out.
    """
    chosen = _scaled(name, recipe, budget)
    preparation = dict(chosen.preparation)
    train, held_out = dataset(chosen.data, "train"), _HELD_OUT.get(chosen.data, 5000)
    assert train.labels is not None
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(chosen.seed))
    held, kept = order[:held_out], order[held_out:]
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / f"{name}.checkpoint"
    started = time.monotonic()
    model = train_classifier(
        chosen,
        prepare(train.images[kept], preparation),
        train.labels[kept],
        checkpoint=checkpoint,
        device=device,
        progress=progress,
    )
    seconds = time.monotonic() - started
    metadata: dict[str, object] = {
        **asdict(chosen),
        "recipe": recipe,
        "budget": budget,
        "parameters": sum(p.numel() for p in model.parameters()),
        "train_images": len(kept),
        "validation_images": len(held),
        "validation_accuracy": accuracy(
            model, to_float(prepare(train.images[held], preparation)), train.labels[held], batch_size=100
        ),
        "seconds_of_last_run": round(seconds, 1),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    save_classifier(model, folder / f"{name}.safetensors", metadata)
    checkpoint.unlink(missing_ok=True)
    return load_classifier(folder / f"{name}.safetensors")


def obtain(name: str, *, progress: bool = True) -> nn.Module:
    """Return a classifier: shipped, or trained before, or else trained now into the data folder.

    Args:
        name: One of :data:`RECIPES`.
        progress: Whether a training shows a progress bar.

    Returns:
        The classifier, with an ``about``.

    Raises:
        ValueError: If the one in the data folder was made by another recipe.
    """
    if name in shipped():
        return shipped()[name]()
    folder = root() / "classifiers"
    path = folder / f"{name}.safetensors"
    if not path.exists():
        return make(name, folder, progress=progress)
    model = load_classifier(path)
    told: Any = model.about
    about = {**asdict(Recipe("")), **told}  # a file may be older than a field of recipes
    asked = json.loads(json.dumps(asdict(_scaled(name, about.get("recipe", "cpu"), about.get("budget", 1.0)))))
    if any(about.get(key) != value for key, value in asked.items()):
        raise ValueError(f"{path} was trained by another recipe than that of {name}; delete it to train again")
    return model


def main() -> None:
    """Train the classifiers named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=list(RECIPES))
    parser.add_argument("--out", type=Path, default=root() / "classifiers")
    parser.add_argument("--budget", type=float, default=1.0, help="multiply the epochs of the recipe")
    parser.add_argument("--recipe", choices=["cpu", "full"], default="cpu", help="full: 200 epochs, for a GPU")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="CPU threads; results differ in the last bits between counts")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    for name in arguments.names:
        model = make(name, arguments.out, recipe=arguments.recipe, budget=arguments.budget, device=arguments.device)
        about: Any = model.about
        print(name, json.dumps({key: about[key] for key in ("validation_accuracy", "seconds_of_last_run")}), flush=True)


if __name__ == "__main__":
    main()
