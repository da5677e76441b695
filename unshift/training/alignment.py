"""Fit on images that are not aligned: fit, restore each image to its mean position, fit again.

A network that is trained on images up to four pixels off scores all positions within four pixels alike. Their *mean* is
where such images stand on average. So the training images are restored to the mean of their scores, the next network
sees images that are nearly aligned, and so on. They are then aligned up to one move, common to all of them. A
classifier, if given, chooses it: the one of highest mean confidence. It needs no labels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unshift.coordinates import Pose, rows
from unshift.data.photos import ImageFolder
from unshift.data.reading import open_reader
from unshift.evaluation import in_its_dtype
from unshift.exact import network_from
from unshift.inputs import is_list
from unshift.network import as_float
from unshift.restorer import Restorer
from unshift.shifts import check_images, ravel
from unshift.training.checkpoint import check_identity

if TYPE_CHECKING:
    from unshift.training.fitting import FitPlan

ROUNDS = 6  # maximum number of fits; one more follows if a classifier chooses the move
CONVERGED = 0.02  # stop when less than this share of the images moves in a round
COMPARED = 2000  # number of images that are compared between rounds
CANDIDATES, FIRST_IMAGES = 4096, 32  # maximum number of moves that the classifier tries, and images
FINALISTS, FINAL_IMAGES = 32, 512  # number of the best moves that it tries again, and images
BATCH = 256

Classifier = Callable[[Tensor], Tensor]


class MeanPosition:
    """Restore images to the circular mean of their positions, weighted by the scores; then apply one global move.

    For training only: a mean of floats is not exact.
    """

    def __init__(self, restorer: Restorer, move: Pose | None = None) -> None:
        self.restorer, self.move = restorer, move

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Restore a batch of images."""
        coordinates, unit = self.restorer.coordinates, self.restorer.scorer.score_unit
        scores = self.restorer.scorer.scores(coordinates.canvases(images))
        score_map = scores.map()
        copies, size = score_map.shape[1], tuple(score_map.shape[2:])
        probability = (score_map.double() * unit).flatten(1).softmax(1).view(len(images), copies, -1)
        copy = probability.sum(2).argmax(1)  # the most probable of the turned copies
        of_copy = probability[torch.arange(len(images)), copy].view(-1, *size)
        mean = torch.stack([_circular_mean(of_copy, axis) for axis in range(len(size))], 1)
        pose = coordinates.pose(copy * math.prod(size) + ravel(mean, size), scores, check_images(images))
        restored: Tensor = coordinates.undo(images, pose)
        if self.move is not None:
            restored = coordinates.redo(restored, rows(self.move, torch.zeros(len(images), dtype=torch.int64)))
        return restored


def _circular_mean(probability: Tensor, axis: int) -> Tensor:
    """Return the circular mean along one axis of ``(batch, *positions)``, rounded to a position."""
    along = probability.movedim(1 + axis, 1).flatten(2).sum(2) if probability.ndim > 2 else probability
    n = along.shape[1]
    angle = torch.arange(n, dtype=torch.float64) * (2 * math.pi / n)
    mean = torch.atan2((along * angle.sin()).sum(1), (along * angle.cos()).sum(1))
    return (mean * (n / (2 * math.pi))).round().long() % n


def fit_unaligned(
    images: Any, plan: FitPlan, classifier: Classifier | None, checkpoint: str | Path | None, resume: bool
) -> Restorer:
    """Alternate fitting and restoring the training images until they no longer move.

    Return the restorer of the last round; its metadata hold the share of images that moved in each. The checkpoint
    holds the present round, the scorer of the one before, and these shares.
    """
    images = ImageFolder(images) if isinstance(images, str | Path) else images
    run = plan.prepare(images)
    store = plan.store(run, checkpoint, aligned=False)  # the original images identify all rounds
    state = store.read() if store is not None and resume else None
    past = state["past"] if state else {}
    moved: list[float] = past.get("moved", [])
    restorer = None
    if past:
        scorer = network_from(past["scorer"]["description"])
        scorer.load_state_dict(past["scorer"]["weights"])
        restorer = Restorer(scorer, coordinates=plan.coordinates).eval()
    chosen: dict[str, Any] = {}
    while True:
        converged, move = len(moved) + 1 == ROUNDS or (len(moved) > 0 and moved[-1] < CONVERGED), None
        if converged and classifier is not None and restorer is not None:
            move, confidence = best_move(restorer, images, classifier)
            turn = {} if move.turn is None else {"turn": int(move.turn[0])}
            chosen = {"classifier": {"shift": move.shift[0].tolist(), "confidence": confidence} | turn}
        if state is not None and store is not None:
            check_identity(store.path, {"move": past.get("classifier")}, {"move": chosen.get("classifier")})
        if converged and not chosen:
            break
        if restorer is not None:
            run = plan.prepare(_map(images, MeanPosition(restorer, move)))
            trained: Any = restorer.scorer
            stored = {"description": trained.describe(), "weights": trained.state_dict()}
            run.past = {"moved": moved, "scorer": stored} | chosen
        if store is not None:
            store.load(run, state)
            state = None
        before, restorer = restorer, plan.finish(run, store, warn=restorer is not None)  # the first may be poor
        if chosen:
            break
        if before is not None:
            one, other = MeanPosition(before), MeanPosition(restorer)
            pairs = [(one(part) != other(part)).flatten(1).any(1) for part in _first(images, COMPARED)]
            moved = [*moved, float(torch.cat(pairs).double().mean())]
    assert restorer is not None
    restorer.metadata["alignment"] = {"rounds": len(moved) + 1, "moved": moved} | chosen
    return restorer


def _map(images: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Apply ``function`` to all images: immediately if they are in memory, otherwise when they are read."""
    return [function(image[None])[0] for image in images] if is_list(images) else open_reader(images).mapped(function)


def _first(images: Any, count: int) -> Iterable[Tensor]:
    """Yield the first ``count`` images in batches of one size."""
    reader = open_reader(images)
    for part in itertools.chain.from_iterable(reader.read(reader.rows(BATCH))):
        yield part[:count]
        count -= len(part)
        if count <= 0:
            return


@torch.no_grad()
def best_move(restorer: Restorer, images: Any, classifier: Classifier) -> tuple[Pose, float]:
    """Return the move of all aligned images with the highest mean confidence of a classifier, and that confidence."""
    coordinates, net = restorer.coordinates, in_its_dtype(classifier)
    aligned = torch.cat([as_float(MeanPosition(restorer)(part)) for part in _first(images, FINAL_IMAGES)])
    moves: Pose = coordinates.moves(check_images(aligned))
    count = len(moves.shift)
    if count > CANDIDATES:
        moves = rows(moves, torch.randperm(count, generator=torch.Generator().manual_seed(0))[:CANDIDATES])

    def confidence(number: int, batch: Tensor) -> float:
        move = rows(moves, torch.full((len(batch),), number))
        return float(net(coordinates.redo(batch, move)).softmax(1).amax(1).mean())

    first = torch.tensor([confidence(number, aligned[:FIRST_IMAGES]) for number in range(len(moves.shift))])
    finalists = first.topk(min(FINALISTS, len(first))).indices.tolist()
    highest, best = max((confidence(number, aligned), -number) for number in finalists)
    return rows(moves, slice(-best, 1 - best)), highest
