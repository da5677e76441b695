"""Images that can be learnt from: collected from whatever holds them, and refused where no shift shows in them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from unshift.coordinates import Coordinates, Pose
from unshift.estimator import as_float
from unshift.exact import ordered_bits, rank_restored
from unshift.shifts import check_images, undo

__all__ = ["Examples", "collect", "digest", "image_of", "shifted_copies", "usable"]


def collect(images: Any, through: Callable[[Tensor], Tensor]) -> Tensor:
    """Collect images from whatever holds them: a tensor, an array, a ``Dataset`` or a ``DataLoader``.

    Args:
        images: Tensor or array ``(n, channel, *spatial)``, or a ``Dataset`` or ``DataLoader`` of images; labels, if
            any, are ignored.
        through: What to keep of each part: images that do not fit in memory may have canvases that do.

    Raises:
        ValueError: If they differ in shape, or are not finite, or there are none.
    """
    found = [through(part) for part in _parts(images)]
    if not found:
        raise ValueError("fit needs at least two images, got 0")
    if len({part.shape[1:] for part in found}) > 1:
        raise ValueError("the images differ in shape; resize or crop them to one size first")
    return (torch.cat(found) if len(found) > 1 else found[0]).detach()


def _parts(images: Any) -> Iterator[Tensor]:
    """Yield the images part by part, each checked."""
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(np.ascontiguousarray(images))
    if isinstance(images, Tensor):
        check_images(images)
        parts: Iterable[Tensor] = [images] if len(images) else []
    elif isinstance(images, DataLoader):
        parts = (image_of(batch) for batch in images)
    elif isinstance(images, Dataset) or hasattr(images, "__getitem__"):
        parts = (
            _stacked([image_of(images[i]) for i in rows.tolist()])
            for rows in torch.arange(len(images)).split(64)
            if len(rows)
        )
    else:
        raise ValueError(f"images must be a tensor, an array, a Dataset or a DataLoader, got {type(images).__name__}")
    for part in parts:
        check_images(part)
        if part.is_floating_point() and not all(bool(torch.isfinite(some).all()) for some in part.split(1024)):
            raise ValueError("images must be finite, got NaN or infinity")
        yield part


def _stacked(images: list[Tensor]) -> Tensor:
    if len({image.shape for image in images}) > 1:
        raise ValueError("the images differ in shape; resize or crop them to one size first")
    return torch.stack(images)


class Examples:
    """The images to learn from: where canvases are smaller, and nothing is done to images first, only those.

    Args:
        images: Whatever :func:`collect` takes.
        coordinates: What to undo.
        drop_unusable: Leave out images that cannot be learnt from instead of refusing them.
        whole: Keep the images themselves: something is done to them first.
    """

    def __init__(self, images: Any, coordinates: Coordinates, drop_unusable: bool, whole: bool) -> None:
        self.coordinates = coordinates
        self.shape: tuple[int, ...] = ()
        self.on_canvas = False

        def keep(part: Tensor) -> Tensor:
            canvas = coordinates.canvas(part[:1])
            self.shape = tuple(part.shape[1:])
            self.on_canvas = not whole and canvas.shape[1] == 1 and canvas.numel() < part[:1].numel()
            return torch.cat([coordinates.canvas(some)[:, 0] for some in part.split(256)]) if self.on_canvas else part

        self.data = usable(collect(images, keep), drop_unusable)

    def split(self, validation: int | float, seed: int) -> tuple[Tensor, Tensor]:
        """Return the images to train on, and those held out: a number of them, or a share.

        Raises:
            ValueError: If nothing is left to train on, or to hold out.
        """
        if not isinstance(validation, int) and not 0 < validation < 1:
            raise ValueError(f"validation must be a number of images, or a share between 0 and 1, got {validation!r}")
        held_out = validation if isinstance(validation, int) else max(1, round(validation * len(self.data)))
        if not 1 <= held_out < len(self.data):
            raise ValueError(f"validation must leave images to train on: got {validation!r} of {len(self.data)} images")
        order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(seed))
        return self.data[order[held_out:]], self.data[order[:held_out]]

    def describe(self) -> dict[str, Any]:
        """Return what is to be undone, and the size of the images, as plain data."""
        return {"coordinates": self.coordinates.describe(), "size": list(self.shape[1:])}

    def canvas(self, batch: Tensor) -> Tensor:
        """Return what the network sees, ``(batch, copies, channel, *positions)``."""
        return batch[:, None] if self.on_canvas else self.coordinates.canvas(batch)

    def target(self, batch: Tensor, pose: Pose | None) -> Tensor:
        """Return the candidates that stand for ``pose``, or for no move, ``(batch,)``."""
        size = self.shape[1:] if self.on_canvas else tuple(batch.shape[2:])  # windows have a size of their own
        zero = torch.zeros(len(batch), dtype=torch.int64)
        still = Pose(zero[:, None].expand(-1, len(size)), zero, zero.double())
        return self.coordinates.candidate(pose or still, size)

    def sample(self, images: Tensor, count: int) -> Tensor:
        """Return ``count`` canvases."""
        return self.canvas(images[:count]).flatten(0, 1)[:count]

    def range(self, images: Tensor) -> list[float]:
        """Return the least and the largest value of some images, as the network sees them."""
        some = as_float(images[:1000])
        return [round(float(some.min()), 6), round(float(some.max()), 6)]


def digest(images: Tensor) -> str:
    """Return the SHA-256 of images: a checkpoint is for these, and no others of the same name and number."""
    digest = hashlib.sha256(f"{images.dtype} {tuple(images.shape)}".encode())
    for part in images.split(1024):
        digest.update(part.contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def image_of(item: Any) -> Tensor:
    """Take the image out of an ``(image, label, ...)`` item."""
    while isinstance(item, list | tuple):
        item = item[0]
    return torch.as_tensor(item)


def usable(images: Tensor, drop: bool) -> Tensor:
    """Refuse (or drop) images that say nothing of where they are: constant ones, and shifted copies."""
    if len(images) < 2:
        raise ValueError(f"fit needs at least two images, got {len(images)}")
    constant = torch.cat([_constant(part) for part in images.split(256)])
    copies = shifted_copies(images[~constant])
    if not drop and constant.any():
        raise ValueError(
            f"{int(constant.sum())} of {len(images)} images are constant (the first is number "
            f"{int(constant.nonzero()[0])}): no shift shows in them; "
            "remove them, or drop them with drop_unusable"
        )
    if not drop and len(copies):
        raise ValueError(
            f"{len(copies)} of {len(images)} images are shifted copies of others (the first is number {copies[0]}): "
            "nothing says which of them is unshifted; remove them, or drop them with drop_unusable"
        )
    kept = (~constant).nonzero().flatten()
    mask = torch.ones(len(kept), dtype=torch.bool)
    mask[copies] = False
    if int(mask.sum()) < 2:
        raise ValueError(f"fewer than two of the {len(images)} images are usable: all others are constant or copies")
    return images if bool(mask.all()) and len(kept) == len(images) else images[kept[mask]]


def _constant(images: Tensor) -> Tensor:
    flat = images.flatten(2)
    return (flat == flat[:, :, :1]).all(2).all(1)


def shifted_copies(images: Tensor) -> list[int]:
    """Return the images that are an earlier one, shifted by something other than 0. Near-linear.

    Sums of a hash of each pixel are the same for all shifts, so only images whose sums agree are
    compared, by the shift of each that is largest in the tie rule's order.
    """
    prints = (
        torch.cat([_fingerprint(part) for part in images.split(max(1, 2**22 // images[0].numel()))])
        if len(images)
        else torch.zeros(0)
    )
    _, group, count = prints.unique(return_inverse=True, return_counts=True)
    seen: dict[bytes, int] = {}
    copies = []
    for index in (count[group] > 1).nonzero().flatten().tolist():
        start = int(rank_restored(images[index][None, None], torch.ones(1, dtype=torch.bool)).argmax())
        position = torch.stack(torch.unravel_index(torch.tensor([start]), images.shape[2:]), 1)
        form = undo(images[index : index + 1], position).contiguous().flatten().view(torch.uint8).numpy().tobytes()
        if seen.setdefault(form, start) != start:  # at the same place it is a plain repeat, which is harmless
            copies.append(index)
    return copies


def _fingerprint(images: Tensor) -> Tensor:
    """Return one int64 per image, the same for all its shifts: a sum, modulo 2^64, over its pixels."""
    channel = torch.arange(images.shape[1], device=images.device).view(1, -1, 1)
    mixed = (ordered_bits(images).flatten(2) + channel * 0x632BE5AB) * 0x1E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 29)) * 0x3F58476D1CE4E5B9
    return (mixed ^ (mixed >> 32)).sum((1, 2))
