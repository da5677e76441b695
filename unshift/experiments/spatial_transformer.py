"""A rival that has to be trained, with labels: a spatial transformer before a frozen classifier.

What was trained is kept in the data folder, under a name that its recipe makes; a run that finds it there trains
nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torch.nn import functional as F

from unshift.checkpoint import Checkpoint, State
from unshift.coordinates import draw_shifts
from unshift.data import dataset, prepare, root, to_float
from unshift.experiments.classifiers import shipped
from unshift.progress import Progress
from unshift.shifts import apply
from unshift.weights import write_atomically

__all__ = ["RECIPES", "SpatialTransformer", "shift_smoothly", "trained_transformer"]


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

    def __init__(self, channels: int = 1, size: int = 32) -> None:
        super().__init__()
        self.localise = nn.Sequential(
            nn.Conv2d(channels, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * (size // 4) ** 2, 64),
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
    """How a spatial transformer is trained: before which shipped classifier, frozen, and from how much."""

    through: str
    data: str
    preparation: tuple[tuple[str, Any], ...]
    channels: int
    size: int
    images: int
    """of the training set, the first of them"""
    epochs: int
    learning_rate: float = 0.003
    batch_size: int = 128
    seed: int = 0


RECIPES = {
    "mnist": Recipe("lenet5-mnist", "mnist", (("resize", [32, 32]),), 1, 32, images=60_000, epochs=4),
    # It learns before a small net, on all photos, and then stands before a large one: through that one and back, a
    # step takes ten times as long.
    "cifar10-padded": Recipe(
        "resnet20-cifar10-plain",
        "cifar10",
        (("pad", 4),),
        3,
        40,
        images=50_000,
        epochs=1,
        learning_rate=0.001,
        batch_size=64,
    ),
}
"""Case of the rivals' table to recipe."""


class _Run:
    """The state of a training: every step's batch follows from the seed and the step alone."""

    def __init__(self, recipe: Recipe, transformer: SpatialTransformer, count: int) -> None:
        self.recipe, self.transformer, self.step = recipe, transformer, 0
        self.per_epoch = math.ceil(count / recipe.batch_size)
        self.optimizer = torch.optim.AdamW(transformer.parameters(), recipe.learning_rate, weight_decay=0.01)
        self.total = recipe.epochs * self.per_epoch
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, recipe.learning_rate, total_steps=self.total
        )

    def state(self) -> State:
        """Return all that the run needs to go on, for a checkpoint."""
        return State.of(self.transformer, self.optimizer, self.schedule, {"step": self.step})

    def resume(self, state: State) -> None:
        """Go back to where ``state`` was taken."""
        state.into(self.transformer, self.optimizer, self.schedule)
        self.step = state.counters["step"]

    def train(self, classifier: nn.Module, images: Tensor, labels: Tensor, store: Checkpoint, progress: bool) -> None:
        """Go on from wherever the state stands to the end."""
        recipe, size, told_loss = self.recipe, tuple(images.shape[2:]), 0.0
        with Progress("train a spatial transformer", self.total, "batches", progress, self.step) as told:
            while self.step < self.total:
                epoch, at = divmod(self.step, self.per_epoch)
                shuffled = torch.Generator().manual_seed(recipe.seed * 1009 + epoch)
                order = torch.randperm(len(images), generator=shuffled)
                rows = order[at * recipe.batch_size : (at + 1) * recipe.batch_size]
                chance = torch.Generator().manual_seed(recipe.seed * 7919 + self.step)
                batch = apply(to_float(images[rows]), draw_shifts(size, len(rows), None, chance))
                loss = F.cross_entropy(classifier(self.transformer(batch)), labels[rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                self.step += 1
                told_loss = 0.98 * told_loss + 0.02 * float(loss.detach())
                if self.step % 50 == 0:
                    told.note(f"loss {told_loss / (1 - 0.98**self.step):.3f}")
                told.update()
                store.save_sometimes(self)


def trained_transformer(name: str, *, quick: bool = False, progress: bool = True) -> SpatialTransformer:
    """Return a spatial transformer, trained unless it was before; a killed training goes on.

    Args:
        name: One of :data:`RECIPES`.
        quick: Do not train it at all: a look, not a result.
        progress: Whether a training shows a progress bar.

    Returns:
        The transformer, in evaluation mode.
    """
    recipe = RECIPES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        transformer = SpatialTransformer(recipe.channels, recipe.size)
    if quick:
        return transformer.eval()
    digest = hashlib.sha256(json.dumps(asdict(recipe)).encode()).hexdigest()[:12]
    path = root() / "rivals" / f"transformer-{name}-{digest}.safetensors"
    if path.exists():
        transformer.load_state_dict(load_file(path))
        return transformer.eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    train = dataset(recipe.data, "train")
    assert train.labels is not None
    images = prepare(train.images[: recipe.images], dict(recipe.preparation))
    run = _Run(recipe, transformer.train(), len(images))
    store = Checkpoint(path.with_suffix(".checkpoint"), asdict(recipe), every_seconds=60)
    store.restore(run)
    frozen: Any = shipped()[recipe.through]().requires_grad_(False)
    run.train(frozen.to(memory_format=torch.channels_last), images, train.labels, store, progress)
    write_atomically(path, to_bytes({key: tensor.contiguous() for key, tensor in transformer.state_dict().items()}))
    store.remove()
    return transformer.eval()
