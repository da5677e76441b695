"""Scenes to learn from: object images pasted at random places on backgrounds, streamed and seeded.

A scene is made of one object image and a background of the wanted size. The object goes to a random place, and that
place is the target; the scene is handed on rolled so that the place is position 0. To a network that commutes with
shifts the two are the same example, and position 0 is the target of every other kind of training.

Objects on a plain ground (digits on black) are pasted without it: of object and background, the pixel that is further
from that plain value shows. Objects without one (photos) cover what is behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unshift.coordinates import Pose, draw_shifts
from unshift.data.photos import ImageFolder
from unshift.data.pixels import resize
from unshift.estimator import as_float
from unshift.shifts import check_images, take, times, undo

__all__ = ["BACKGROUNDS", "Background", "Scenes", "clutter", "cut", "noise", "paste", "plain", "plain_ground"]

Background = Callable[[Tensor, Sequence[int], float, torch.Generator], Tensor]
"""From objects ``(n, channel, *spatial)``, a size, the plain value and a generator to backgrounds of that size."""

PIECE = 4
"""Clutter is cut into pieces of this part of an object's side: 8x8 of 32x32."""
COVERED = 6
"""At most one pixel in this many is clutter: ten pieces of 8x8 in a scene of 64x64."""
NOISE = 0.5
"""The strongest noise, as a share of the objects' range."""


def plain(objects: Tensor, size: Sequence[int], value: float, generator: torch.Generator) -> Tensor:
    """Return backgrounds of one value."""
    return objects.new_full((*objects.shape[:2], *size), value)


def noise(objects: Tensor, size: Sequence[int], value: float, generator: torch.Generator) -> Tensor:
    """Return uniform noise between the plain value and a level of each scene's own, up to half the objects' range."""
    low, high = (float(end) for end in objects.aminmax())
    reach = NOISE * (high - value if high - value >= value - low else low - value)
    level = torch.rand(len(objects), *[1] * (objects.ndim - 1), generator=generator)
    return value + reach * level * torch.rand(*objects.shape[:2], *size, generator=generator)


