"""Training images that are not aligned: fit, take each image back to the middle of where it could be, fit again.

A net fitted on images that stand up to four pixels off cannot know how far off each is: it scores all places within
four pixels alike, and which of them is highest is chance. But the *middle* of these places is where such images stand
on average. So the training set is restored to the mean of each image's scores, not to the highest one; the next net
sees images that are nearly aligned, and so on until hardly any of them moves.

What remains free is one move of all of them. A classifier that is given settles it: by the move with which it is
surest of the training images. It needs no labels for that.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unshift import ranks
from unshift.coordinates import Pose, ravel, rows
from unshift.data.photos import ImageFolder
from unshift.data.reading import open_reader
from unshift.estimator import as_float
from unshift.evaluation import in_its_dtype
from unshift.ragged import is_ragged
from unshift.restorer import Restorer
from unshift.shifts import check_images
from unshift.weights import load

__all__ = ["Classifier", "Middle", "best_move", "fit_aligning"]

ROUNDS = 6
"""Fits at most, before that which the classifier's move asks for."""
STILL = 0.02
"""No longer moves what moves in fewer images than this share."""
SOME = 2000
"""Images that are compared from round to round."""
TRIED, SURE = 32, 512
"""Images on which all moves of a classifier are tried first, and images on which the best of these are."""
MOVES, BEST = 4096, 32
"""Moves to try, at most, and those to try on more images."""
BATCH = 256

Classifier = Callable[[Tensor], Tensor]


