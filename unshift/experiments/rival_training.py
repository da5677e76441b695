"""The rivals that have to be trained, with labels: a spatial transformer, and classifiers that learn to bear shifts.

What was trained is kept in the data folder, with its recipe; a run that finds it there trains nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.nn import functional as F

from unshift.coordinates import draw_shifts
from unshift.data import dataset, prepare, root, to_float
from unshift.experiments.classifiers import shipped
from unshift.experiments.invariant_nets import BlurredResNet20, PolyphaseResNet20
from unshift.progress import tracked
from unshift.shifts import apply
from unshift.weights import write_atomically

__all__ = ["RECIPES", "SpatialTransformer", "shift_smoothly", "trained_rival"]


def shift_smoothly(images: Tensor, shift: Tensor) -> Tensor:
    """Shift images back circularly by any number of pixels, linear between them: a gradient reaches ``shift``."""
    for axis in (2, 3):
        n = images.shape[axis]
        whole = shift[:, axis - 2].floor()
        rest = (shift[:, axis - 2] - whole).view(-1, 1, 1, 1)
        at = (torch.arange(n) + whole.long()[:, None]) % n
        shape = [len(images), 1, 1, 1]
        shape[axis] = n
        near, far = (images.gather(axis, rows.view(shape).expand_as(images)) for rows in (at, (at + 1) % n))
        images = (1 - rest) * near + rest * far
    return images


class SpatialTransformer(nn.Module):
    """Says how far an image was shifted, as an angle along each axis, and shifts it back (Jaderberg 2015).

    It is the original's translation alone, on axes that go round, and starts from no shift at all.
    """

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.localise = nn.Sequential(
            nn.Conv2d(channels, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 64, 64),
            nn.ReLU(),
            nn.Linear(64, 4),
        )
        last: Any = self.localise[-1]
        nn.init.zeros_(last.weight)
        last.bias.data = torch.tensor([1.0, 0.0, 1.0, 0.0])

    def forward(self, images: Tensor) -> Tensor:
        """Return the images, shifted back."""
        cosine, sine = self.localise(images).view(-1, 2, 2).unbind(2)
        return shift_smoothly(images, torch.atan2(sine, cosine) * images.shape[-1] / (2 * torch.pi))


@dataclass(frozen=True)
class Recipe:
    """How a rival is trained: what starts from which shipped classifier, and what it learns from."""

    start: str
    """a shipped classifier: what is trained has its weights, or stands before it"""
    data: str
    size: int | None = None
    epochs: float = 1.0
    learning_rate: float = 0.003
    shifts: bool = False
    flips: bool = False
    batch_size: int = 128
    seed: int = 0


RECIPES = {
    "transformer": Recipe("lenet5-mnist", "mnist", 32, epochs=4, shifts=True),
    "lenet5-shifts": Recipe("lenet5-mnist", "mnist", 32, epochs=4, shifts=True),
    "resnet20-longer": Recipe("resnet20-cifar10-plain", "cifar10", epochs=0.25, flips=True),
    "resnet20-shifts": Recipe("resnet20-cifar10-plain", "cifar10", epochs=0.25, flips=True, shifts=True),
    "resnet20-polyphase": Recipe("resnet20-cifar10-plain", "cifar10", epochs=0.25, flips=True),
    "resnet20-blurred": Recipe("resnet20-cifar10-plain", "cifar10", epochs=0.25, flips=True),
}
"""Each starts from a shipped classifier and is trained on, all of a kind for equally long."""


def _built(name: str) -> tuple[nn.Module, nn.Module]:
    """Return what is trained, and the whole of it: the former, or the former before a frozen classifier."""
    start = shipped()[RECIPES[name].start]()
    if name == "transformer":
        transformer = SpatialTransformer()
        return transformer, nn.Sequential(transformer, start.requires_grad_(False))
    kinds: dict[str, Callable[[], nn.Module]] = {
        "resnet20-polyphase": PolyphaseResNet20,
        "resnet20-blurred": BlurredResNet20,
    }
    if name not in kinds:
        return start, start
    model = kinds[name]()  # parameter for parameter, and in the same order, that of the plain one
    model.load_state_dict(dict(zip(model.state_dict(), start.state_dict().values(), strict=True)))
    return model, model


def trained_rival(name: str, *, quick: bool = False, progress: bool = True) -> nn.Module:
    """Return a rival, trained unless it was before.

    Args:
        name: One of :data:`RECIPES`.
        quick: Do not train it at all: a look, not a result.
        progress: Whether a training shows a progress bar.

    Returns:
        A classifier, in evaluation mode.
    """
    recipe = RECIPES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        part, whole = _built(name)
    if quick:
        return whole.eval()
    digest = hashlib.sha256(json.dumps(asdict(recipe)).encode()).hexdigest()[:12]
    path = root() / "rivals" / f"{name}-{digest}.safetensors"
    if path.exists():
        part.load_state_dict(load_file(path))
        return whole.eval()
    _train(recipe, part, whole, f"train {name}", progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_bytes({key: tensor.contiguous() for key, tensor in part.state_dict().items()}))
    return whole.eval()


def _train(recipe: Recipe, part: nn.Module, whole: nn.Module, title: str, progress: bool) -> None:
    train = dataset(recipe.data, "train")
    assert train.labels is not None
    images = prepare(train.images, {"resize": [recipe.size] * 2} if recipe.size else {})
    generator = torch.Generator().manual_seed(recipe.seed)
    optimizer = torch.optim.AdamW(part.parameters(), recipe.learning_rate, weight_decay=0.01)
    steps = round(recipe.epochs * len(images) / recipe.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.learning_rate, total_steps=steps)
    whole.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    part.train()
    order = torch.cat([torch.randperm(len(images), generator=generator) for _ in range(int(recipe.epochs) + 1)])
    for step in tracked(range(steps), title, "batches", progress):
        rows = order[step * recipe.batch_size : (step + 1) * recipe.batch_size]
        batch = to_float(images[rows])
        if recipe.flips:
            flipped = torch.rand(len(batch), 1, 1, 1, generator=generator) < 0.5
            batch = torch.where(flipped, batch.flip(-1), batch)
        if recipe.shifts:
            batch = apply(batch, draw_shifts((batch.shape[2], batch.shape[3]), len(batch), None, generator))
        loss = F.cross_entropy(whole(batch), train.labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
