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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from unshift import ranks
from unshift.alignment import Classifier, fit_aligning
from unshift.augmentation import Augmentation, named
from unshift.checkpoint import Checkpoint
from unshift.coordinates import Canvas, Coordinates
from unshift.estimator import ShiftEstimator
from unshift.evaluation import rates_from
from unshift.exact import quantise
from unshift.progress import Progress
from unshift.recipes import RECIPES, Recipe, complete, preset_name
from unshift.reliability import calibrate
from unshift.restorer import Restorer
from unshift.trained_on import background
from unshift.training_images import SAMPLE_BYTES, Examples, ImageOptions
from unshift.training_run import Run

GUESSING = 0.8
"""A loss above this share of that of guessing is hardly better."""

__all__ = ["RECIPES", "Recipe", "fit"]


class FitOptions(Recipe, ImageOptions, total=False):
    """All that :func:`fit` takes beside its own arguments."""


def fit(
    images: Tensor | np.ndarray | Dataset[Any] | DataLoader[Any] | str | Path,
    preset: str | ShiftEstimator = "paper",
    *,
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
            a folder's path. All but the first two are read as they are needed, once before training and once an epoch.
            The order of a ``DataLoader`` is not used. Labels are ignored. uint8 is scaled to [0, 1].
        preset: "paper", "dense", "lines", "seam", "sequence", "scene", or a ``ShiftEstimator`` of your own.
        coordinates: What to undo, of :mod:`unshift.coordinates`. Default: circular shifts of the image as it is.
        augment: What to do to each batch first: names ("mirror" and "windows" are for photos), or functions as
            :mod:`unshift.augmentation` describes.
        aligned: Whether the images stand where they should. If not, fitting and restoring them alternate until they no
            longer move, as :mod:`unshift.alignment` describes; one move of all of them remains free.
        classifier: For images that are not aligned: settles that move, by where it is most confident. No labels needed.
        seed: For weights, images held out, their order and augmentations. The same seed on the same machine with the
            same number of threads gives the same weights, however many ``workers`` there are.
        device: Where to train.
        checkpoint: Where to keep the state: the run can then be killed at any moment.
        resume: Go on from ``checkpoint``, with the same result as if nothing had happened.
        bits: Width of the integer activations.
        data_name: What the metadata call the images.
        progress: Tell how far it is.
        **options: How weights are learnt, by default as the preset's :class:`~unshift.recipes.Recipe` says (``epochs``,
            ``batch_size``, ...), and which images are learnt from, as
            :class:`~unshift.training_images.ImageOptions` describes (``validation``, ``moves``, ``scene``, ...).

    Returns:
        A restorer. Its ``metadata`` tell how it was made and how well it does on the images held out.

    Raises:
        ValueError: If no pose can be learnt from the images, e.g. if all are constant, or an argument makes no sense.
    """
    started = time.monotonic()
    once = functools.partial(_once, preset, coordinates, augment, seed, device, bits, data_name, progress, options)
    if not aligned:
        restorer = fit_aligning(images, once, classifier=classifier, checkpoint=checkpoint, resume=resume)
    elif classifier is not None:
        raise ValueError("a classifier is for images that are not aligned: fit(..., aligned=False, classifier=...)")
    else:
        restorer = once(images, checkpoint=checkpoint, resume=resume)
    restorer.metadata["seconds"] = round(time.monotonic() - started, 1)
    return restorer


def _once(
    preset: str | ShiftEstimator,
    coordinates: Coordinates | None,
    augment: Sequence[str | Augmentation],
    seed: int,
    device: str | torch.device,
    bits: int,
    data_name: str,
    progress: bool,
    options: FitOptions,
    images: Any,
    *,
    checkpoint: str | Path | None,
    resume: bool,
) -> Restorer:
    """Fit once, on images as they are."""
    name, augmentations = preset_name(preset), named(augment)
    chosen: dict[str, Any] = {key: value for key, value in options.items() if key in ImageOptions.__annotations__}
    recipe = complete(name, {key: value for key, value in options.items() if key not in chosen})
    if type(bits) is not int or not 2 <= bits <= 21:
        raise ValueError(f"bits must be a whole number from 2 to 21, got {bits!r}")
    undone = Canvas() if coordinates is None else coordinates
    examples = Examples(images, undone, seed=seed, whole=bool(augment), progress=progress, **chosen)
    settings = {"preset": name, "data": data_name, "seed": seed, "augment": [*augmentations], **recipe}
    augmentations |= examples.last()
    network = _network(preset, examples, seed, augmentations).to(ranks.device(str(device)))
    run = Run(network, examples, settings | examples.describe(), augmentations)
    with _kept(run, checkpoint, resume) as store:
        run.train(store, progress)
        _warn_of_guessing(run)
        return _restorer(run, bits, progress)


def _warn_of_guessing(run: Run) -> None:
    """Say so if not much was learnt."""
    if run.best_loss > GUESSING * run.chance > 0:
        warnings.warn(
            f"this is near guessing: the loss on the images held out is {run.best_loss:.2f}, and {run.chance:.2f} is "
            f"that of one guess in {round(math.exp(run.chance)):,}; more images than {len(run.examples.train):,}, more "
            "epochs or another preset may help: seam for photos, dense or paper for objects on a plain background",
            stacklevel=4,
        )


def _network(
    preset: str | ShiftEstimator, examples: Examples, seed: int, augmentations: dict[str, Augmentation]
) -> ShiftEstimator:
    """Return the network to train, of the caller's own a copy."""
    if isinstance(preset, str):
        channels, *size = examples.shape
        with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it is
            torch.manual_seed(seed)
            network = examples.coordinates.network(preset, channels, tuple(size))
    else:
        network = copy.deepcopy(preset)
    if "windows" in augmentations and network.size is not None:
        raise ValueError(
            f"augment 'windows' needs a network for images of any size; this one takes {network.size} only"
        )
    return network


