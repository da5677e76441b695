"""The classifiers that the experiments put behind a restorer: their recipes, training and weights.

``python -m unshift.experiments.classifiers NAME…`` trains them, on the full training set less a part held out to
say how good each is. The small ones come with the package; the others are kept in the data folder, and
``unshift reproduce`` trains what it does not find there.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm

from unshift.checkpoint import Checkpoint
from unshift.data import dataset, prepare, root, to_float
from unshift.evaluation import accuracy, random_shifts
from unshift.experiments.architectures import ARCHITECTURES
from unshift.shifts import apply
from unshift.weights import write_atomically

__all__ = ["RECIPES", "Recipe", "load_classifier", "make", "obtain", "save_classifier", "shipped", "train_classifier"]


@dataclass(frozen=True)
class Recipe:
    """How a classifier is trained. ``small_epochs`` run first, on images at half size, a quarter of the work."""

    architecture: str
    data: str = ""
    preparation: tuple[tuple[str, Any], ...] = ()
    epochs: float = 15.0
    small_epochs: float = 0.0
    batch_size: int = 128
    optimizer: str = "adamw"
    learning_rate: float = 0.003
    weight_decay: float = 0.01
    flips: bool = False
    scope: int = 0
    """translation augmentation: each image rolled by up to this many pixels; 0 is none"""
    seed: int = 0


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
RECIPES = {
    "lenet5-mnist": Recipe("lenet5", "mnist", _GREY),
    "lenet5-mnist-augmented": Recipe("lenet5", "mnist", _GREY, scope=3),
    "lenet5-fashion-mnist": Recipe("lenet5", "fashion-mnist", _GREY),
    "lenet5-fashion-mnist-augmented": Recipe("lenet5", "fashion-mnist", _GREY, scope=3),
    "vgg16-cifar10": _cifar("vgg16", 1.8, 0.3),
    "resnet18-cifar10": _cifar("resnet18", 2, 0.4),
    "mobilenet-v2-cifar10": _cifar("mobilenet-v2", 2, 0.3),
    "vgg16-cifar10-augmented": _cifar("vgg16", 1.8, 0.3, scope=4),
    "densenet121-cifar10": _cifar("densenet121", 0.6, 0.12),
    "resnet20-cifar10-plain": _cifar("resnet20", 6, 2, preparation=(), learning_rate=0.1),
}
"""Name to recipe. The CIFAR-10 nets take 15 to 40 minutes each on two idle cores; ``--budget`` multiplies that."""

_HELD_OUT = 5000


def full(recipe: Recipe) -> Recipe:
    """Return the recipe to run where there is a GPU: 200 epochs at full size."""
    rate = 0.1 if recipe.optimizer == "sgd" else recipe.learning_rate
    return replace(recipe, epochs=200.0, small_epochs=0.0, batch_size=128, learning_rate=rate)


def _scaled(name: str, recipe: str, budget: float) -> Recipe:
    chosen = full(RECIPES[name]) if recipe == "full" else RECIPES[name]
    return replace(chosen, epochs=chosen.epochs * budget, small_epochs=chosen.small_epochs * budget)


class _Run:
    """The state of a training, as :class:`unshift.checkpoint.Checkpoint` saves it, and the loop that moves it on."""

    def __init__(self, recipe: Recipe, images: Tensor, device: str) -> None:
        self.recipe, self.device = recipe, device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.estimator = ARCHITECTURES[recipe.architecture]().to(device)
        if images.ndim == 4:
            self.estimator = self.estimator.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        per_epoch = math.ceil(len(images) / recipe.batch_size)
        self.small_steps = round(recipe.small_epochs * per_epoch)
        self.total_steps = max(2, self.small_steps + round(recipe.epochs * per_epoch))
        self.optimizer: torch.optim.Optimizer
        if recipe.optimizer == "sgd":
            self.optimizer = torch.optim.SGD(
                self.estimator.parameters(),
                lr=recipe.learning_rate,
                momentum=0.9,
                nesterov=True,
                weight_decay=recipe.weight_decay,
            )
        else:
            self.optimizer = torch.optim.AdamW(
                self.estimator.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
            )
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, recipe.learning_rate, total_steps=self.total_steps, cycle_momentum=recipe.optimizer != "sgd"
        )
        self.best: dict[str, Tensor] = {}  # the last weights are the ones
        self.epoch = self.step = self.stale = 0
        self.loss_sum = 0.0
        self.best_loss = math.inf
        self.history: list[dict[str, float]] = []

    def batches(self, images: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield what each remaining step learns from; a step's batch follows from seed and step alone."""
        recipe, size = self.recipe, self.recipe.batch_size
        per_epoch = math.ceil(len(images) / size)
        order, drawn_for = torch.empty(0), -1
        while self.step < self.total_steps:
            epoch, at = divmod(self.step, per_epoch)
            if epoch != drawn_for:
                order = torch.randperm(len(images), generator=torch.Generator().manual_seed(recipe.seed * 1009 + epoch))
                drawn_for = epoch
            rows = order[at * size : (at + 1) * size]
            batch = to_float(images[rows])
            if self.step < self.small_steps:
                batch = F.avg_pool2d(batch, 2)
            if recipe.flips:
                generator = torch.Generator().manual_seed(recipe.seed * 7919 + self.step)
                flipped = torch.rand(len(batch), 1, 1, 1, generator=generator) < 0.5
                batch = torch.where(flipped, batch.flip(-1), batch)
            if recipe.scope:
                scope = math.ceil(recipe.scope / 2) if self.step < self.small_steps else recipe.scope
                batch = apply(batch, random_shifts(len(batch), batch.ndim - 2, scope, recipe.seed * 7919 + self.step))
            yield batch.to(self.device), labels[rows].to(self.device)

    def train(self, images: Tensor, labels: Tensor, store: Checkpoint | None, progress: bool) -> None:
        """Go on from wherever the state stands to the end."""
        self.estimator.train()
        bar = tqdm(
            total=self.total_steps,
            initial=self.step,
            desc=f"train {self.recipe.architecture}",
            unit="batch",
            disable=None if progress else True,
        )
        with bar:
            for batch, truth in self.batches(images, labels):
                loss = F.cross_entropy(self.estimator(batch), truth)
                value = float(loss.detach())
                if not math.isfinite(value):
                    raise ValueError(f"the loss became {value} at step {self.step}: lower the learning rate")
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                self.step += 1
                self.loss_sum += value
                if self.step % 100 == 0 or self.step == self.total_steps:
                    steps = self.step % 100 or 100
                    self.history.append({"step": self.step, "loss": round(self.loss_sum / steps, 4)})
                    self.loss_sum = 0.0
                    bar.set_postfix(loss=self.history[-1]["loss"])
                bar.update()
                if store:
                    store.save_sometimes(self)


