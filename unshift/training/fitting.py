"""fit: from unlabelled images to an exact restorer.

The training of the paper (section 5): cross-entropy whose target is always the candidate of the identity, on images
that are not moved. It needs no labels and no augmentation: equivariance makes every move of an image the same example.
"""

from __future__ import annotations

import copy
import math
import platform
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from unshift import distributed as ranks
from unshift.coordinates import Coordinates, Shifts
from unshift.evaluation import calibrate, rates_from
from unshift.exact import quantise
from unshift.inputs import background, stack_level
from unshift.network import ShiftEstimator
from unshift.pose_network import PoseEstimator
from unshift.progress import Progress
from unshift.restorer import Restorer
from unshift.training.alignment import Classifier, fit_unaligned
from unshift.training.checkpoint import Checkpoint
from unshift.training.images import SAMPLE_BYTES, Augmentation, Examples, ImageOptions, augmentations_by_name
from unshift.training.recipes import Recipe, complete, preset_name
from unshift.training.run import Run
from unshift.training.start import network_of

GUESSING = 0.8  # ``fit`` warns if the loss stays above this share of the loss of a random guess


class FitOptions(Recipe, ImageOptions, total=False):
    """All further options of :func:`fit`."""


def fit(
    images: Tensor | np.ndarray | Dataset[Any] | DataLoader[Any] | str | Path,
    preset: str | ShiftEstimator | PoseEstimator = "paper",
    *,
    start: Restorer | None = None,
    coordinates: Coordinates | None = None,
    augment: Sequence[str | Augmentation] = (),
    aligned: bool = True,
    classifier: Classifier | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    checkpoint: str | Path | None = None,
    resume: bool = False,
    bits: int = 10,
    data_name: str = "unnamed",
    progress: bool = True,
    **options: Unpack[FitOptions],
) -> Restorer:
    """Train a restorer on unmoved, unlabelled images.

    Args:
        images: Tensor or array ``(n, channel, *spatial)``, a ``Dataset`` (or ``IterableDataset``), a ``DataLoader``, or
            a folder's path. Data sets are read as needed, once before training and once an epoch; the order of a
            ``DataLoader`` is not used. Labels are ignored. uint8 is scaled to [0, 1].
        preset: "paper", "dense", "lines", "seam", "sequence", "scene", or a ``ShiftEstimator`` of your own. For
            ``Poses`` and ``Angles``: "look", "evidence", or a ``PoseEstimator``.
        start: Continue from the weights of this restorer, such as ``load("photos")``, instead of a preset's. They are
            kept if no epoch has a lower validation loss.
        coordinates: What to undo; see :mod:`unshift.coordinates`. Default: those of ``start``, or circular shifts.
        augment: Augmentations of each batch: names ("mirror" and "windows" are for photos), or functions as described
            in :mod:`unshift.training.images`.
        aligned: Whether the images are aligned with each other. If not, fitting and restoring them alternate until they
            no longer move, as described in :mod:`unshift.training.alignment`; they are then aligned up to one move.
        classifier: For images that are not aligned: a classifier whose confidence chooses that move, without labels.
        seed: Determines weights, validation images, order and augmentations. The same seed on the same machine with
            the same number of threads gives the same weights, for any number of ``workers``.
        device: Where to train.
        checkpoint: File for the state of the run, so that it can be killed at any time.
        resume: Continue from ``checkpoint``. The result is that of an uninterrupted run.
        bits: Width of the integer activations.
        data_name: Name of the images in the metadata.
        progress: Show progress.
        **options: The training recipe, by default the preset's :class:`~unshift.training.recipes.Recipe` (``epochs``,
            ``batch_size``, ``patience``, ...), and the choice of images, see
            :class:`~unshift.training.images.ImageOptions` (``validation``, ``moves``, ``scene``, ...).

    Returns:
        A restorer with the weights of the best epoch. Its ``metadata`` hold the settings, the loss of every epoch,
        ``best_epoch``, ``stopped_early``, and the rates on the validation images.

    Raises:
        ValueError: If no pose can be learnt from the images, or ``checkpoint`` belongs to another run.
    """
    started = time.monotonic()
    image_options = {key: value for key, value in options.items() if key in ImageOptions.__annotations__}
    name = preset_name(preset)
    if start is not None:
        preset, name = network_of(start), "start"
        coordinates = coordinates or start.coordinates
    plan = FitPlan(
        preset,
        name,
        coordinates=Shifts() if coordinates is None else coordinates,
        augmentations=augmentations_by_name(augment),
        recipe=complete(name, {key: value for key, value in options.items() if key not in image_options}),
        image_options=image_options,
        seed=seed,
        device=str(device),
        bits=bits,
        data_name=data_name,
        progress=progress,
    )
    if type(bits) is not int or not 2 <= bits <= 21:
        raise ValueError(f"bits must be a whole number from 2 to 21, got {bits!r}")
    if aligned and classifier is not None:
        raise ValueError("a classifier is for images that are not aligned: fit(..., aligned=False, classifier=...)")
    if aligned:
        run = plan.prepare(images)
        store = plan.store(run, checkpoint)
        if store is not None and resume:
            store.load(run, store.read())
        restorer = plan.finish(run, store)
    else:
        restorer = fit_unaligned(images, plan, classifier, checkpoint, resume)
    if checkpoint is not None and ranks.is_first():
        Path(checkpoint).unlink(missing_ok=True)
    restorer.metadata["seconds"] = round(time.monotonic() - started, 1)
    return restorer


