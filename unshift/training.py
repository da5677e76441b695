"""fit: unlabelled images in, an exact restorer out.

The paper's training (section 5): cross-entropy whose target is always the candidate that stands for no move, on unmoved
images. No labels, and no augmentation: equivariance makes every move of an image the same example.
"""

from __future__ import annotations

import copy
import functools
import math
import platform
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

from unshift.augmentation import Augmentation, augmented, named
from unshift.checkpoint import Checkpoint, State
from unshift.coordinates import Canvas, Coordinates, Pose
from unshift.estimator import PRESETS, ShiftEstimator, as_float
from unshift.evaluation import restoration_rates
from unshift.exact import quantise
from unshift.muon import Muon
from unshift.progress import Progress
from unshift.restorer import Restorer
from unshift.training_images import collect, digest, usable

__all__ = ["RECIPES", "fit"]

COUNTERS = ("epoch", "step", "stale", "loss_sum", "best_loss", "history")
Standard = tuple[Tensor, Tensor]

RECIPES: dict[str, dict[str, Any]] = {
    "paper": {"epochs": 12, "learning_rate": 0.01},
    "dense": {"epochs": 10, "learning_rate": 0.003},
    "seam": {"epochs": 30, "learning_rate": 0.01, "batch_size": 64, "standardise": True, "optimizer": "muon"},
    "custom": {"epochs": 12, "learning_rate": 0.005},
}
"""Defaults per preset, tuned on held-out parts of the training sets of MNIST and CIFAR-10.

``standardise`` trains on pixels of mean 0 and deviation 1 and folds both into the first filter at the end: photos,
unlike digits, are far from that, and Adam is slow to get round it.
"""


