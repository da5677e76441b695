"""fit: unlabelled images in, an exact restorer out.

The paper's training (section 5): N-way cross-entropy whose target is always position 0, on unshifted
images. No labels, and no augmentation: equivariance makes every shift of an image the same example.
"""

from __future__ import annotations

import copy
import functools
import math
import platform
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm

from unshift.checkpoint import Checkpoint, State
from unshift.estimator import PRESETS, ShiftEstimator, as_float
from unshift.evaluation import restoration_rates
from unshift.exact import quantise
from unshift.polar import rotation_grid, rotation_network
from unshift.restorer import Restorer
from unshift.usable import as_tensor, digest, image_of, usable

__all__ = ["fit"]

KINDS = ("shift", "rotation")
COUNTERS = ("epoch", "step", "stale", "loss_sum", "best_loss", "history")
Standard = tuple[Tensor, Tensor]

RECIPES: dict[str, dict[str, Any]] = {
    "paper": {"epochs": 12, "learning_rate": 0.01},
    "dense": {"epochs": 10, "learning_rate": 0.003},
    "seam": {"epochs": 20, "learning_rate": 0.004, "batch_size": 32, "standardise": True},
    "custom": {"epochs": 12, "learning_rate": 0.005},
}
"""Defaults per preset, tuned on held-out parts of the training sets of MNIST and CIFAR-10.

``standardise`` trains on pixels of mean 0 and deviation 1 and folds both into the first filter at the end: photos,
unlike digits, are far from that, and Adam is slow to get round it.
"""