@dataclass(frozen=True)
class FitPlan:
    """The arguments of :func:`fit` that all fits of one call share."""

    preset: str | ShiftEstimator | PoseEstimator
    name: str
    coordinates: Coordinates
    augmentations: dict[str, Augmentation]
    recipe: dict[str, Any]
    image_options: dict[str, Any]
    seed: int
    device: str
    bits: int
    data_name: str
    progress: bool

    def prepare(self, images: Any) -> Run:
        """Survey the images and return a run that has not started."""
        options = self.image_options
        examples = Examples(images, self.coordinates, seed=self.seed, progress=self.progress, **options)
        settings = {"preset": self.name, "data": self.data_name, "seed": self.seed, "augment": [*self.augmentations]}
        network = self._network(examples).to(ranks.device(self.device))
        augmentations = self.augmentations | examples.last_augmentation()
        return Run(network, examples, settings | self.recipe | examples.describe(), augmentations)

    def _network(self, examples: Examples) -> ShiftEstimator | PoseEstimator:
        """Return the network to train: a new one of the preset, or a copy of the caller's."""
        if isinstance(self.preset, str):
            channels, *size = examples.shape
            with torch.random.fork_rng(devices=[]):  # leaves the caller's random state alone
                torch.manual_seed(self.seed)
                network = self.coordinates.network(self.preset, channels, tuple(size))
        else:
            network = copy.deepcopy(self.preset)
        self.coordinates.check_network(network)
        if "windows" in self.augmentations and network.size is not None:
            raise ValueError(
                f"augment 'windows' needs a network for images of any size; this one takes {network.size} only"
            )
        return network

    def store(self, run: Run, checkpoint: str | Path | None, aligned: bool = True) -> Checkpoint | None:
        """Return the checkpoint of a call of :func:`fit`."""
        settings = {**run.identity(), "bits": self.bits, "aligned": aligned}
        return None if checkpoint is None else Checkpoint(checkpoint, settings)

    def finish(self, run: Run, store: Checkpoint | None, warn: bool = True) -> Restorer:
        """Train ``run``, save it in ``store``, and return its restorer. Warn if its loss is near that of guessing."""
        run.train(store if ranks.is_first() else None, self.progress, warn)
        if warn and run.best_loss > GUESSING * run.chance > 0:
            warnings.warn(
                f"this is near guessing: the validation loss is {run.best_loss:.2f}, and {run.chance:.2f} is that of "
                f"a guess among {round(math.exp(run.chance)):,}; more images than {len(run.examples.train):,}, more "
                "epochs or another preset may help: seam for photos, dense or paper for objects on a plain background",
                stacklevel=stack_level(),
            )
        examples = run.examples
        with Progress("fit", 2, "steps", self.progress) as bar:
            bar.note("turning the network into integers")
            scorer = quantise(run.result(), examples.sample, bits=self.bits)
            bar.update()
            restorer = Restorer(scorer, coordinates=examples.coordinates).eval()
            bar.note(f"measuring on the {len(examples.held):,} images held out")
            batch_size = max(1, min(256, SAMPLE_BYTES // math.prod(examples.shape)))
            rates = rates_from(calibrate(restorer, lambda: examples.held_out(batch_size)))
            bar.update()
        restorer.trained_on = {"size": examples.size, "channels": examples.shape[0], "range": examples.range()}
        if isinstance(examples.sample, Tensor):  # not a list of several sizes
            restorer.trained_on |= {"background": background(examples.sample), "prints": examples.fingerprints()}
        restorer.metadata = {
            **run.settings,
            "epochs_run": run.epoch,
            "best_epoch": run.best_epoch,
            "stopped_early": run.stopped_early,
            "validation": rates.as_dict(),
            **restorer.metadata,  # its calibration
            "history": run.history,
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
        }
        return restorer