def clutter(
    objects: Tensor, size: Sequence[int], value: float, generator: torch.Generator, pieces: int | None = None
) -> Tensor:
    """Return pieces of *other* objects, strewn over a plain ground.

    Args:
        objects: Where the pieces are cut from: around the middle of each, where there is something to see.
        size: Of the backgrounds.
        value: Of the ground.
        generator: What is drawn from.
        pieces: In every scene. None: another number in each, up to what :data:`COVERED` allows.
    """
    found, count = plain(objects, size, value, generator), len(objects)
    side = [max(1, n // PIECE) for n in objects.shape[2:]]
    most = math.prod(size) // (COVERED * math.prod(side)) if pieces is None else pieces
    wanted = torch.randint(most + 1, (count,), generator=generator) if pieces is None else torch.full((count,), most)
    for piece in range(most):
        other = (torch.arange(count) + torch.randint(1, max(2, count), (count,), generator=generator)) % count
        middle = draw_shifts([n // 2 + 1 for n in objects.shape[2:]], count, None, generator)
        corner = middle + torch.tensor([n // 4 - s // 2 for n, s in zip(objects.shape[2:], side, strict=True)])
        place = draw_shifts([n - s + 1 for n, s in zip(size, side, strict=True)], count, None, generator)
        shown = piece < wanted
        found[shown] = paste(found, cut(objects[other], corner, side), place, value)[shown]
    return found


BACKGROUNDS: dict[str, Background] = {"plain": plain, "noise": noise, "clutter": clutter}
"""The backgrounds that :func:`unshift.fit` knows by name."""


class Photos:
    """Backgrounds cut at random places out of the images in a folder; small ones are scaled up to cover a scene.

    Raises:
        ValueError: If the folder holds no images.
    """

    def __init__(self, folder: str | Path, channels: int) -> None:
        self.files = ImageFolder(folder, channels=channels)

    def __call__(self, objects: Tensor, size: Sequence[int], value: float, generator: torch.Generator) -> Tensor:
        """See :data:`Background`."""
        found = []
        for row in torch.randint(len(self.files), (len(objects),), generator=generator).tolist():
            photo = as_float(self.files[row])[None]
            scale = max(1.0, *(n / m for n, m in zip(size, photo.shape[2:], strict=True)))
            height, width = (max(n, round(scale * m)) for n, m in zip(size, photo.shape[2:], strict=True))
            photo = resize(photo, (height, width))
            found.append(cut(photo, draw_shifts([height - size[0] + 1, width - size[1] + 1], 1, None, generator), size))
        return torch.cat(found)


def named(background: str | Path | Background, channels: int) -> tuple[str, Background]:
    """Return a background by its name, a folder's path or a function of the caller's own.

    Raises:
        ValueError: If it is none of these, or the folder holds no images.
    """
    if callable(background):
        return getattr(background, "__name__", type(background).__name__), background
    if str(background) in BACKGROUNDS:
        return str(background), BACKGROUNDS[str(background)]
    if not Path(background).is_dir():
        raise ValueError(
            f"no background named {str(background)!r}, and no folder; there are {', '.join(BACKGROUNDS)}, "
            "or give a folder of images"
        )
    return Path(background).name, Photos(background, channels)


def plain_ground(objects: Iterable[Tensor]) -> float | None:
    """Return the value that most pixels along the edges of some objects have; None if fewer than half have one."""
    edges = [
        end.flatten()
        for some in objects
        for axis, n in enumerate(some.shape[2:], 2)
        for end in (some.narrow(axis, 0, 1), some.narrow(axis, n - 1, 1))
    ]
    found, counts = as_float(torch.cat(edges)).unique(return_counts=True)
    return float(found[counts.argmax()]) if 2 * int(counts.max()) > int(counts.sum()) else None


class Scenes:
    """Makes scenes of objects, batch by batch: an augmentation whose result is unmoved.

    Args:
        size: Of the scenes.
        window: Of what will be cut out of them: the middle of an object, if that is larger.
        shape: Of the objects, ``(channel, *spatial)``.
        background: A name, a folder's path, or a function.
        value: The plain value around the objects, or None if they have none.

    Raises:
        ValueError: If the window is larger than the objects, or these than the scenes, or there is no such background.
    """

    def __init__(
        self,
        size: Sequence[int],
        window: Sequence[int],
        shape: Sequence[int],
        background: str | Path | Background = "clutter",
        value: float | None = None,
    ) -> None:
        channels, *own = shape
        self.size, self.window, self.value = tuple(size), tuple(window), value
        if len(own) != len(self.window) or any(w > n for w, n in zip(window, own, strict=True)):
            raise ValueError(f"a window of {times(window)} is larger than the object images, {times(own)}")
        if len(own) != len(self.size) or any(n > s for n, s in zip(own, size, strict=True)):
            raise ValueError(f"objects of {times(own)} do not fit into scenes of {times(size)}")
        self.name, self.background = named(background, channels)

    def describe(self) -> dict[str, Any]:
        """Return plain data, for a restorer's metadata."""
        return {"size": list(self.size), "background": self.name, "plain": self.value}

    def __call__(self, objects: Tensor, generator: torch.Generator) -> Tensor:
        """Return one scene of each object, rolled so that its window stands at position 0."""
        scenes, pose = self.posed(objects, generator)
        return undo(scenes, pose.shift)

    def posed(self, objects: Tensor, generator: torch.Generator) -> tuple[Tensor, Pose]:
        """Return one scene of each object, and the place of its window."""
        pixels, own = as_float(objects), check_images(objects)
        behind = self.background(pixels, self.size, self.value or 0.0, generator)
        place = draw_shifts([s - n + 1 for s, n in zip(self.size, own, strict=True)], len(pixels), None, generator)
        middle = torch.tensor([(n - w) // 2 for n, w in zip(own, self.window, strict=True)])
        return paste(behind, pixels, place, self.value), Pose(place + middle)


def cut(images: Tensor, corner: Tensor, size: Sequence[int]) -> Tensor:
    """Cut a part of ``size`` out of each image, from its ``corner`` ``(batch, d)`` on; beyond the end it goes round."""
    found = take(images.flatten(2), _pixels(corner, size, images.shape[2:]).expand(-1, images.shape[1], -1))
    return found.view(*images.shape[:2], *size)


def paste(scenes: Tensor, objects: Tensor, place: Tensor, value: float | None) -> Tensor:
    """Paste an object into each scene at its ``place`` ``(batch, d)``; beyond the end it goes round.

    Args:
        scenes: ``(batch, channel, *spatial)``.
        objects: As many, no larger.
        place: Integers ``(batch, d)``.
        value: The objects' plain value, through which the scene shows; None: they have none, and cover it.
    """
    at = _pixels(place, objects.shape[2:], scenes.shape[2:]).expand(-1, scenes.shape[1], -1)
    flat, shown = scenes.flatten(2), objects.flatten(2)
    if value is not None:
        behind = flat.gather(2, at)
        shown = torch.where((shown - value).abs() >= (behind - value).abs(), shown, behind)
    return flat.scatter(2, at, shown).view(scenes.shape)


def _pixels(corner: Tensor, size: Sequence[int], whole: Sequence[int]) -> Tensor:
    """Return the flat numbers of the pixels of a part, ``(batch, 1, pixels)``."""
    found = torch.zeros(len(corner), 1, dtype=torch.int64)
    for axis, (length, n) in enumerate(zip(size, whole, strict=True)):
        along = (corner[:, axis, None] + torch.arange(length)) % n
        found = (found[:, :, None] * n + along[:, None, :]).flatten(1)
    return found[:, None]