def fit(
    images: Tensor | np.ndarray | Dataset | DataLoader,
    preset: str | ShiftEstimator = "paper",
    *,
    kind: str = "shift",
    coordinates: nn.Module | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    validation: int | float = 0.1,
    patience: int = 5,
    mirror: bool = False,
    windows: bool = False,
    seed: int = 0,
    device: str | torch.device = "cpu",
    checkpoint: str | Path | None = None,
    resume: bool = False,
    drop_unusable: bool = False,
    bits: int = 10,
    data_name: str = "unnamed",
    progress: bool = True,
) -> Restorer:
    """Train a restorer on unshifted, unlabelled images.

    ``images`` is a tensor or array ``(n, channel, *spatial)``, or a ``Dataset`` or ``DataLoader`` of
    images (labels, if any, are ignored), which is read into memory once. uint8 is scaled to [0, 1].
    ``validation`` images (a number, or a share) are held out; training stops early when their loss
    has not improved for ``patience`` epochs, and the best epoch is kept. The same ``seed`` on the same
    machine and number of threads gives the same weights.

    ``mirror`` shows each image flipped left to right half of the time: a mirrored photo is an unshifted photo too.
    ``windows`` shows half of the batches through a random window of at least three quarters of each side: a part
    of a photo is a photo, with a seam of its own (not for nets of one size, such as ``dense``).

    ``kind="rotation"`` learns to undo rotations, of square images or of cubic volumes about their first
    axis, with preset ``"paper"`` or ``"dense"``: it looks at the images in polar coordinates (``coordinates``,
    an ``unshift.polar.Polar``, replaces the preset's) and trains on those, computed once.

    With ``checkpoint`` the run can be killed at any moment; ``resume=True`` goes on with the same result.
    The restorer's ``metadata`` tell how it was made and its rates on the held-out images.
    """
    started = time.monotonic()
    name = preset if isinstance(preset, str) else "custom"
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if mirror and kind == "rotation":
        raise ValueError("mirror is for shifts: turned on its head, a mirrored image may be another one")
    if coordinates is not None and kind != "rotation":
        raise ValueError('coordinates are for kind="rotation"')
    if name not in RECIPES:
        raise ValueError(f"no preset {name!r}; there are {', '.join(PRESETS)}, or give a ShiftEstimator")
    if kind == "rotation":
        coordinates, data, (channels, *size) = _in_polar(images, name, coordinates)
    else:
        data = as_tensor(images)
        channels, *size = data.shape[1:]
    data = usable(data, drop_unusable)
    recipe = {"batch_size": 256, "standardise": False, **RECIPES[name]}
    epochs = recipe["epochs"] if epochs is None else epochs
    batch_size = recipe["batch_size"] if batch_size is None else batch_size
    rate: float = recipe["learning_rate"] if learning_rate is None else learning_rate
    if epochs < 1 or batch_size < 1 or patience < 1 or not rate > 0:
        raise ValueError(
            "epochs, batch_size, patience and learning_rate must be positive, "
            f"got {epochs}, {batch_size}, {patience} and {rate}"
        )
    if type(bits) is not int or not 2 <= bits <= 21:  # before an hour of training, not after
        raise ValueError(f"bits must be a whole number from 2 to 21, got {bits!r}")
    if not isinstance(validation, int) and not 0 < validation < 1:
        raise ValueError(f"validation must be a number of images, or a share between 0 and 1, got {validation!r}")
    held_out = validation if isinstance(validation, int) else max(1, round(validation * len(data)))
    if not 1 <= held_out < len(data):
        raise ValueError(f"validation must leave images to train on: got {validation!r} of {len(data)} images")

    with torch.random.fork_rng(devices=[]):  # the caller's random state is none of our business
        torch.manual_seed(seed)
        if isinstance(preset, str) and kind == "rotation":
            fresh = rotation_network(preset, *data.shape[1:])
        else:
            fresh = ShiftEstimator.preset(preset, channels, size) if isinstance(preset, str) else preset
    estimator = copy.deepcopy(fresh)
    if windows and (kind == "rotation" or estimator.size is not None):
        raise ValueError("windows are for shifts, and for nets that take images of any size; this one takes one size")
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    train, held = data[order[held_out:]], data[order[:held_out]]

    settings = {
        "kind": kind,
        "preset": name,
        "data": data_name,
        "size": size,
        "train_images": len(train),
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": rate,
        "patience": patience,
        "mirror": mirror,
        "windows": windows,
        "seed": seed,
    }
    standard = _mean_and_deviation(train) if recipe["standardise"] else (torch.zeros(data.shape[1]), torch.ones(1))
    run = _Run(estimator.to(device), settings, standard, total_steps=epochs * math.ceil(len(train) / batch_size))
    own = {**settings, "network": estimator.describe(), "images": digest(data) if checkpoint else ""}
    store = Checkpoint(checkpoint, own) if checkpoint else None
    if store and resume:
        store.restore(run)
    run.train(train, held, store, progress)
    estimator.load_state_dict(run.best)
    if recipe["standardise"]:
        _fold(standard, estimator)

    scorer = quantise(estimator.float().cpu(), train[:1000], bits=bits)
    restorer = Restorer(scorer, coordinates=coordinates).eval()
    restorer.metadata = {
        **settings,
        "epochs_run": run.epoch,
        "validation": restoration_rates(Restorer(scorer), held).as_dict(),
        "history": run.history,
        "seconds": round(time.monotonic() - started, 1),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    if store:
        store.remove()
    return restorer


class _Run:
    """The state of a training run: all that a checkpoint has to hold, and the loop that moves it on."""

    def __init__(
        self, estimator: ShiftEstimator, settings: dict[str, Any], standard: Standard, total_steps: int
    ) -> None:
        self.estimator = estimator
        self.mean, self.deviation = standard
        network = estimator.describe()
        lines = network["line_kernel_size"] or [1] * estimator.axes
        self.least = [max(pair) for pair in zip(network["kernel_size"], lines, strict=True)]  # a kernel must fit
        self.settings = settings
        self.optimizer = torch.optim.Adam(estimator.parameters(), lr=settings["learning_rate"])
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, settings["learning_rate"], total_steps=max(2, total_steps)
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
        return state

    def resume(self, state: State) -> None:
        """Go back to where ``state`` was taken."""
        state.into(self.estimator, self.optimizer, self.schedule)
        if state.under("best.").keys() != self.best.keys():
            raise ValueError("a part of its state is missing")
        self.best = state.under("best.")
        for name in COUNTERS:
            setattr(self, name, state.counters[name])

    def train(self, images: Tensor, held: Tensor, store: Checkpoint | None, progress: bool) -> None:
        """Go on from wherever the state stands to the end."""
        batch_size, epochs = self.settings["batch_size"], self.settings["epochs"]
        steps = math.ceil(len(images) / batch_size)
        bar = tqdm(
            total=epochs * steps,
            initial=self.epoch * steps + self.step,
            desc=f"fit {self.settings['preset']}",
            unit="batch",
            disable=None if progress else True,
        )
        with bar:
            while self.epoch < epochs and self.stale < self.settings["patience"]:
                # Each epoch's order follows from seed and epoch alone, so a resumed run sees the same batches.
                shuffle = torch.Generator().manual_seed((self.settings["seed"] * 100_003 + self.epoch + 1) % 2**63)
                order = torch.randperm(len(images), generator=shuffle)
                flipped = torch.rand(len(images), generator=shuffle) < 0.5
                chances = torch.rand(steps, 1 + 2 * (images.ndim - 2), generator=shuffle)
                while self.step < steps:
                    chosen = order[self.step * batch_size : (self.step + 1) * batch_size]
                    batch = images[chosen]
                    if self.settings["mirror"]:
                        batch = torch.where(flipped[chosen].view(-1, *[1] * (batch.ndim - 1)), batch.flip(-1), batch)
                    if self.settings["windows"]:
                        batch = _window(batch, chances[self.step].tolist(), self.least)
                    self.loss_sum += self._learn(batch)
                    self.step += 1
                    bar.update()
                    if store and self.step < steps:
                        store.save_sometimes(self)
                self._finish_epoch(steps, held)
                bar.set_postfix(loss=f"{self.history[-1]['loss']:.3f}", exact=f"{100 * self.history[-1]['exact']:.1f}%")
                if store:
                    store.save(self)

    def _learn(self, batch: Tensor) -> float:
        self.estimator.train()
        loss = F.cross_entropy(*self._scored(batch))
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ValueError(
                f"the loss became {value}: try a lower learning_rate than {self.settings['learning_rate']}"
            )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return value

    def _scored(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Return the flat scores of ``batch`` and what they should point at: always position 0."""
        pixels = (as_float(batch) - self.mean.view(1, -1, *[1] * (batch.ndim - 2))) / self.deviation
        scores = self.estimator(pixels.to(next(self.estimator.parameters()).device)).flatten(1)
        return scores, scores.new_zeros(len(scores), dtype=torch.int64)

    @torch.no_grad()
    def _finish_epoch(self, steps: int, held: Tensor) -> None:
        self.estimator.eval()
        loss, exact = 0.0, 0
        for batch in held.split(self.settings["batch_size"]):
            scores, target = self._scored(batch)
            loss += float(F.cross_entropy(scores, target, reduction="sum")) / len(held)
            exact += int((scores.argmax(1) == target).sum())
        self.history.append({"loss": self.loss_sum / steps, "validation_loss": loss, "exact": exact / len(held)})
        if loss < self.best_loss:
            self.best_loss, self.stale = loss, 0
            self.best = copy.deepcopy(self.estimator.state_dict())
        else:
            self.stale += 1
        self.epoch, self.step, self.loss_sum = self.epoch + 1, 0, 0.0
        chance = math.log(math.prod(held.shape[2:]))
        if self.epoch == 1 and steps >= 50 and loss > 0.98 * chance > 0:
            warnings.warn(
                f"after one epoch the loss {loss:.2f} is still that of guessing ({chance:.2f}): "
                "these images may have no upright position to learn, or try another seed",
                stacklevel=4,
            )


def _window(images: Tensor, chances: list[float], least: list[int]) -> Tensor:
    """Cut one window, of ``least`` pixels or more, out of all ``images``, half of the time; ``chances`` decide."""
    whether, *rest = chances
    if whether < 0.5:
        return images
    for axis, n in enumerate(images.shape[2:]):
        length = max(least[axis], n - int(rest[2 * axis] * (n // 4 + 1)))
        images = images.narrow(2 + axis, int(rest[2 * axis + 1] * (n - length + 1)), length)
    return images


def _mean_and_deviation(images: Tensor) -> Standard:
    """Return each channel's mean and one deviation for all, in blocks: as floats, all at once may be too many."""
    count = images[:, 0].numel()
    mean = functools.reduce(torch.add, (_per_channel(as_float(part)) for part in images.split(1024))) / count
    square = functools.reduce(torch.add, (_per_channel(as_float(part).square()) for part in images.split(1024))) / count
    return mean, (square - mean.square()).mean().clamp(min=1e-12).sqrt().view(1)


def _per_channel(images: Tensor) -> Tensor:
    return images.double().transpose(0, 1).flatten(1).sum(1).float()


@torch.no_grad()
def _fold(standard: Standard, estimator: ShiftEstimator) -> None:
    """Make the net take images as they are: W (x - m)/d + b is (W/d) x + (b - (W/d) m)."""
    mean, deviation = standard
    first: Any = estimator.local[0].filter
    first.weight /= deviation.to(first.weight.device)
    first.bias -= first.weight.flatten(2).sum(2) @ mean.to(first.weight.device)


def _in_polar(images: Any, preset: str, coordinates: nn.Module | None) -> tuple[nn.Module, Tensor, tuple[int, ...]]:
    """Return polar coordinates, the images in them, and the shape (channel, *spatial) of one image.

    A ``Dataset`` or ``DataLoader`` is read part by part: only its canvases, which are small, are kept.
    """
    if isinstance(images, Tensor | np.ndarray):
        parts: Iterable[Tensor] = as_tensor(images).split(256)
    elif isinstance(images, DataLoader):
        parts = (as_tensor(image_of(batch)) for batch in images)
    else:
        parts = (as_tensor([images[i] for i in rows.tolist()]) for rows in torch.arange(len(images)).split(256))
    canvases, shape = [], None
    for part in parts:
        shape = tuple(part.shape[1:])
        if coordinates is None:
            coordinates = rotation_grid(preset, shape[1:])
        canvases.append(coordinates(part))
    if shape is None or coordinates is None:
        raise ValueError("fit needs at least two images, got 0")
    return coordinates, torch.cat(canvases), shape
