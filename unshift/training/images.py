"""The images to train on: surveyed once, rejected if they have no upright position, split, and read in a seeded order.

A survey reads every image once and stores a fingerprint and a sum over its pixels that no shift changes. Only images
whose sums agree are read again and compared, so detecting shifted copies takes near-linear time.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from unshift import distributed as ranks
from unshift.coordinates import Coordinates, Pose
from unshift.coordinates.lossy import Kind, Moves
from unshift.data.photos import ImageFolder
from unshift.data.reading import Batch, Reader, fingerprint, one_tensor, open_reader
from unshift.exact import ordered_bits, rank_restored
from unshift.inputs import Images, batches, is_list
from unshift.network import as_float
from unshift.progress import Progress
from unshift.shifts import check_images, undo, unravel
from unshift.training.scenes import Background, Scenes, plain_background

__all__ = ["SAMPLE_BYTES", "Examples", "ImageOptions", "shifted_copies", "survey"]

SAMPLE = 1000  # number of images whose pixels calibrate the integers, if they fit in ``SAMPLE_BYTES``
SAMPLE_BYTES = 2**24
BACKGROUND_OBJECTS = 256  # number of objects whose edges determine their plain background
FINGERPRINTS = 64  # number of training images whose fingerprints a restorer stores
SURVEY_BATCH, SURVEY_PIXELS = 64, 2**23  # images surveyed at a time, at most, and their pixels
SUM_PIXELS = 2**18  # pixels hashed at a time, as int64: they fit in a core's cache


class ImageOptions(TypedDict, total=False):
    """Options of :func:`unshift.fit` for the choice, preparation and moves of images."""

    validation: int | float
    """Number or share of images held out. Default: a tenth."""
    drop_unusable: bool
    """Leave out constant images and moved copies of others instead of raising an error."""
    skip_unreadable: bool
    """Leave out images that cannot be read; ``metadata["unreadable"]`` names them."""
    workers: int
    """Processes that read images during training. Default: those of a ``DataLoader``, else none."""
    scene: Sequence[int] | None
    """Size of the scenes, for coordinates that cut a window out of one: each image is an object, pasted at a random
    place, which is the target. Default: twice the window."""
    background: str | Path | Background
    """Background of scenes: "plain", "noise", "clutter" (pieces of other images, the default), a folder of images, or
    a function as described in :mod:`unshift.training.scenes`."""
    moves: Kind
    """The pixels that fill the vacated side: "circular" (the default), the pixels that left; "zeros"; "edge", the
    nearest pixel; "crop", the rest of the photo, of which the network sees a window smaller by ``scope`` on every side.
    All but the first lose pixels, so moved images are different examples, and training moves them at random."""
    scope: int | None
    """Largest such move along each axis, in pixels. Default: an eighth of the shorter side."""


DEFAULTS: ImageOptions = {
    "validation": 0.1,
    "drop_unusable": False,
    "skip_unreadable": False,
    "workers": 0,
    "scene": None,
    "background": "clutter",
    "moves": "circular",
    "scope": None,
}


class Examples:
    """The images to train on, and their targets. Images in memory, as a list, may have any sizes."""

    def __init__(
        self,
        images: Any,
        coordinates: Coordinates,
        *,
        seed: int = 0,
        progress: bool = False,
        **options: Unpack[ImageOptions],
    ) -> None:
        chosen: ImageOptions = {**DEFAULTS, **options}
        validation, skip = chosen["validation"], chosen["skip_unreadable"]
        if isinstance(images, str | Path):
            images = ImageFolder(images)
        if not isinstance(validation, int) and not 0 < validation < 1:
            raise ValueError(f"validation must be a number of images, or a share between 0 and 1, got {validation!r}")
        self.coordinates, self.seed = coordinates, seed
        self.ragged = is_list(images) and len({image.shape for image in images}) > 1
        self.reader = open_reader(images, chosen["workers"])
        readable = self.reader.read(self.reader.rows(1), unreadable={} if skip else None)
        first = next((batch[0] for batch in readable if batch), None)
        if first is None:
            raise ValueError("fit needs at least two images, got 0")
        check_images(first)
        # Of images of several sizes, filters must fit the least size along each axis.
        shapes = [image.shape for image in images] if self.ragged else [first.shape[1:]]
        self.shape = tuple(map(min, zip(*shapes, strict=False)))
        self.moves = Moves.for_training(chosen["moves"], coordinates, chosen["scope"], self.shape[1:])
        if self.moves is not None:
            self.shape = (self.shape[0], *self.moves.visible_size(self.shape[1:]))
        self.scenes = None
        if coordinates.labels.scenes:
            window = coordinates.describe()["window"]
            size = chosen["scene"] or [2 * n for n in window]
            self.scenes = Scenes(size, window, self.shape, chosen["background"])
        elif chosen["scene"] is not None:
            raise ValueError("scene is for coordinates that cut a window out of one: Scene((32, 32))")
        coordinates.canvases(first)  # raises if the images do not fit
        self.survey = survey(self.reader, first.numel(), skip, progress, self.ragged)
        rows = _usable(self.survey, self.reader, chosen["drop_unusable"])
        held_out = validation if isinstance(validation, int) else max(1, round(validation * len(rows)))
        if not 1 <= held_out < len(rows):
            raise ValueError(f"validation must leave images to train on: got {validation!r} of {len(rows)} images")
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        self.train, self.held = rows[order[held_out:]], rows[order[:held_out]]
        ranks.check_enough(len(self.train))
        if self.scenes is not None:
            objects = self.reader.read(self.train[:BACKGROUND_OBJECTS].sort().values.split(16))
            self.scenes.value = plain_background(itertools.chain.from_iterable(objects))
            self.shape, self.ragged = (self.shape[0], *self.scenes.size), False

    @property
    def size(self) -> list[int]:
        """Size of the images, or of the scenes made of them; empty where images differ in size."""
        return [] if self.ragged else list(self.shape[1:])

    def describe(self) -> dict[str, Any]:
        """Return the coordinates and the properties of the images as plain data."""
        optional = {
            "scenes": self.scenes and self.scenes.describe(),
            "moves": self.moves and self.moves.describe(),
            "unreadable": [*self.survey.unreadable.values()],
        }
        description = {"coordinates": self.coordinates.describe(), "size": self.size, "train_images": len(self.train)}
        return description | {key: value for key, value in optional.items() if value}

    def digest(self) -> str:
        """Return a digest of the contents of all images."""
        return hashlib.sha256(self.survey.contents.numpy().tobytes()).hexdigest()

    def fingerprints(self) -> list[int]:
        """Return the smallest fingerprints of the images, by which they can be recognised."""
        return [int(value) for value in self.survey.contents.unique()[:FINGERPRINTS]]

    def epoch(self, number: int, batch_size: int, step: int = 0) -> Iterator[tuple[Batch, int]]:
        """Yield the batches of an epoch from ``step`` on: this rank's share of each, and the size of the whole batch.

        They depend on the seed, the epoch and the step alone, so a resumed run sees the same ones.
        """
        shuffle = torch.Generator().manual_seed((self.seed * 100_003 + number + 1) % 2**63)
        batches = self.reader.shuffled(self.train, shuffle).split(batch_size)[step:]
        # A rank without a share of a small last batch still reads an image; its loss has weight 0.
        shares = (ranks.share(rows) if len(rows) > ranks.rank() else rows[:1] for rows in batches)
        sizes = (len(rows) for rows in batches)
        return zip(self.reader.read(shares, seed=self.seed * 100_003 + number + 1), sizes, strict=True)

    def held_out(self, batch_size: int) -> Iterator[Batch]:
        """Yield this rank's share of the validation images, the same ones each time."""
        rows = ranks.share(self.held.sort().values if len(self.held) > batch_size else self.held)
        return self._as_seen(self.reader.read(part for part in rows.split(batch_size) if len(part)))

    def _as_seen(self, read: Iterator[Batch]) -> Iterator[Batch]:
        """Yield images, scenes made of them, or images without the pixels that moves lose: the same ones each time."""
        generator = torch.Generator().manual_seed(self.seed)
        make = self.scenes if self.moves is None else self.moves.lose_pixels
        return read if make is None else ([make(part, generator) for part in batch] for batch in read)

    def last_augmentation(self) -> dict[str, Augmentation]:
        """Return the augmentation after all others: making scenes of images, or moving them."""
        last: dict[str, Augmentation | None] = {"scenes": self.scenes, "moves": self.moves}
        return {name: augment for name, augment in last.items() if augment is not None}

    @functools.cached_property
    def sample(self) -> Images:
        """Canvases of the first images to train on."""
        rows = self.train[: max(1, min(SAMPLE, SAMPLE_BYTES // math.prod(self.shape)))].sort().values
        read = self._as_seen(self.reader.read(rows.split(16)))
        parts = itertools.chain.from_iterable(read)
        canvases = [canvas for part in parts for canvas in self.coordinates.canvases(part)]
        if len({canvas.shape[1:] for canvas in canvases}) > 1 or self.ragged:
            return [*itertools.chain.from_iterable(canvases)][:SAMPLE]
        return torch.cat(canvases)[:SAMPLE]

    def range(self) -> list[float]:
        """Return the least and the largest pixel value of the sample."""
        ends = [as_float(torch.stack(part.aminmax())) for part in batches(self.sample, SAMPLE)]
        return [round(float(min(low for low, _ in ends)), 6), round(float(max(high for _, high in ends)), 6)]

    def target(self, images: Tensor, pose: Pose | None) -> Tensor:
        """Return the candidates of ``pose``, or of the identity, ``(batch,)``."""
        size = tuple(images.shape[2:])  # of the window, if images are windows
        zero = torch.zeros(len(images), dtype=torch.int64)
        identity = Pose(zero[:, None].expand(-1, len(size)), zero, zero.double())
        return self.coordinates.candidate(pose or identity, size)


class Survey(NamedTuple):
    """The result of reading every image once."""

    rows: Tensor  # rows of the readable images ``(n,)``; the others follow this order
    contents: Tensor  # fingerprint of the content of each
    sums: Tensor  # shift-invariant sum over the pixels of each
    constant: Tensor  # whether each channel of it is constant
    unreadable: dict[int, str]  # reasons why the other rows could not be read


def survey(
    reader: Reader, pixels: int = 1, skip_unreadable: bool = False, progress: bool = False, ragged: bool = False
) -> Survey:
    """Read every image once, about ``pixels`` values each; ranks share the work.

    Raise a ``ValueError`` if images cannot be read (unless skipped), are not finite, or differ in shape. If they are
    ``ragged``, their sizes may differ.
    """
    unreadable: dict[int, str] = {}
    requested: list[Tensor] = []
    first: tuple[tuple[int, ...], str] | None = None

    def requests() -> Iterator[Tensor]:
        for rows in reader.rows(max(1, min(SURVEY_BATCH, SURVEY_PIXELS // pixels)) * ranks.count()):
            requested.append(ranks.share(rows))
            if len(requested[-1]):
                yield requested[-1]

    table = array("q")  # a list of small tensors would fragment the memory between the large ones
    with Progress("images", len(reader) or None, "images surveyed", progress) as bar:
        for number, batch in enumerate(reader.read(requests(), unreadable=unreadable if skip_unreadable else None)):
            rows = torch.tensor([row for row in requested[number].tolist() if row not in unreadable])
            for images in batch:  # a stream may end within a batch, so rows may outnumber images
                shape, name = tuple(images.shape[1:]), reader.name(int(rows[0]))
                first = first or (shape, name)
                if shape != first[0] and not (ragged and (shape[0], len(shape)) == (first[0][0], len(first[0]))):
                    raise ValueError(
                        f"the images differ in shape: {first[1]} has {first[0]}, {name} has {shape}; "
                        f"give a size for all, such as --size {'x'.join(map(str, first[0][1:]))}"
                    )
                table.extend(_describe(rows[: len(images)], images).flatten().tolist())
                rows = rows[len(images) :]
                bar.update(len(images) * ranks.count())
    columns = ranks.gathered(torch.tensor(table, dtype=torch.int64).view(-1, 4))
    rows, contents, sums, constant = columns[columns[:, 0].argsort()].unbind(1)
    reasons = dict(sorted((row, why) for row, why in ranks.gathered_json([*unreadable.items()])))
    return Survey(rows, contents, sums, constant.bool(), reasons)


def _describe(rows: Tensor, images: Tensor) -> Tensor:
    """Return row, content, sum and constancy of each image, ``(n, 4)``."""
    check_images(images)
    if images.is_floating_point() and not bool(torch.isfinite(images).all()):
        raise ValueError("images must be finite, got NaN or infinity")
    contents = torch.tensor([fingerprint(image) for image in images])
    flat = images.flatten(2)
    constant = (flat == flat[:, :, :1]).all(2).all(1)
    sums = torch.cat([_shift_invariant(part) for part in images.split(max(1, SUM_PIXELS // images[0].numel()))])
    return torch.stack([rows, contents, sums, constant.long()], 1)


def _usable(surveyed: Survey, reader: Reader, drop: bool) -> Tensor:
    """Return the rows of images that are neither constant nor shifted copies. Raise a ``ValueError`` or drop others."""
    count = len(surveyed.rows)
    if count < 2:
        raise ValueError(f"fit needs at least two images, got {count}")
    constant, copies = surveyed.rows[surveyed.constant].tolist(), shifted_copies(surveyed, reader)
    for unusable, what in (
        (constant, "constant: they look the same after every shift"),
        (copies, "shifted copies of others: only one of them can be unshifted"),
    ):
        if unusable and not drop:
            raise ValueError(
                f"{len(unusable)} of {count} images (the first is {reader.name(unusable[0])}) are {what}; remove them, "
                "or drop them with drop_unusable"
            )
    usable = surveyed.rows[~torch.isin(surveyed.rows, torch.tensor([*constant, *copies], dtype=torch.int64))]
    if len(usable) < 2:
        raise ValueError(f"fewer than two of the {count} images are usable: all others are constant or copies")
    return usable


def shifted_copies(surveyed: Survey, reader: Reader) -> list[int]:
    """Return the rows of images that equal an earlier image shifted by anything but 0.

    Only images whose sums agree are read, and compared by their canonical shifts.
    """
    rows, contents, sums, constant, _ = surveyed
    # Plain repeats are harmless: each content is read once, and only if another content has the same sum.
    different = torch.stack([sums, contents], 1)[~constant].unique(dim=0)
    repeated, count = different[:, 0].unique(return_counts=True)
    suspect = torch.isin(sums, repeated[count > 1]) & ~constant
    same_content: dict[int, list[int]] = {}
    for row, content in zip(rows[suspect].tolist(), contents[suspect].tolist(), strict=True):
        same_content.setdefault(content, []).append(row)
    firsts = (torch.tensor(alike[:1]) for alike in same_content.values())
    starts: dict[int, Tensor] = {}
    copies: list[int] = []
    for alike, batch in zip(same_content.values(), reader.read(firsts), strict=True):
        image = one_tensor(batch)
        start = unravel(rank_restored([image], torch.ones(1, dtype=torch.bool)).argmax(1), image.shape[2:])
        if not torch.equal(starts.setdefault(fingerprint(undo(image, start)), start), start):
            copies += alike
    return sorted(copies)


def _shift_invariant(images: Tensor) -> Tensor:
    """Return one int64 per image: the sum of hashed pixels modulo 2^64, which no shift changes."""
    channel = torch.arange(images.shape[1], device=images.device).view(1, -1, 1)
    mixed = (ordered_bits(images).flatten(2) + channel * 0x632BE5AB) * 0x1E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 29)) * 0x3F58476D1CE4E5B9
    return (mixed ^ (mixed >> 32)).sum((1, 2))


# --- augmentations: changes of training images that keep them upright ---------------------------------------------

Augmentation = Callable[[Tensor, torch.Generator], Tensor | tuple[Tensor, Pose]]
"""A function of one batch, random by its generator only, so that a resumed run sees the same images. If it moves the
images, it returns ``(images, pose)``, and the pose is the target."""

SMALLEST_WINDOW = 9  # smallest side of a window: the longest kernel of a preset that takes any size


def mirror(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip each image left to right with probability 1/2."""
    flipped = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(flipped.view(-1, *[1] * (images.ndim - 1)), images.flip(-1), images)


def windows(images: Tensor, generator: torch.Generator) -> Tensor:
    """Crop half of the batches to one window of at least three quarters of each side."""
    skip, *draws = torch.rand(1 + 2 * (images.ndim - 2), generator=generator).tolist()
    if skip < 0.5:
        return images
    for axis, n in enumerate(images.shape[2:]):
        length = max(min(SMALLEST_WINDOW, n), n - int(draws[2 * axis] * (n // 4 + 1)))
        images = images.narrow(2 + axis, int(draws[2 * axis + 1] * (n - length + 1)), length)
    return images


def colour(images: Tensor, generator: torch.Generator) -> Tensor:
    """Change the contrast of each image by up to 40%, and the brightness of each of its channels by up to 20%."""
    spatial = [1] * (images.ndim - 2)
    pixels = as_float(images)
    contrast = 1 + 0.4 * (2 * torch.rand(len(images), 1, *spatial, generator=generator) - 1)
    brightness = 0.4 * (torch.rand(len(images), images.shape[1], *spatial, generator=generator) - 0.5)
    return (pixels - 0.5) * contrast + 0.5 + brightness


AUGMENTATIONS: dict[str, Augmentation] = {"mirror": mirror, "windows": windows, "colour": colour}
"""The augmentations that ``fit`` takes by name."""


def augmentations_by_name(augment: Sequence[str | Augmentation]) -> dict[str, Augmentation]:
    """Return augmentations by name; functions go by their own names."""
    functions = {}
    for item in [augment] if isinstance(augment, str) else augment:
        if not isinstance(item, str):
            functions[getattr(item, "__name__", type(item).__name__)] = item
        elif item in AUGMENTATIONS:
            functions[item] = AUGMENTATIONS[item]
        else:
            names = ", ".join(AUGMENTATIONS)
            raise ValueError(f"no augmentation named {item!r}; there are {names}, or give a function")
    return functions


def augmented(
    images: Tensor, augmentations: dict[str, Augmentation], generator: torch.Generator
) -> tuple[Tensor, Pose | None]:
    """Apply all augmentations to one batch in turn; return the images, and the pose if one of them moved the images."""
    pose = None
    for augment in augmentations.values():
        result = augment(images, generator)
        if not isinstance(result, tuple):
            images = result
        elif pose is None:
            images, pose = result
        else:
            raise ValueError("only one augmentation may move the images")
    return images, pose
