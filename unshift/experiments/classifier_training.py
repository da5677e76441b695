"""How a classifier is trained: its recipe, and a run that goes on after a kill to the same weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unshift.checkpoint import Checkpoint, State
from unshift.data import to_float
from unshift.evaluation import random_shifts
from unshift.experiments.architectures import ARCHITECTURES
from unshift.progress import Progress
from unshift.shifts import apply

__all__ = ["Recipe", "train_classifier"]


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
    """translation augmentation: each image rolled by up to this many pixels; 0 for none"""
    window: int = 0
    """learn from a window of this many pixels a side, cut at a random place of the prepared image; 0 for all of it"""
    bfloat16: bool = False
    """multiply in bfloat16: half again as fast on a CPU that has it (avx512_bf16), slower on one that has not"""
    seed: int = 0


class _Run:
    """The state of a training, and the loop that moves it on."""

    def __init__(self, recipe: Recipe, images: Tensor, device: str) -> None:
        self.recipe, self.device = recipe, device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.network = ARCHITECTURES[recipe.architecture]().to(device)
        if images.ndim == 4:
            self.network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        per_epoch = math.ceil(len(images) / recipe.batch_size)
        self.small_steps = round(recipe.small_epochs * per_epoch)
        self.total_steps = max(2, self.small_steps + round(recipe.epochs * per_epoch))
        sgd = recipe.optimizer == "sgd"
        kind: Any = torch.optim.SGD if sgd else torch.optim.AdamW
        momentum = {"momentum": 0.9, "nesterov": True} if sgd else {}
        self.optimizer: torch.optim.Optimizer = kind(
            self.network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, **momentum
        )
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, recipe.learning_rate, total_steps=self.total_steps, cycle_momentum=not sgd
        )
        self.step = 0
        self.loss_sum = 0.0

    def state(self) -> State:
        """Return all that the run needs to go on, for a checkpoint."""
        counters = {"step": self.step, "loss_sum": self.loss_sum}
        return State.of(self.network, self.optimizer, self.schedule, counters)

    def resume(self, state: State) -> None:
        """Go back to where ``state`` was taken."""
        state.into(self.network, self.optimizer, self.schedule)
        self.step, self.loss_sum = state.counters["step"], state.counters["loss_sum"]

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
            if recipe.window:
                batch = _windows(batch, recipe.window, recipe.seed * 6007 + self.step)
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
        self.network.train()
        with Progress(f"train {self.recipe.architecture}", self.total_steps, "batches", progress, self.step) as told:
            for batch, truth in self.batches(images, labels):
                with torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.recipe.bfloat16):
                    logits = self.network(batch)
                loss = F.cross_entropy(logits.float(), truth)
                value = float(loss.detach())
                if not math.isfinite(value):
                    raise ValueError(f"the loss became {value} at step {self.step}: lower the learning rate")
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                self.step += 1
                self.loss_sum += value
                if self.step % 100 == 0:
                    told.note(f"loss {self.loss_sum / 100:.4f}")
                    self.loss_sum = 0.0
                told.update()
                if store:
                    store.save_sometimes(self)


def _windows(images: Tensor, size: int, seed: int) -> Tensor:
    """Cut a window out of each image, at a place of its own."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = (torch.randint(0, n - size + 1, (len(images), 1), generator=generator) for n in images.shape[-2:])
    steps = torch.arange(size)
    every = torch.arange(len(images))[:, None, None]
    return images.movedim(1, -1)[every, (rows + steps)[:, :, None], (columns + steps)[:, None, :]].movedim(-1, 1)


def train_classifier(
    recipe: Recipe,
    images: Tensor,
    labels: Tensor,
    *,
    checkpoint: Path | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> nn.Module:
    """Train a classifier by ``recipe``.

    Args:
        recipe: Architecture, length, optimiser and augmentation.
        images: Prepared images ``(n, channel, *spatial)``.
        labels: Their classes ``(n,)``.
        checkpoint: Where to keep the state; a killed run goes on from there. The file stays: the caller
            removes it once the weights are safe.
        device: Where to train.
        progress: Whether to show a progress bar.

    Returns:
        The trained network, in evaluation mode, on the CPU.

    Raises:
        ValueError: If the loss is no longer finite, or the checkpoint is of another run.
    """
    run = _Run(recipe, images, device)
    store = Checkpoint(checkpoint, {**asdict(recipe), "images": len(images)}, every_seconds=120) if checkpoint else None
    if store:
        store.restore(run)
    run.train(images, labels, store, progress)
    trained: nn.Module = run.network.cpu().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return trained.eval()
