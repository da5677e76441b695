"""A training run: its state, and the loop that moves it on, to the same weights however often it is killed."""

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

from unshift import ranks
from unshift.augmentation import Augmentation, augmented
from unshift.checkpoint import Checkpoint, State
from unshift.coordinates import Pose
from unshift.estimator import ShiftEstimator, as_float
from unshift.muon import Muon
from unshift.progress import Progress
from unshift.ragged import batches
from unshift.standardisation import Standard
from unshift.training_images import Examples

__all__ = ["Run"]

AT_ONCE = 2**21
"""Numbers of a map to work on at a time, or those of one image: a step on large photos takes no more memory than one on
small ones, and their maps stay in the cache."""

COUNTERS = ("epoch", "step", "stale", "loss_sum", "best_loss", "history")


class Run:
    """The state of a training run: all that a checkpoint has to hold, and the loop that moves it on.

    Args:
        estimator: The network, on the device to train on.
        examples: The images to learn from, and where they point.
        settings: A complete recipe, and the run's seed and preset.
        augmentations: What to do to each batch first.
    """

    def __init__(
        self,
        estimator: ShiftEstimator,
        examples: Examples,
        settings: dict[str, Any],
        augmentations: dict[str, Augmentation],
    ) -> None:
        self.estimator, self.examples = estimator, examples
        self.settings, self.augmentations = settings, augmentations
        self.device = next(estimator.parameters()).device
        local: Any = list(estimator.local)
        self.widest = math.prod(estimator.across) * max(layer.filter.weight.shape[0] for layer in local)
        self.steps = math.ceil(len(examples.train) / settings["batch_size"])
        self.standard = (
            Standard(map(as_float, batches(examples.sample, 8)), estimator) if settings["standardise"] else None
        )
        self.trained: Any = DistributedDataParallel(estimator) if ranks.count() > 1 else estimator
        self.averaged = (
            AveragedModel(estimator, multi_avg_fn=get_ema_multi_avg_fn(settings["average"]))
            if settings["average"]
            else None
        )
        kind: Any = {"adam": torch.optim.Adam, "muon": Muon}[settings["optimizer"]]
        self.optimizer: torch.optim.Optimizer = kind(estimator.parameters(), lr=settings["learning_rate"])
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, settings["learning_rate"], total_steps=max(2, settings["epochs"] * self.steps)
        )
        self.epoch = self.step = self.stale = 0
        self.loss_sum = 0.0
        self.best_loss = math.inf
        self.chance = 0.0  # the loss of guessing; 0 once something was said of it
        self.best = copy.deepcopy(estimator.state_dict())
        self.history: list[dict[str, float]] = []

    def state(self) -> State:
        """Return all that the run needs to go on, for a checkpoint."""
        state = State.of(self.estimator, self.optimizer, self.schedule, {k: getattr(self, k) for k in COUNTERS})
        state.tensors |= {f"best.{k}": v for k, v in self.best.items()}
        if self.averaged is not None:
            state.tensors |= {f"averaged.{k}": v for k, v in self.averaged.state_dict().items()}
        return state

    def resume(self, state: State) -> None:
        """Go back to where ``state`` was taken."""
        state.into(self.estimator, self.optimizer, self.schedule)
        if state.under("best.").keys() != self.best.keys():
            raise ValueError("a part of its state is missing")
        self.best = state.under("best.")
        if self.averaged is not None:
            self.averaged.load_state_dict(state.under("averaged."))
        for name in COUNTERS:
            setattr(self, name, state.counters[name])

    def train(self, store: Checkpoint | None, progress: bool) -> None:
        """Go on from wherever the state stands to the end.

        Args:
            store: Where to keep the state meanwhile.
            progress: Tell how far it is.
        """
        batch_size, epochs, seed = (self.settings[key] for key in ("batch_size", "epochs", "seed"))
        what, before = f"fit {self.settings['preset']}", self.epoch * self.steps + self.step
        with Progress(what, epochs * self.steps, "batches", progress, done=before) as told:
            while self.epoch < epochs and self.stale < self.settings["patience"]:
                for batch, count in self.examples.epoch(self.epoch, batch_size, self.step):
                    chance = torch.Generator().manual_seed(
                        ((seed + 1) * 2**32 + self.epoch * self.steps + self.step) % 2**63
                    )
                    self.loss_sum += self._learn([augmented(part, self.augmentations, chance) for part in batch], count)
                    self.step += 1
                    told.update()
                    if store and self.step < self.steps:
                        store.save_sometimes(self)
                self._finish_epoch()
                last = self.history[-1]
                told.note(f"epoch {self.epoch}: loss {last['loss']:.3f}, held out {100 * last['exact']:.1f}% exact")
                if store:
                    store.save(self)

    def finished(self) -> ShiftEstimator:
        """Return the network of the best epoch, on the CPU, for pixels as they are."""
        self.estimator.load_state_dict(self.best)
        if self.standard is not None:
            self.standard.fold(self.estimator)
        return self.estimator.float().cpu()

    def _learn(self, parts: list[tuple[Tensor, Pose | None]], count: int) -> float:
        """Take a step by this rank's part of ``count`` images; return the mean loss of all of them."""
        self.trained.train()
        self.optimizer.zero_grad()
        pieces = [piece for part in parts for piece in self._pieces(*part)]
        mine = 1 if count > ranks.rank() else 0  # else the image is another rank's
        total = 0.0
        for number, (canvas, target) in enumerate(pieces, 1):
            # Gradients add up, and ranks exchange them once.
            alone = number < len(pieces) and ranks.count() > 1
            with self.trained.no_sync() if alone else contextlib.nullcontext():
                loss = F.cross_entropy(self._scores(canvas, self.trained), target, reduction="sum")
                # DistributedDataParallel takes the mean of the gradients over the ranks; the loss is one over images.
                loss = loss * (mine * ranks.count() / count)
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

    def _pieces(self, images: Tensor, pose: Pose | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield canvases of as many images as may go through the network at a time, and where they should point."""
        canvas = self.examples.canvas(images)
        room = max(1, AT_ONCE // (self.widest * canvas[0, :, 0].numel()))
        return zip(canvas.split(room), self.examples.target(images, pose).to(self.device).split(room), strict=True)

    def _scores(self, canvas: Tensor, estimator: Any) -> Tensor:
        """Return the scores of all candidates, ``(batch, n)``."""
        pixels = as_float(canvas.flatten(0, 1))
        if self.standard is not None:
            pixels = self.standard(pixels)
        scores: Tensor = estimator(pixels.to(self.device))
        return scores.reshape(len(canvas), -1)

    @torch.no_grad()
    def _finish_epoch(self) -> None:
        # The average needs a while to forget where it began.
        warm = self.averaged is not None and int(self.averaged.n_averaged) * (1 - self.settings["average"]) > 3
        estimator: Any = self.averaged.module if warm and self.averaged is not None else self.estimator
        estimator.eval()
        loss, exact, positions, held = 0.0, 0, 1, len(self.examples.held)
        for batch in self.examples.held_out(self.settings["batch_size"]):
            for canvas, target in itertools.chain.from_iterable(self._pieces(images, None) for images in batch):
                scores = self._scores(canvas, estimator)
                loss += float(F.cross_entropy(scores, target, reduction="sum")) / held
                exact += int((scores.argmax(1) == target).sum())
                positions = scores.shape[1]
        loss, right = ranks.summed([loss, exact])
        self.history.append({"loss": self.loss_sum / self.steps, "validation_loss": loss, "exact": right / held})
        if loss < self.best_loss:
            self.best_loss, self.stale = loss, 0
            self.best = copy.deepcopy(estimator.state_dict())
        else:
            self.stale += 1
        self.epoch, self.step, self.loss_sum = self.epoch + 1, 0, 0.0
        self.chance = chance = math.log(positions)
        if self.epoch == 1 and self.steps >= 50 and ranks.is_first() and loss > 0.98 * chance > 0:
            warnings.warn(
                f"after one epoch the loss {loss:.2f} is still that of guessing ({chance:.2f}): "
                "these images may have no upright position to learn, or try another seed",
                stacklevel=6,
            )
            self.chance = 0.0
