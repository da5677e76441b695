"""fit: unlabelled images in, an exact restorer out.

The paper's training (section 5): N-way cross-entropy whose target is always position 0, on unshifted
images. No labels, and no augmentation: equivariance makes every shift of an image the same example.
"""

from __future__ import annotations

import copy
import hashlib
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

from unshift.checkpoint import Checkpoint
from unshift.estimator import PRESETS, ShiftEstimator
from unshift.evaluation import restoration_rates
from unshift.exact import ordered_bits, quantise, rank_restored
from unshift.polar import rotation_grid, rotation_network
from unshift.restorer import Restorer
from unshift.shifts import check_images, undo

__all__ = ["fit"]

KINDS = ("shift", "rotation")

RECIPES: dict[str, dict[str, Any]] = {
    "paper": {"epochs": 12, "learning_rate": 0.01},
    "dense": {"epochs": 10, "learning_rate": 0.003},
    "seam": {"epochs": 20, "learning_rate": 0.01},
    "custom": {"epochs": 12, "learning_rate": 0.005},
}
"""Defaults per preset, tuned on held-out parts of the training sets of MNIST and CIFAR-10."""


def fit(
    images: Tensor | np.ndarray | Dataset | DataLoader,
    preset: str | ShiftEstimator = "paper",
    *,
    kind: str = "shift",
    coordinates: nn.Module | None = None,
    epochs: int | None = None,
    batch_size: int = 256,
    learning_rate: float | None = None,
    validation: int | float = 0.1,
    patience: int = 5,
    mirror: bool = False,
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
    data = _usable(data, drop_unusable)
    epochs = RECIPES[name]["epochs"] if epochs is None else epochs
    rate: float = RECIPES[name]["learning_rate"] if learning_rate is None else learning_rate
    if epochs < 1 or batch_size < 1 or patience < 1 or not rate > 0:
        raise ValueError(
            "epochs, batch_size, patience and learning_rate must be positive, "
            f"got {epochs}, {batch_size}, {patience} and {rate}"
        )
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
        "seed": seed,
    }
    run = _Run(estimator.to(device), settings, total_steps=epochs * math.ceil(len(train) / batch_size))
    own = {**settings, "network": estimator.describe(), "images": _digest(data) if checkpoint else ""}
    store = Checkpoint(checkpoint, own) if checkpoint else None
    if store and resume:
        store.restore(run)
    run.train(train, held, store, progress)
    estimator.load_state_dict(run.best)

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

    def __init__(self, estimator: ShiftEstimator, settings: dict[str, Any], total_steps: int) -> None:
        self.estimator = estimator
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
                flipped = torch.rand(len(images), generator=shuffle) < (0.5 if self.settings["mirror"] else 0)
                while self.step < steps:
                    chosen = order[self.step * batch_size : (self.step + 1) * batch_size]
                    batch = images[chosen]
                    if self.settings["mirror"]:
                        batch = torch.where(flipped[chosen].view(-1, *[1] * (batch.ndim - 1)), batch.flip(-1), batch)
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
        scores = self.estimator(batch.to(next(self.estimator.parameters()).device)).flatten(1)
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


# --- what can be learnt from ----------------------------------------------------------------------


def as_tensor(images: Any) -> Tensor:
    """Collect images from whatever holds them: a tensor, an array, a ``Dataset`` or a ``DataLoader``."""
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(np.ascontiguousarray(images))
    if not isinstance(images, Tensor):
        if isinstance(images, DataLoader):
            parts = [_image_of(batch) for batch in images]
        elif isinstance(images, Dataset) or hasattr(images, "__getitem__"):
            parts = [_image_of(images[i])[None] for i in range(len(images))]
        else:
            raise ValueError(
                f"images must be a tensor, an array, a Dataset or a DataLoader, got {type(images).__name__}"
            )
        if len({part.shape[1:] for part in parts}) > 1:
            raise ValueError("the images differ in shape; resize or crop them to one size first")
        images = torch.cat(parts) if parts else torch.zeros(0, 1, 1, 1)
    check_images(images)
    if images.is_floating_point() and not torch.isfinite(images).all():
        raise ValueError("images must be finite, got NaN or infinity")
    return images.detach()


