"""A training run: its state, and the loop that advances it. An interrupted run resumes to the same weights."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from unshift import distributed as ranks
from unshift.coordinates import Pose
from unshift.inputs import Images, batches, stack_level
from unshift.network import ShiftEstimator, as_float
from unshift.pose_network import PoseEstimator
from unshift.progress import Progress
from unshift.training.checkpoint import Checkpoint
from unshift.training.images import Augmentation, Examples, augmented
from unshift.training.muon import Muon

MAP_VALUES = 2**21
"""Largest number of values of a feature map to compute at a time, unless one image has more. The maps then stay in the
cache, and memory does not grow with the batch size."""

COUNTERS = ("epoch", "step", "stale", "loss_sum", "best_loss", "history", "past")


class Run:
    """A network in training, on its device, by ``settings``: a complete recipe with the seed and the preset's name."""

    def __init__(
        self,
        estimator: ShiftEstimator | PoseEstimator,
        examples: Examples,
        settings: dict[str, Any],
        augmentations: dict[str, Augmentation],
    ) -> None:
        self.estimator, self.examples = estimator, examples
        self.settings, self.augmentations = settings, augmentations
        self.device = next(estimator.parameters()).device
        self.steps = math.ceil(len(examples.train) / settings["batch_size"])
        self.standard = _Standardisation(examples.sample, estimator) if settings["standardise"] else None
        self.trained: Any = DistributedDataParallel(estimator) if ranks.count() > 1 else estimator
        decay = settings["average"]
        self.averaged = AveragedModel(estimator, multi_avg_fn=get_ema_multi_avg_fn(decay)) if decay else None
        optimizer: Any = {"adam": torch.optim.Adam, "muon": Muon}[settings["optimizer"]]
        self.optimizer: torch.optim.Optimizer = optimizer(estimator.parameters(), lr=settings["learning_rate"])
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, settings["learning_rate"], total_steps=max(2, settings["epochs"] * self.steps)
        )
        self.epoch = self.step = self.stale = 0
        self.loss_sum = 0.0
        self.best_loss = math.inf
        self.best = copy.deepcopy(estimator.state_dict())
        self.history: list[dict[str, float]] = []
        self.past: dict[str, Any] = {}  # the rounds before this run, if the images are not aligned
        self.chance = math.inf  # the loss of a random guess

    def identity(self) -> dict[str, Any]:
        """Return everything that determines the result. A run resumes only from a state with the same identity."""
        return {**self.settings, "network": self.estimator.describe(), "images": self.examples.digest()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        return parts | {name: getattr(self, name) for name in ("best", *COUNTERS)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return to a state."""
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        for name in ("best", *COUNTERS):
            setattr(self, name, state[name])

    @property
    def _parts(self) -> dict[str, Any]:
        parts = {"network": self.estimator, "optimizer": self.optimizer, "schedule": self.schedule}
        return parts | ({} if self.averaged is None else {"averaged": self.averaged})

    @property
    def best_epoch(self) -> int:
        """Number of the epoch whose weights are used, from 1; 0 for the weights that training started from."""
        losses = [epoch["validation_loss"] for epoch in self.history]
        return 1 + losses.index(min(losses)) if min(losses) == self.best_loss else 0

    @property
    def stopped_early(self) -> bool:
        """True if patience ended the run before its last epoch."""
        return self.epoch < int(self.settings["epochs"])

    def train(self, store: Checkpoint | None, progress: bool, warn: bool = True) -> None:
        """Run from the present state to the end, saving it in ``store``; warn if the first epoch learns nothing."""
        batch_size, epochs, seed = (self.settings[key] for key in ("batch_size", "epochs", "seed"))
        name, done = f"fit {self.settings['preset']}", self.epoch * self.steps + self.step
        if self.settings["preset"] == "start" and done == 0:
            self.best_loss, _ = self._validate(self.estimator)
        with Progress(name, epochs * self.steps, "batches", progress, done=done) as bar:
            while self.epoch < epochs and self.stale < self.settings["patience"]:
                for batch, count in self.examples.epoch(self.epoch, batch_size, self.step):
                    at = self.epoch * self.steps + self.step
                    generator = torch.Generator().manual_seed(((seed + 1) * 2**32 + at) % 2**63)
                    parts = [augmented(part, self.augmentations, generator) for part in batch]
                    self.loss_sum += self._learn(parts, count)
                    self.step += 1
                    bar.update()
                    if store and self.step < self.steps:
                        store.save_sometimes(self)
                self._finish_epoch()
                if warn and self.epoch == 1:
                    self._warn_of_guessing()
                last = self.history[-1]
                bar.note(f"epoch {self.epoch}: loss {last['loss']:.3f}, held out {100 * last['exact']:.1f}% exact")
                if store:
                    store.save(self)
            end = f"stopped early after epoch {self.epoch} of {epochs}" if self.stopped_early else f"{epochs} epochs"
            bar.write(f"{end}; the best weights are those of epoch {self.best_epoch}")

    def result(self) -> ShiftEstimator | PoseEstimator:
        """Return the network of the best epoch, on the CPU, for pixels that are not standardised."""
        self.estimator.load_state_dict(self.best)
        if self.standard is not None:
            self.standard.fold(self.estimator)
        return self.estimator.float().cpu()

    def _learn(self, parts: list[tuple[Tensor, Pose | None]], count: int) -> float:
        """Take one step on this rank's share of ``count`` images; return the mean loss over all of them."""
        self.trained.train()
        self.optimizer.zero_grad()
        pieces = [piece for part in parts for piece in self._pieces(*part)]
        weight = 1 if count > ranks.rank() else 0  # 0 for an image that belongs to another rank
        total = 0.0
        for number, (canvases, target) in enumerate(pieces, 1):
            # Gradients accumulate locally; ranks exchange them once, with the last piece.
            local = number < len(pieces) and ranks.count() > 1
            with self.trained.no_sync() if local else contextlib.nullcontext():
                loss = F.cross_entropy(self._scores(canvases, self.trained), target, reduction="sum")
                # DistributedDataParallel averages gradients over ranks; the loss is an average over images.
                loss = loss * (weight * ranks.count() / count)
                loss.backward()
            total += float(loss.detach())
        (value,) = ranks.summed([total / ranks.count()])
        if not math.isfinite(value):
            raise ValueError(
                f"the loss became {value}: try a lower learning rate than {self.settings['learning_rate']}"
            )
        self.optimizer.step()
        self.schedule.step()
        if self.averaged is not None:
            self.averaged.update_parameters(self.estimator)
        return value

    def _pieces(self, images: Tensor, pose: Pose | None) -> Iterator[tuple[list[Tensor], Tensor]]:
        """Yield canvases and targets of a few images at a time."""
        canvases = list(self.examples.coordinates.canvases(images))
        room = max(1, MAP_VALUES // sum(self.estimator.values(canvas.shape[2:]) for canvas in canvases))
        pieces = zip(*(canvas.split(room) for canvas in canvases), strict=True)
        return zip(map(list, pieces), self.examples.target(images, pose).to(self.device).split(room), strict=True)

    def _scores(self, canvases: list[Tensor], estimator: Any) -> Tensor:
        """Return the scores of all candidates, ``(batch, n)``."""
        count = len(canvases[0])
        alike = len({canvas.shape for canvas in canvases}) == 1
        scores = []
        for canvas in [torch.cat(canvases)] if alike and len(canvases) > 1 else canvases:
            pixels = as_float(canvas)
            if self.standard is not None:
                pixels = self.standard(pixels)
            scored: Tensor = estimator(pixels.to(self.device))
            scores += scored.reshape(len(canvas), -1).split(count)
        return scores[0] if len(scores) == 1 else torch.cat(scores, 1)

    @torch.no_grad()
    def _finish_epoch(self) -> None:
        """Validate; update the best weights, patience and counters."""
        # While the average still contains the initial weights, the weights themselves are better.
        warm = self.averaged is not None and int(self.averaged.n_averaged) * (1 - self.settings["average"]) > 3
        estimator: Any = self.averaged.module if warm and self.averaged is not None else self.estimator
        loss, exact = self._validate(estimator)
        self.history.append({"loss": self.loss_sum / self.steps, "validation_loss": loss, "exact": exact})
        self.epoch, self.step, self.loss_sum = self.epoch + 1, 0, 0.0
        if loss < self.best_loss:
            self.best_loss, self.stale = loss, 0
            self.best = copy.deepcopy(estimator.state_dict())
        elif 2 * self.epoch > self.settings["epochs"]:  # the loss varies while the learning rate is high
            self.stale += 1

    @torch.no_grad()
    def _validate(self, estimator: Any) -> tuple[float, float]:
        """Return the mean loss on the validation images, and the share whose best candidate is the target."""
        estimator.eval()
        loss, exact, held = 0.0, 0, len(self.examples.held)
        for batch in self.examples.held_out(self.settings["batch_size"]):
            for canvases, target in itertools.chain.from_iterable(self._pieces(images, None) for images in batch):
                scores = self._scores(canvases, estimator)
                loss += float(F.cross_entropy(scores, target, reduction="sum")) / held
                exact += int((scores.argmax(1) == target).sum())
                self.chance = math.log(scores.shape[1])
        loss, right = ranks.summed([loss, exact])
        return loss, right / held

    def _warn_of_guessing(self) -> None:
        loss, chance = self.history[-1]["validation_loss"], self.chance
        if self.steps >= 50 and ranks.is_first() and loss > 0.98 * chance > 0:
            warnings.warn(
                f"after one epoch the loss {loss:.2f} is still that of guessing ({chance:.2f}): "
                "these images may have no upright position to learn, or try another seed",
                stacklevel=stack_level(),
            )


class _Standardisation:
    """Scales pixels to mean 0 for each channel that the first filter sees, and standard deviation 1 over all.

    Both are those of ``sample``, canvases of training images.
    """

    def __init__(self, sample: Images, estimator: ShiftEstimator | PoseEstimator) -> None:
        first: Any = estimator.local[0]
        if first.bias is None:
            raise ValueError(
                "standardise folds the mean into the first bias, and this network has none; make it with bias=True"
            )
        channels = first.weight.shape[1]  # fewer than those of the canvas, where axes come as channels
        parts = [as_float(part).unflatten(1, (channels, -1)).transpose(0, 1) for part in batches(sample, 1000)]
        pixels = torch.cat([part.flatten(1) for part in parts], 1)
        self.mean: Tensor = pixels.mean(1)
        self.deviation: Tensor = (pixels - self.mean[:, None]).square().mean().clamp(min=1e-12).sqrt().view(1)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return standardised pixels."""
        mean = self.mean.repeat_interleave(pixels.shape[1] // len(self.mean))
        return (pixels - mean.view(1, -1, *[1] * (pixels.ndim - 2))) / self.deviation

    @torch.no_grad()
    def fold(self, estimator: ShiftEstimator | PoseEstimator) -> None:
        """Make the network take plain pixels: W (x - m)/d + b is (W/d) x + (b - (W/d) m)."""
        first: Any = estimator.local[0]
        first.weight /= self.deviation.to(first.weight.device)
        first.bias -= first.weight.flatten(2).sum(2) @ self.mean.to(first.weight.device)
