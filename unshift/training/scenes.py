"""Scenes: object images pasted at random places on backgrounds, seeded, made batch by batch.

A scene is an object image on a background of a given size. The object's place is random, and it is the target; the
scene is rolled so that this place is position 0, the target of every other kind of training. To an equivariant network
this is the same example.

If objects have a plain background (digits on black), only the object is pasted: each pixel is taken from object or
scene, whichever differs more from the plain value. Objects without a plain background (photos) cover the scene.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.coordinates import Pose, draw_shifts
from unshift.data.photos import ImageFolder
from unshift.data.pixels import resize
from unshift.network import as_float
from unshift.shifts import apply, check_images, format_size, undo

__all__ = ["BACKGROUNDS", "Background", "Scenes", "clutter", "cut", "noise", "paste", "plain", "plain_background"]

Background = Callable[[Tensor, Sequence[int], float, torch.Generator], Tensor]
"""Maps objects ``(n, channel, *spatial)``, a size, the plain value and a generator to backgrounds of that size."""

PIECE = 4
"""Side of an object over the side of a piece of clutter: 8x8 of 32x32."""
COVERED = 6
"""At most one pixel in this many is clutter: ten pieces of 8x8 in a scene of 64x64."""
NOISE = 0.5
"""Largest amplitude of noise, as a share of the objects' range."""


def plain(objects: Tensor, size: Sequence[int], value: float, generator: torch.Generator) -> Tensor:
    """Return backgrounds of one value."""
    return objects.new_full((*objects.shape[:2], *size), value)


def noise(objects: Tensor, size: Sequence[int], value: float, generator: torch.Generator) -> Tensor:
    """Return uniform noise above the plain value (or below a bright one), with a random amplitude for each scene."""
    low, high = (float(end) for end in objects.aminmax())
    reach = NOISE * (high - value if high - value >= value - low else low - value)
    level = torch.rand(len(objects), *[1] * (objects.ndim - 1), generator=generator)
    return value + reach * level * torch.rand(*objects.shape[:2], *size, generator=generator)