def train_classifier(
    recipe: Recipe,
    images: Tensor,
    labels: Tensor,
    *,
    checkpoint: Path | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> nn.Module:
    """Train by ``recipe`` on prepared images; with ``checkpoint``, a killed run goes on from there.

    The checkpoint stays: the caller removes it once the weights are safe.
    """
    run = _Run(recipe, images, device)
    store = Checkpoint(checkpoint, {**asdict(recipe), "images": len(images)}, every_seconds=120) if checkpoint else None
    if store:
        store.restore(run)
    run.train(images, labels, store, progress)
    trained: nn.Module = run.estimator.cpu().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return trained.eval()


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
    name: str,
    folder: Path,
    *,
    recipe: str = "cpu",
    budget: float = 1.0,
    device: str = "cpu",
    progress: bool = True,
) -> nn.Module:
    """Train classifier ``name`` on its full training set, save it in ``folder`` and return it; goes on after a kill."""
    chosen = _scaled(name, recipe, budget)
    preparation = dict(chosen.preparation)
    train = dataset(chosen.data, "train")
    assert train.labels is not None
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(chosen.seed))
    held, kept = order[:_HELD_OUT], order[_HELD_OUT:]
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
    """Return classifier ``name``: shipped, or trained before, or else trained now into the data folder."""
    if name in shipped():
        return shipped()[name]()
    folder = root() / "classifiers"
    path = folder / f"{name}.safetensors"
    if not path.exists():
        return make(name, folder, progress=progress)
    model = load_classifier(path)
    about: Any = model.about
    asked = json.loads(json.dumps(asdict(_scaled(name, about.get("recipe", "cpu"), about.get("budget", 1.0)))))
    if any(about.get(key) != value for key, value in asked.items()):
        raise ValueError(f"{path} was trained by another recipe than {name} has now; remove it to train anew")
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