class Middle:
    """Takes images back to the mean of where they could be, by a restorer's scores: the round mean along each axis.

    For training only: a mean of floats is not exact to the last bit.

    Args:
        restorer: What scores them.
        move: What to do to all of them then.
    """

    def __init__(self, restorer: Restorer, move: Pose | None = None) -> None:
        self.restorer, self.move = restorer, move

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Return a batch of images, each in its place."""
        coordinates, unit = self.restorer.coordinates, getattr(self.restorer.scorer, "score_unit", 1.0)
        scores = self.restorer.scores(coordinates.canvas(images))
        copies, size = scores.shape[1], tuple(scores.shape[2:])
        shares = (scores.double() * unit).flatten(1).softmax(1).view(len(images), copies, -1)
        copy = shares.sum(2).argmax(1)  # of turned copies, the likeliest
        own = shares[torch.arange(len(images)), copy].view(-1, *size)
        middle = torch.stack([_round_mean(own, axis) for axis in range(len(size))], 1)
        pose = coordinates.pose(copy * math.prod(size) + ravel(middle, size), scores, check_images(images))
        found: Tensor = coordinates.undo(images, pose)
        if self.move is None:
            return found
        every = rows(self.move, torch.zeros(len(images), dtype=torch.int64))
        return coordinates.move(found, every)  # type: ignore[no-any-return]


def _round_mean(shares: Tensor, axis: int) -> Tensor:
    """Return the mean place along one axis that goes round, of shares ``(batch, *positions)``."""
    others = [at for at in range(1, shares.ndim) if at != 1 + axis]
    along = shares.sum(others) if others else shares
    n = along.shape[1]
    angle = torch.arange(n, dtype=torch.float64) * (2 * math.pi / n)
    mean = torch.atan2((along * angle.sin()).sum(1), (along * angle.cos()).sum(1))
    return (mean * (n / (2 * math.pi))).round().long() % n


def fit_aligning(
    images: Any,
    once: Callable[..., Restorer],
    *,
    classifier: Classifier | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
) -> Restorer:
    """Alternate fitting and restoring the training images until they no longer move.

    Args:
        images: What :func:`unshift.fit` takes.
        once: Fits once: from images, a ``checkpoint`` and ``resume`` to a restorer.
        classifier: Settles the move of all images that remains free: the one that makes it most confident.
        checkpoint: Where the state of a round is kept, with the round's number, and its restorer when it is done.
        resume: Go on from there.

    Returns:
        The restorer of the last round. Its metadata tell, for each round, the share of images that moved.
    """
    images = ImageFolder(images) if isinstance(images, str | Path) else images
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(np.ascontiguousarray(images))
    kept = _Kept(once, checkpoint, resume)
    moved: list[float] = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "this is near guessing|after one epoch the loss")  # as good as it can be yet
        restorer = kept.fitted(images)
    while len(kept.files) < ROUNDS and (not moved or moved[-1] >= STILL):
        before, restorer = restorer, kept.fitted(_through(images, Middle(restorer)))
        moved.append(_moved(images, before, restorer))
    told: dict[str, Any] = {"rounds": len(kept.files), "moved": moved}
    if classifier is not None:
        move, sure = best_move(restorer, images, classifier)
        told["classifier"] = {"shift": move.shift[0].tolist(), "confidence": sure}
        if move.turn is not None:
            told["classifier"]["turn"] = int(move.turn[0])
        restorer = kept.fitted(_through(images, Middle(restorer, move)))
    kept.remove()
    restorer.metadata["alignment"] = told
    return restorer


class _Kept:
    """Fits round after round, and keeps what a killed run needs to go on."""

    def __init__(self, once: Callable[..., Restorer], checkpoint: str | Path | None, resume: bool) -> None:
        self.once, self.checkpoint, self.resume = once, checkpoint, resume
        self.files: list[Path | None] = []

    def fitted(self, images: Any) -> Restorer:
        """Return the restorer of the next round."""
        state = None if self.checkpoint is None else Path(f"{self.checkpoint}.{len(self.files)}")
        file = None if state is None else Path(f"{state}.safetensors")
        self.files.append(file)
        if file is not None and self.resume and file.exists():
            restorer = load(file)
            assert isinstance(restorer, Restorer)
            return restorer
        restorer = self.once(images, checkpoint=state, resume=self.resume)
        if file is not None and ranks.is_first():
            restorer.save(file)
        return restorer

    def remove(self) -> None:
        """Forget all rounds."""
        for file in self.files:
            if file is not None and ranks.is_first():
                file.unlink(missing_ok=True)


def _through(images: Any, middle: Middle) -> Any:
    """Return images as ``middle`` takes them back: those in memory at once, others as they are read."""
    if isinstance(images, Tensor):
        return torch.cat([middle(part) for part in images.split(BATCH)])
    if is_ragged(images):
        return [middle(image[None])[0] for image in images]
    return open_reader(images).through(middle)


def _first(images: Any, count: int) -> Iterable[Tensor]:
    """Yield the first images in batches of one size."""
    if is_ragged(images):
        yield from (image[None] for image in images[:count])
        return
    reader = open_reader(images)
    left = count
    for batch in reader.read(reader.rows(BATCH)):
        for part in batch:
            yield part[:left]
            left -= len(part)
            if left <= 0:
                return


def _moved(images: Any, one: Restorer, other: Restorer) -> float:
    """Return the share of images that two restorers take back to different places."""
    places = [Middle(restorer) for restorer in (one, other)]
    pairs = [(places[0](part) != places[1](part)).flatten(1).any(1) for part in _first(images, SOME)]
    return float(torch.cat(pairs).double().mean())


@torch.no_grad()
def best_move(restorer: Restorer, images: Any, classifier: Classifier) -> tuple[Pose, float]:
    """Return the move of all images, once they are aligned, that makes a classifier most confident, and how confident.

    Args:
        restorer: It aligns them.
        images: Some of them are tried.
        classifier: Images to logits.
    """
    coordinates, net = restorer.coordinates, in_its_dtype(classifier)
    shown = torch.cat([as_float(Middle(restorer)(part)) for part in _first(images, SURE)])
    moves: Pose = coordinates.moves(check_images(shown))
    count = len(moves.shift)
    if count > MOVES:
        moves = rows(moves, torch.randperm(count, generator=torch.Generator().manual_seed(0))[:MOVES])

    def sure(number: int, some: Tensor) -> float:
        own = rows(moves, torch.full((len(some),), number))
        return float(net(coordinates.move(some, own)).softmax(1).amax(1).mean())

    first = torch.tensor([sure(number, shown[:TRIED]) for number in range(len(moves.shift))])
    best = first.topk(min(BEST, len(first))).indices.tolist()
    found = {number: sure(number, shown) for number in best}
    chosen = max(found, key=lambda number: found[number])
    return rows(moves, slice(chosen, chosen + 1)), found[chosen]
