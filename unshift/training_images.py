"""Images that can be learnt from: looked over once, refused where no shift shows in them, held out, and read in order.

**One pass, two numbers an image.** Before training, every image is read once. What is kept of it is whether it is
constant, a sum over its pixels that is the same for all its shifts, and a fingerprint of its content. Only images whose
sums agree are read again and compared. So the promise that no shifted copy is trained on holds for all images,
however many there are, and costs 16 bytes each. **Sampled** are only the pixels that show the range of values: those of
the first :data:`SAMPLE` images to train on, or as many as fit in :data:`SAMPLE_BYTES`.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from unshift import ranks
from unshift.augmentation import Augmentation
from unshift.coordinates import Coordinates, Pose
from unshift.data.batches import Batch, one_tensor
from unshift.data.photos import ImageFolder
from unshift.data.reading import Reader, open_reader
from unshift.estimator import as_float
from unshift.image_survey import Survey, usable
from unshift.moves import Kind, Moves
from unshift.ragged import Images, batches, is_ragged
from unshift.scenes import Background, Scenes, plain_ground
from unshift.shifts import check_images

__all__ = ["SAMPLE_BYTES", "Examples", "ImageOptions"]

SAMPLE = 1000
SAMPLE_BYTES = 2**24


SOME = 256
"""Objects by which their plain ground is known."""
PRINTS = 64
"""Images whose fingerprints a restorer keeps."""


class ImageOptions(TypedDict, total=False):
    """Which images are learnt from, what is made of them, and how they move."""

    validation: int | float
    """Images held out: a number, or a share. Default: a tenth."""
    drop_unusable: bool
    """Leave out constant images and moved copies of others instead of refusing them."""
    skip_unreadable: bool
    """Leave out images that cannot be read; ``metadata["unreadable"]`` names them."""
    workers: int
    """Processes that read images beside the training. Default: those of a ``DataLoader``, else none."""
    scene: Sequence[int] | None
    """The size of the scenes to make of the images, if the coordinates cut a window out of one: the images are then
    objects, each pasted at a random place, and the place is what is learnt. Default: twice the window."""
    background: str | Path | Background
    """What is behind them there: "plain", "noise", "clutter" (pieces of other images, the default), a folder of images,
    or a function, as :mod:`unshift.scenes` describes."""
    moves: Kind
    """What enters on one side when an image leaves on the other: "circular" (the default), itself; "zeros"; "edge", its
    edge; "crop", the rest of the photo, of which the net then sees a window smaller by ``scope`` on every side. All but
    the first lose pixels, so the images are moved for real while it trains."""
    scope: int | None
    """The largest of these moves along each axis, in pixels. Default: an eighth of the shorter side."""


class Examples:
    """The images to learn from: where canvases are smaller, and nothing is done to images first, only those.

    Args:
        images: Whatever :func:`unshift.data.reading.open_reader` takes, or a folder of image files. The tensors of a
            list may be of any sizes.
        coordinates: What to undo.
        seed: It chooses the images held out, and the order of the others.
        whole: Read the images themselves: something is done to them first.
        progress: Tell how far it is.

    The other arguments are those of :class:`ImageOptions`.

    Raises:
        ValueError: If nothing is left to train on, or to hold out.
    """

    def __init__(
        self,
        images: Any,
        coordinates: Coordinates,
        *,
        validation: int | float = 0.1,
        seed: int = 0,
        drop_unusable: bool = False,
        skip_unreadable: bool = False,
        whole: bool = False,
        scene: Sequence[int] | None = None,
        background: str | Path | Background = "clutter",
        moves: Kind = "circular",
        scope: int | None = None,
        workers: int = 0,
        progress: bool = False,
    ) -> None:
        if isinstance(images, str | Path):
            images = ImageFolder(images)
        if not isinstance(validation, int) and not 0 < validation < 1:
            raise ValueError(f"validation must be a number of images, or a share between 0 and 1, got {validation!r}")
        self.coordinates, self.seed = coordinates, seed
        self.ragged = is_ragged(images) and len({image.shape for image in images}) > 1
        reader = open_reader(images, workers)
        first = _first(reader, skip_unreadable)
        check_images(first)
        self.shape = _least([image.shape for image in images]) if self.ragged else tuple(first.shape[1:])
        window = coordinates.window
        if window is None and scene is not None:
            raise ValueError("scene is for coordinates that cut a window out of one: Canvas(window=(32, 32))")
        size = tuple(2 * n for n in window or ()) if scene is None else tuple(scene)
        self.scenes = Scenes(size, window, self.shape, background) if window is not None else None
        self.moves = Moves.of(moves, coordinates, scope, self.shape[1:])
        if self.moves is not None:
            self.shape, whole = (self.shape[0], *self.moves.seen(self.shape[1:])), True
        canvas = coordinates.canvas(first)
        self.on_canvas = not whole and not self.ragged and canvas.shape[1] == 1 and canvas.numel() < first.numel()
        self.reader = reader.through(functools.partial(_first_copy, coordinates)) if self.on_canvas else reader
        self.survey = Survey(self.reader, first.numel(), skip_unreadable, progress, self.ragged)
        rows = usable(self.survey, self.reader, drop_unusable)
        held_out = validation if isinstance(validation, int) else max(1, round(validation * len(rows)))
        if not 1 <= held_out < len(rows):
            raise ValueError(f"validation must leave images to train on: got {validation!r} of {len(rows)} images")
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        self.train, self.held = rows[order[held_out:]], rows[order[:held_out]]
        ranks.check_enough(len(self.train))
        if self.scenes is not None:
            read = self.reader.read(self.train[:SOME].sort().values.split(16))
            self.scenes.value = plain_ground(itertools.chain.from_iterable(read))
            self.shape, self.ragged = (self.shape[0], *size), False

    @property
    def size(self) -> list[int]:
        """The size of the images, or of scenes made of them; empty where they are of many."""
        return [] if self.ragged else list(self.shape[1:])

    def describe(self) -> dict[str, Any]:
        """Return what is to be undone, and what the images are, as plain data."""
        found: dict[str, Any] = {"coordinates": self.coordinates.describe(), "size": self.size}
        found["train_images"] = len(self.train)
        if self.scenes is not None:
            found["scenes"] = self.scenes.describe()
        if self.moves is not None:
            found["moves"] = self.moves.describe()
        if self.survey.unreadable:
            found["unreadable"] = [*self.survey.unreadable.values()]
        return found

    def digest(self) -> str:
        """Return a digest of all images: a checkpoint is for these, and no others of the same name and number."""
        return hashlib.sha256(self.survey.contents.numpy().tobytes()).hexdigest()

    def prints(self) -> list[int]:
        """Return fingerprints of some of the images, by which they are known again: the smallest of all."""
        found: list[int] = self.survey.contents.unique()[:PRINTS].tolist()
        return found

    def epoch(self, number: int, batch_size: int, step: int = 0) -> Iterator[tuple[Batch, int]]:
        """Yield the batches of an epoch from ``step`` on: this rank's share of each, and the size of the whole.

        They follow from the seed, the epoch and the step alone, so a run that was killed sees the same ones again.
        """
        shuffle = torch.Generator().manual_seed((self.seed * 100_003 + number + 1) % 2**63)
        batches = self.reader.shuffled(self.train, shuffle).split(batch_size)[step:]
        # A rank that gets nothing of a last small batch reads an image of it all the same, and it will count for 0.
        shares = (ranks.share(rows) if len(rows) > ranks.rank() else rows[:1] for rows in batches)
        sizes = (len(rows) for rows in batches)
        return zip(self.reader.read(shares, seed=self.seed * 100_003 + number + 1), sizes, strict=True)

    def held_out(self, batch_size: int) -> Iterator[Batch]:
        """Yield this rank's share of the images held out, the same ones each time."""
        rows = ranks.share(self.held.sort().values if len(self.held) > batch_size else self.held)
        return self._shown(self.reader.read(part for part in rows.split(batch_size) if len(part)))

    def _shown(self, read: Iterator[Batch]) -> Iterator[Batch]:
        """Return images as they are, or scenes of them, or what a move left of them: the same ones each time."""
        generator = torch.Generator().manual_seed(self.seed)
        made = self.scenes if self.moves is None else self.moves.left
        return read if made is None else ([made(part, generator) for part in batch] for batch in read)

    def last(self) -> dict[str, Augmentation]:
        """Return the last thing that is done to images: scenes are made of them, or they are moved."""
        made: dict[str, Augmentation | None] = {"scenes": self.scenes, "moves": self.moves}
        return {name: augment for name, augment in made.items() if augment is not None}

    @functools.cached_property
    def sample(self) -> Images:
        """Canvases of the first images to train on."""
        rows = self.train[: max(1, min(SAMPLE, SAMPLE_BYTES // math.prod(self.shape)))].sort().values
        read = self._shown(self.reader.read(rows.split(16)))
        if self.ragged:
            return [copy for part in itertools.chain(*read) for copy in self.canvas(part).flatten(0, 1)][:SAMPLE]
        return torch.cat([self.canvas(one_tensor(batch)).flatten(0, 1) for batch in read])[:SAMPLE]

    def range(self) -> list[float]:
        """Return the least and the largest value of the sampled images, as the network sees them."""
        ends = [as_float(torch.stack(part.aminmax())) for part in batches(self.sample, SAMPLE)]
        return [round(float(min(low for low, _ in ends)), 6), round(float(max(high for _, high in ends)), 6)]

    def canvas(self, images: Tensor) -> Tensor:
        """Return what the network sees, ``(batch, copies, channel, *positions)``."""
        return images[:, None] if self.on_canvas else self.coordinates.canvas(images)

    def target(self, images: Tensor, pose: Pose | None) -> Tensor:
        """Return the candidates that stand for ``pose``, or for no move, ``(batch,)``."""
        size = self.shape[1:] if self.on_canvas else tuple(images.shape[2:])  # windows have a size of their own
        zero = torch.zeros(len(images), dtype=torch.int64)
        still = Pose(zero[:, None].expand(-1, len(size)), zero, zero.double())
        return self.coordinates.candidate(pose or still, size)


def _least(shapes: list[torch.Size]) -> tuple[int, ...]:
    """Return the channels of some arrays, and the least they have along each axis: what filters must fit."""
    channels, *sizes = zip(*shapes, strict=False)
    return (channels[0], *map(min, sizes))


def _first_copy(coordinates: Coordinates, images: Tensor) -> Tensor:
    return coordinates.canvas(images)[:, 0]


def _first(reader: Reader, skip_unreadable: bool) -> Tensor:
    """Return the first image that can be read."""
    for batch in reader.read(reader.rows(1), unreadable={} if skip_unreadable else None):
        if batch:
            return batch[0]
    raise ValueError("fit needs at least two images, got 0")