@contextmanager
def _kept(run: Run, checkpoint: str | Path | None, resume: bool) -> Iterator[Checkpoint | None]:
    """Keep the state of a run at ``checkpoint`` until it is finished; to resume, go back to what is there."""
    if checkpoint is None:
        yield None
        return
    settings = {**run.settings, "network": run.estimator.describe(), "images": run.examples.digest()}
    store = Checkpoint(checkpoint, settings)
    if resume:
        store.restore(run)
    yield store if ranks.is_first() else None
    if ranks.is_first():
        store.remove()


def _restorer(run: Run, bits: int, progress: bool) -> Restorer:
    """Turn the network of a finished run into integers, and measure it on the images held out."""
    examples = run.examples
    with Progress("fit", 2, "steps", progress) as told:
        told.note("turning the network into integers")
        scorer = quantise(run.finished(), examples.sample, bits=bits)
        told.update()
        restorer = Restorer(scorer, coordinates=examples.coordinates).eval()
        told.note(f"measuring on the {len(examples.held):,} images held out")
        some = max(1, min(256, SAMPLE_BYTES // math.prod(examples.shape)))
        measured = Restorer(scorer) if examples.on_canvas else restorer
        rates = rates_from(calibrate(measured, lambda: examples.held_out(some)))
        restorer.curve = measured.curve
        told.update()
    restorer.trained_on = {"size": examples.size, "channels": examples.shape[0], "range": examples.range()}
    if not examples.on_canvas and isinstance(examples.sample, Tensor):  # of one size
        restorer.trained_on |= {"background": background(examples.sample), "prints": examples.prints()}
    restorer.metadata = {
        **run.settings,
        "epochs_run": run.epoch,
        "validation": rates.as_dict(),
        **measured.metadata,  # its calibration
        "history": run.history,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }
    return restorer