def clutter(
    objects: Tensor, size: Sequence[int], value: float, generator: torch.Generator, pieces: int | None = None
) -> Tensor:
    """Return plain backgrounds with pieces of *other* objects at random places.

    Args:
        objects: The objects. Pieces are cut from around the middle of each.
        size: Size of the backgrounds.
        value: Their plain value.
        generator: Source of randomness.
        pieces: Number of pieces in each scene. Default: random, up to what :data:`COVERED` allows.
    """
    scenes, count = plain(objects, size, value, generator), len(objects)
    side = [max(1, n // PIECE) for n in objects.shape[2:]]
    most = math.prod(size) // (COVERED * math.prod(side)) if pieces is None else pieces
    wanted = torch.randint(most + 1, (count,), generator=generator) if pieces is None else torch.full((count,), most)
    for piece in range(most):
        other = (torch.arange(count) + torch.randint(1, max(2, count), (count,), generator=generator)) % count
        middle = draw_shifts([n // 2 + 1 for n in objects.shape[2:]], count, None, generator)
        corner = middle + torch.tensor([n // 4 - s // 2 for n, s in zip(objects.shape[2:], side, strict=True)])
        place = draw_shifts([n - s + 1 for n, s in zip(size, side, strict=True)], count, None, generator)
        shown = piece < wanted
        scenes[shown] = paste(scenes, cut(objects[other], corner, side), place, value)[shown]
    return scenes


BACKGROUNDS: dict[str, Background] = {"plain": plain, "noise": noise, "clutter": clutter}
"""The backgrounds that :func:`unshift.fit` takes by name."""


class Photos:
    """Backgrounds cropped at random from the images in a folder; smaller images are enlarged to cover a scene."""

    def __init__(self, folder: str | Path, channels: int) -> None:
        self.files = ImageFolder(folder, channels=channels)

    def __call__(self, objects: Tensor, size: Sequence[int], value: float, generator: torch.Generator) -> Tensor:
        """See :data:`Background`."""
        crops = []
        for row in torch.randint(len(self.files), (len(objects),), generator=generator).tolist():
            photo = as_float(self.files[row])[None]
            scale = max(1.0, *(n / m for n, m in zip(size, photo.shape[2:], strict=True)))
            height, width = (max(n, round(scale * m)) for n, m in zip(size, photo.shape[2:], strict=True))
            photo = resize(photo, (height, width))
            crops.append(cut(photo, draw_shifts([height - size[0] + 1, width - size[1] + 1], 1, None, generator), size))
        return torch.cat(crops)


def background_by_name(background: str | Path | Background, channels: int) -> tuple[str, Background]:
    """Return the name of a background and its function. Raise a ``ValueError`` if there is none."""
    if callable(background):
        return getattr(background, "__name__", type(background).__name__), background
    if str(background) in BACKGROUNDS:
        return str(background), BACKGROUNDS[str(background)]
    if not Path(background).is_dir():
        raise ValueError(
            f"no background named {str(background)!r}, and no such folder; there are {', '.join(BACKGROUNDS)}, "
            "or give a folder of images"
        )
    return Path(background).name, Photos(background, channels)


def plain_background(objects: Iterable[Tensor]) -> float | None:
    """Return the most frequent value at the edges of objects; None if fewer than half of these pixels have it."""
    edges = [
        end.flatten()
        for batch in objects
        for axis, n in enumerate(batch.shape[2:], 2)
        for end in (batch.narrow(axis, 0, 1), batch.narrow(axis, n - 1, 1))
    ]
    values, counts = as_float(torch.cat(edges)).unique(return_counts=True)
    return float(values[counts.argmax()]) if 2 * int(counts.max()) > int(counts.sum()) else None


class Scenes:
    """Makes scenes of objects: an augmentation whose result is not moved.

    Args:
        size: Size of the scenes.
        window: Size of the windows to be cut out of them: the middle of larger objects.
        shape: Shape of the objects, ``(channel, *spatial)``.
        background: A name, a folder's path, or a function.
        value: The plain value around the objects, or None if there is none.
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
            raise ValueError(f"a window of {format_size(window)} is larger than the object images, {format_size(own)}")
        if len(own) != len(self.size) or any(n > s for n, s in zip(own, size, strict=True)):
            raise ValueError(f"objects of {format_size(own)} do not fit into scenes of {format_size(size)}")
        self.name, self.background = background_by_name(background, channels)

    def describe(self) -> dict[str, Any]:
        """Return plain data, for a restorer's metadata."""
        return {"size": list(self.size), "background": self.name, "plain": self.value}

    def __call__(self, objects: Tensor, generator: torch.Generator) -> Tensor:
        """Return one scene of each object, rolled so that its window is at position 0."""
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
    """Cut a window of ``size`` out of each image at its ``corner`` ``(batch, d)``, with wrap-around."""
    windows = undo(images, corner)
    for axis, n in enumerate(size, 2):
        windows = windows.narrow(axis, 0, n)
    return windows.contiguous()


def paste(scenes: Tensor, objects: Tensor, place: Tensor, value: float | None) -> Tensor:
    """Paste an object into each scene at its ``place``, with wrap-around.

    Args:
        scenes: ``(batch, channel, *spatial)``.
        objects: One for each scene, no larger.
        place: Integers ``(batch, d)``.
        value: The objects' plain value, where the scene shows through; None: objects cover the scene.
    """
    sides = zip(reversed(scenes.shape[2:]), reversed(objects.shape[2:]), strict=True)
    margin = [side for whole, part in sides for side in (0, whole - part)]
    placed = apply(F.pad(objects, margin), place)
    shown = apply(F.pad(torch.ones_like(objects, dtype=torch.bool), margin), place)
    if value is not None:
        shown &= (placed - value).abs() >= (scenes - value).abs()
    return torch.where(shown, placed, scenes)