def fit(
    images: Tensor | np.ndarray | Dataset[Any] | DataLoader[Any],
    preset: str | ShiftEstimator = "paper",
    *,
    coordinates: Coordinates | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    average: float | None = None,
    augment: Sequence[str | Augmentation] = (),
    validation: int | float = 0.1,
    patience: int = 5,
    seed: int = 0,
    device: str | torch.device = "cpu",
    checkpoint: str | Path | None = None,
    resume: bool = False,
    drop_unusable: bool = False,
    bits: int = 10,
    data_name: str = "unnamed",
    progress: bool = True,
) -> Restorer:
    """Train a restorer on unmoved, unlabelled images.

    The same ``seed`` on the same machine and number of threads gives the same weights.

    Args:
        images: Tensor or array ``(n, channel, *spatial)``, or a ``Dataset`` or ``DataLoader`` of images, which is read
            into memory once; labels, if any, are ignored. uint8 is scaled to [0, 1].
        preset: "paper", "dense", "seam", or a ``ShiftEstimator`` of your own.
        coordinates: What to undo, of ``unshift.coordinates``. Default: circular shifts of the image as it is.
        epochs: Passes over the images. Default, like the next two: the preset's.
        batch_size: Images a step.
        learning_rate: Peak of the one-cycle schedule.
        average: Keep a running average of the weights that forgets by this factor a step (0.999), and use that.
        augment: What to do to each batch first: ``"mirror"`` and ``"windows"`` (for photos: a mirrored photo, or a
            part of one, is an unmoved photo too), or functions ``(images, generator) -> images``, or to
            ``(images, pose)`` where they move the images.
        validation: Images held out: a number, or a share.
        patience: Stop when the loss on these has not improved for this many epochs. The best epoch is kept.
        seed: For the weights, the images held out, their order and the augmentations.
        device: Where to train.
        checkpoint: Where to keep the state: the run can then be killed at any moment.
        resume: Go on from ``checkpoint``, with the same result as if nothing had happened.
        drop_unusable: Leave out constant images and moved copies of others instead of refusing them.
        bits: Width of the integer activations.
        data_name: What the metadata call the images.
        progress: Tell how far it is.

    Returns:
        A restorer. Its ``metadata`` tell how it was made and how well it does on the images held out.

    Raises:
        ValueError: If no pose can be learnt from the images, e.g. if all are constant, or an argument makes no sense.
    """
    started = time.monotonic()
    name = preset if isinstance(preset, str) else "custom"
    if name not in RECIPES:
        raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)}, or give a ShiftEstimator")
    recipe = {"batch_size": 256, "standardise": False, "average": None, "optimizer": "adam", **RECIPES[name]}
    given = {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate, "average": average}
    recipe |= {key: value for key, value in given.items() if value is not None}
    _check_recipe(recipe, patience, bits, validation)
    augmentations = named(augment)
    where = coordinates if coordinates is not None else Canvas()
    examples = _Examples(images, where, augmentations, drop_unusable)
    held_out = validation if isinstance(validation, int) else max(1, round(validation * len(examples.data)))
    if not 1 <= held_out < len(examples.data):
        raise ValueError(f"validation must leave images to train on: got {validation!r} of {len(examples.data)} images")

    channels, *size = examples.shape
    with torch.random.fork_rng(devices=[]):  # the caller's random state is none of our business
        torch.manual_seed(seed)
        fresh = where.network(preset, channels, tuple(size)) if isinstance(preset, str) else preset
    estimator = copy.deepcopy(fresh).to(device)
    if "windows" in augmentations and estimator.size is not None:
        raise ValueError(f"windows are for nets that take images of any size; this one takes {estimator.size}")
    train, held = examples.split(held_out, seed)
    settings = {
        "coordinates": where.describe(),
        "preset": name,
        "data": data_name,
        "size": size,
        "train_images": len(train),
        **{key: recipe[key] for key in ("epochs", "batch_size", "learning_rate", "average", "optimizer")},
        "patience": patience,
        "augment": list(augmentations),
        "seed": seed,
    }
    standard = _mean_and_deviation(examples, train) if recipe["standardise"] else None
    run = _Run(estimator, examples, settings, augmentations, standard)
    own = {**settings, "network": estimator.describe(), "images": digest(examples.data) if checkpoint else ""}
    store = Checkpoint(checkpoint, own) if checkpoint else None
    if store and resume:
        store.restore(run)
    run.train(train, held, store, progress)
    estimator.load_state_dict(run.best)
    if standard is not None:
        _fold(standard, estimator)

    with Progress("fit", 2, "steps", progress) as told:
        told.note("turning the network into integers")
        scorer = quantise(estimator.float().cpu(), examples.sample(train, 1000), bits=bits)
        told.update()
        restorer = Restorer(scorer, coordinates=where).eval()
        told.note(f"measuring on the {held_out:,} images held out")
        rates = restoration_rates(Restorer(scorer) if examples.on_canvas else restorer, held)
        told.update()
    restorer.trained_on = {"size": size, "channels": channels, "range": examples.range(train)}
    restorer.metadata = {
        **settings,
        "epochs_run": run.epoch,
        "validation": rates.as_dict(),
        "history": run.history,
        "seconds": round(time.monotonic() - started, 1),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    if store:
        store.remove()
    return restorer


def _check_recipe(recipe: dict[str, Any], patience: int, bits: int, validation: int | float) -> None:
    """Refuse before an hour of training what would fail after it."""
    numbers = [recipe["epochs"], recipe["batch_size"], patience, recipe["learning_rate"]]
    if not all(number > 0 for number in numbers):
        raise ValueError(
            "epochs, batch size, patience and learning rate must be positive, "
            f"got {', '.join(map(str, numbers[:3]))} and {numbers[3]}"
        )
    if recipe["average"] is not None and not 0 < recipe["average"] < 1:
        raise ValueError(f"average must lie between 0 and 1, as 0.999, got {recipe['average']}")
    if type(bits) is not int or not 2 <= bits <= 21:
        raise ValueError(f"bits must be a whole number from 2 to 21, got {bits!r}")
    if not isinstance(validation, int) and not 0 < validation < 1:
        raise ValueError(f"validation must be a number of images, or a share between 0 and 1, got {validation!r}")


class _Examples:
    """The images to learn from: where canvases are smaller, and nothing is done to images first, only those."""

    def __init__(
        self, images: Any, coordinates: Coordinates, augmentations: dict[str, Augmentation], drop_unusable: bool
    ) -> None:
        self.coordinates = coordinates
        self.shape: tuple[int, ...] = ()
        self.on_canvas = False

        def keep(part: Tensor) -> Tensor:
            canvas = coordinates.canvas(part[:1])
            self.shape = tuple(part.shape[1:])
            self.on_canvas = not augmentations and canvas.shape[1] == 1 and canvas.numel() < part[:1].numel()
            return torch.cat([coordinates.canvas(some)[:, 0] for some in part.split(256)]) if self.on_canvas else part

        self.data = usable(collect(images, keep), drop_unusable)

    def split(self, held_out: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return the images to train on, and those held out."""
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(seed))
        return self.data[order[held_out:]], self.data[order[:held_out]]

    def canvas(self, batch: Tensor) -> Tensor:
        """Return what the network sees, ``(batch, copies, channel, *positions)``."""
        return batch[:, None] if self.on_canvas else self.coordinates.canvas(batch)

    def target(self, batch: Tensor, pose: Pose | None) -> Tensor:
        """Return the candidates that stand for ``pose``, or for no move, ``(batch,)``."""
        size = self.shape[1:] if self.on_canvas else tuple(batch.shape[2:])  # windows have a size of their own
        zero = torch.zeros(len(batch), dtype=torch.int64)
        still = Pose(zero[:, None].expand(-1, len(size)), zero, zero.double())
        return self.coordinates.candidate(pose or still, size)

    def sample(self, images: Tensor, count: int) -> Tensor:
        """Return ``count`` canvases."""
        return self.canvas(images[:count]).flatten(0, 1)[:count]

    def range(self, images: Tensor) -> list[float]:
        """Return the least and the largest value of some images, as the network sees them."""
        some = as_float(images[:1000])
        return [round(float(some.min()), 6), round(float(some.max()), 6)]


class _Run:
    """The state of a training run: all that a checkpoint has to hold, and the loop that moves it on."""

    def __init__(
        self,
        estimator: ShiftEstimator,
        examples: _Examples,
        settings: dict[str, Any],
        augmentations: dict[str, Augmentation],
        standard: Standard | None,
    ) -> None:
        self.estimator, self.examples, self.settings = estimator, examples, settings
        self.augmentations, self.standard = augmentations, standard
        self.averaged = (
            AveragedModel(estimator, multi_avg_fn=get_ema_multi_avg_fn(settings["average"]))
            if settings["average"]
            else None
        )
        steps = settings["epochs"] * math.ceil(settings["train_images"] / settings["batch_size"])
        kind: Any = {"adam": torch.optim.Adam, "muon": Muon}[settings["optimizer"]]
        self.optimizer: torch.optim.Optimizer = kind(estimator.parameters(), lr=settings["learning_rate"])
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, settings["learning_rate"], total_steps=max(2, steps)
        )
        self.epoch = self.step = self.stale = 0
        self.loss_sum = 0.0
        self.best_loss = math.inf
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

    def train(self, images: Tensor, held: Tensor, store: Checkpoint | None, progress: bool) -> None:
        """Go on from wherever the state stands to the end."""
        batch_size, epochs, seed = (self.settings[key] for key in ("batch_size", "epochs", "seed"))
        steps = math.ceil(len(images) / batch_size)
        what, before = f"fit {self.settings['preset']}", self.epoch * steps + self.step
        with Progress(what, epochs * steps, "batches", progress, done=before) as told:
            while self.epoch < epochs and self.stale < self.settings["patience"]:
                # Each epoch's order follows from seed and epoch alone, so a resumed run sees the same batches.
                shuffle = torch.Generator().manual_seed((seed * 100_003 + self.epoch + 1) % 2**63)
                order = torch.randperm(len(images), generator=shuffle)
                while self.step < steps:
                    batch = images[order[self.step * batch_size : (self.step + 1) * batch_size]]
                    chance = torch.Generator().manual_seed(
                        ((seed + 1) * 2**32 + self.epoch * steps + self.step) % 2**63
                    )
                    self.loss_sum += self._learn(*augmented(batch, self.augmentations, chance))
                    self.step += 1
                    told.update()
                    if store and self.step < steps:
                        store.save_sometimes(self)
                self._finish_epoch(steps, held)
                last = self.history[-1]
                told.note(f"epoch {self.epoch}: loss {last['loss']:.3f}, held out {100 * last['exact']:.1f}% exact")
                if store:
                    store.save(self)

    def _learn(self, batch: Tensor, pose: Pose | None) -> float:
        self.estimator.train()
        loss = F.cross_entropy(*self._scored(batch, pose, self.estimator))
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ValueError(
                f"the loss became {value}: try a lower learning rate than {self.settings['learning_rate']}"
            )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        if self.averaged is not None:
            self.averaged.update_parameters(self.estimator)
        return value

    def _scored(self, batch: Tensor, pose: Pose | None, estimator: Any) -> tuple[Tensor, Tensor]:
        """Return the scores of all candidates, ``(batch, n)``, and which they should point at."""
        canvas = self.examples.canvas(batch)
        pixels = as_float(canvas.flatten(0, 1))
        if self.standard is not None:
            mean, deviation = self.standard
            pixels = (pixels - mean.view(1, -1, *[1] * (pixels.ndim - 2))) / deviation
        scores = estimator(pixels.to(next(self.estimator.parameters()).device)).reshape(len(batch), -1)
        return scores, self.examples.target(batch, pose).to(scores.device)

    @torch.no_grad()
    def _finish_epoch(self, steps: int, held: Tensor) -> None:
        # The average needs a while to forget where it began.
        warm = self.averaged is not None and int(self.averaged.n_averaged) * (1 - self.settings["average"]) > 3
        estimator: Any = self.averaged.module if warm and self.averaged is not None else self.estimator
        estimator.eval()
        loss, exact, positions = 0.0, 0, 1
        for batch in held.split(self.settings["batch_size"]):
            scores, target = self._scored(batch, None, estimator)
            loss += float(F.cross_entropy(scores, target, reduction="sum")) / len(held)
            exact += int((scores.argmax(1) == target).sum())
            positions = scores.shape[1]
        self.history.append({"loss": self.loss_sum / steps, "validation_loss": loss, "exact": exact / len(held)})
        if loss < self.best_loss:
            self.best_loss, self.stale = loss, 0
            self.best = copy.deepcopy(estimator.state_dict())
        else:
            self.stale += 1
        self.epoch, self.step, self.loss_sum = self.epoch + 1, 0, 0.0
        chance = math.log(positions)
        if self.epoch == 1 and steps >= 50 and loss > 0.98 * chance > 0:
            warnings.warn(
                f"after one epoch the loss {loss:.2f} is still that of guessing ({chance:.2f}): "
                "these images may have no upright position to learn, or try another seed",
                stacklevel=4,
            )


def _mean_and_deviation(examples: _Examples, images: Tensor) -> Standard:
    """Return each channel's mean and one deviation for all, in blocks: as floats, all at once may be too many."""
    totals = [_moments(as_float(examples.canvas(part).flatten(0, 1))) for part in images.split(256)]
    count, total, square = (functools.reduce(torch.add, parts) for parts in zip(*totals, strict=True))
    mean = total / count
    deviation = (square / count - mean.square()).mean().clamp(min=1e-12).sqrt().view(1)
    return mean.float(), deviation.float()


def _moments(canvas: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    wide = canvas.double().transpose(0, 1).flatten(1)
    return torch.tensor(wide.shape[1]), wide.sum(1), wide.square().sum(1)


@torch.no_grad()
def _fold(standard: Standard, estimator: ShiftEstimator) -> None:
    """Make the net take images as they are: W (x - m)/d + b is (W/d) x + (b - (W/d) m)."""
    mean, deviation = standard
    first: Any = estimator.local[0].filter
    first.weight /= deviation.to(first.weight.device)
    first.bias -= first.weight.flatten(2).sum(2) @ mean.to(first.weight.device)