def _in_polar(images: Any, preset: str, coordinates: nn.Module | None) -> tuple[nn.Module, Tensor, tuple[int, ...]]:
    """Return polar coordinates, the images in them, and the shape (channel, *spatial) of one image.

    A ``Dataset`` or ``DataLoader`` is read part by part: only its canvases, which are small, are kept.
    """
    if isinstance(images, Tensor | np.ndarray):
        parts: Iterable[Tensor] = as_tensor(images).split(256)
    elif isinstance(images, DataLoader):
        parts = (as_tensor(_image_of(batch)) for batch in images)
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


def _digest(images: Tensor) -> str:
    """Return the SHA-256 of images: a checkpoint is for these, and no others of the same name and number."""
    digest = hashlib.sha256(f"{images.dtype} {tuple(images.shape)}".encode())
    for part in images.split(1024):
        digest.update(part.contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _image_of(item: Any) -> Tensor:
    """Take the image out of an ``(image, label, ...)`` item."""
    while isinstance(item, list | tuple):
        item = item[0]
    return torch.as_tensor(item)


def _usable(images: Tensor, drop: bool) -> Tensor:
    """Refuse (or drop) images that say nothing of where they are: constant ones, and shifted copies."""
    if len(images) < 2:
        raise ValueError(f"fit needs at least two images, got {len(images)}")
    flat = images.flatten(2)
    constant = (flat == flat[:, :, :1]).all(2).all(1)
    copies = shifted_copies(images[~constant])
    if not drop and constant.any():
        raise ValueError(
            f"{int(constant.sum())} of {len(images)} images are constant (the first is number "
            f"{int(constant.nonzero()[0])}): no shift of them can be told; remove them, or drop_unusable=True"
        )
    if not drop and len(copies):
        raise ValueError(
            f"{len(copies)} of {len(images)} images are shifted copies of others (the first is number {copies[0]}): "
            "which of them is unshifted cannot be learnt; remove them, or drop_unusable=True"
        )
    kept = (~constant).nonzero().flatten()
    mask = torch.ones(len(kept), dtype=torch.bool)
    mask[copies] = False
    if int(mask.sum()) < 2:
        raise ValueError(f"fewer than two of the {len(images)} images are usable: all others are constant or copies")
    return images if bool(mask.all()) and len(kept) == len(images) else images[kept[mask]]


def shifted_copies(images: Tensor) -> list[int]:
    """Return the images that are an earlier one, shifted by something other than 0. Near-linear.

    Sums of a hash of each pixel are the same for all shifts, so only images whose sums agree are
    compared, by the shift of each that is largest in the tie rule's order.
    """
    prints = torch.cat([_fingerprint(chunk) for chunk in images.split(4096)]) if len(images) else torch.zeros(0)
    _, group, count = prints.unique(return_inverse=True, return_counts=True)
    seen: dict[bytes, int] = {}
    copies = []
    for index in (count[group] > 1).nonzero().flatten().tolist():
        start = int(rank_restored(images[index]).argmax())
        position = torch.stack(torch.unravel_index(torch.tensor([start]), images.shape[2:]), 1)
        form = undo(images[index : index + 1], position).contiguous().flatten().view(torch.uint8).numpy().tobytes()
        if seen.setdefault(form, start) != start:  # the same place is a plain repeat, and does no harm
            copies.append(index)
    return copies


def _fingerprint(images: Tensor) -> Tensor:
    """Return one int64 per image, the same for all its shifts: a sum, modulo 2^64, over its pixels."""
    channel = torch.arange(images.shape[1], device=images.device).view(1, -1, 1)
    mixed = (ordered_bits(images).flatten(2) + channel * 0x632BE5AB) * 0x1E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 29)) * 0x3F58476D1CE4E5B9
    return (mixed ^ (mixed >> 32)).sum((1, 2))
