"""What one pass over all images tells of each of them: whether anything can be learnt from it."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator

import torch
from torch import Tensor

from unshift import ranks
from unshift.data.batches import fingerprint, one_tensor
from unshift.data.reading import Reader
from unshift.exact import ordered_bits, rank_restored
from unshift.progress import Progress
from unshift.shifts import check_images, undo

__all__ = ["Survey", "shifted_copies", "usable"]

AT_A_TIME = 64
"""Images looked over at a time, if that is fewer than :data:`PIXELS`."""
PIXELS = 2**23
MIXED = 2**18
"""Pixels whose sums are made at a time, as int64: what a core's cache holds."""


class Survey:
    """Every image read once, by the ranks together.

    Args:
        reader: The images.
        pixels: About how many values an image has.
        skip_unreadable: Note images that cannot be read, and go on.
        progress: Tell how far it is.
        ragged: They may differ in size.

    Raises:
        ValueError: If images cannot be read, are not finite or differ in shape where they must not.
    """

    rows: Tensor
    """Of the images that could be read, ``(n,)``; the others follow this order."""
    contents: Tensor
    """A fingerprint of the content of each."""
    sums: Tensor
    """A sum over its pixels, the same for all its shifts."""
    constant: Tensor
    """Whether all its pixels are the same."""
    unreadable: dict[int, str]
    """Why the others could not be read."""

    def __init__(
        self,
        reader: Reader,
        pixels: int = 1,
        skip_unreadable: bool = False,
        progress: bool = False,
        ragged: bool = False,
    ) -> None:
        self.unreadable, self._ragged = {}, ragged
        self._shape: tuple[tuple[int, ...], str] | None = None
        shares: list[Tensor] = []  # the rows of each batch, as it is asked for

        def asked() -> Iterator[Tensor]:
            for rows in reader.rows(max(1, min(AT_A_TIME, PIXELS // pixels)) * ranks.count()):
                shares.append(ranks.share(rows))
                if len(shares[-1]):
                    yield shares[-1]

        found = array("q")  # not a list of tensors: small ones lie between the large ones that come and go
        with Progress("images", len(reader) or None, "images looked over", progress) as told:
            batches = reader.read(asked(), unreadable=self.unreadable if skip_unreadable else None)
            for number, batch in enumerate(batches):
                rows = torch.tensor([row for row in shares[number].tolist() if row not in self.unreadable])
                for images in batch:  # a stream may end within a batch: rows may be more than images
                    found.extend(self._look(reader, rows[: len(images)], images).flatten().tolist())
                    rows = rows[len(images) :]
                    told.update(len(images) * ranks.count())
        columns = ranks.gathered(torch.tensor(found, dtype=torch.int64).view(-1, 4))
        columns = columns[columns[:, 0].argsort()]
        self.rows, self.contents, self.sums, constant = columns.unbind(1)
        self.constant = constant.bool()
        self.unreadable = dict(sorted((row, why) for row, why in ranks.gathered_json([*self.unreadable.items()])))

    def _look(self, reader: Reader, rows: Tensor, images: Tensor) -> Tensor:
        """Return the columns of some images: row, content, sum and constant."""
        check_images(images)
        shape = images.shape[1:]
        self._check_shape((shape[0], len(shape) - 1) if self._ragged else shape, reader.name(int(rows[0])))
        if images.is_floating_point() and not bool(torch.isfinite(images).all()):
            raise ValueError("images must be finite, got NaN or infinity")
        contents = torch.tensor([fingerprint(image) for image in images])
        flat = images.flatten(2)
        constant = (flat == flat[:, :, :1]).all(2).all(1)
        sums = torch.cat([shift_invariant(part) for part in images.split(max(1, MIXED // images[0].numel()))])
        return torch.stack([rows, contents, sums, constant.long()], 1)

    def _check_shape(self, shape: tuple[int, ...], name: str) -> None:
        first, other = self._shape or (shape, name)
        self._shape = first, other
        if first != shape and self._ragged:
            raise ValueError(
                f"the arrays differ in more than their size: {other} has {first[0]} channels and {first[1]} axes, "
                f"{name} has {shape[0]} and {shape[1]}"
            )
        if first != shape:
            raise ValueError(
                f"the images differ in shape: {other} has {tuple(first)}, {name} has {tuple(shape)}; "
                f"give a size for all, such as --size {'x'.join(map(str, first[1:]))}"
            )


def usable(survey: Survey, reader: Reader, drop: bool) -> Tensor:
    """Return the rows to learn from; refuse (or drop) images that say nothing of where they are.

    Raises:
        ValueError: If some are constant or shifted copies of others and not to be dropped, or fewer than two remain.
    """
    count = len(survey.rows)
    if count < 2:
        raise ValueError(f"fit needs at least two images, got {count}")
    constant, copies = survey.rows[survey.constant], shifted_copies(survey, reader)
    if not drop and len(constant):
        raise ValueError(
            f"{len(constant)} of {count} images are constant (the first is {reader.name(int(constant[0]))}): "
            "no shift shows in them; remove them, or drop them with drop_unusable"
        )
    if not drop and copies:
        raise ValueError(
            f"{len(copies)} of {count} images are shifted copies of others (the first is {reader.name(copies[0])}): "
            "nothing says which of them is unshifted; remove them, or drop them with drop_unusable"
        )
    kept = survey.rows[~survey.constant & ~torch.isin(survey.rows, torch.tensor(copies, dtype=torch.int64))]
    if len(kept) < 2:
        raise ValueError(f"fewer than two of the {count} images are usable: all others are constant or copies")
    return kept


def shifted_copies(survey: Survey, reader: Reader) -> list[int]:
    """Return the rows of images that are an earlier one, shifted by something other than 0. Near-linear.

    Only images whose sums agree are read and compared, by the shift of each that is largest in the tie rule's order.
    """
    varied = (~survey.constant).nonzero().flatten()
    sums, contents = survey.sums[varied], survey.contents[varied]
    # Plain repeats are harmless: of each content one is looked at, and only if another content has the same sum.
    pairs = torch.stack([sums, contents], 1).unique(dim=0)
    _, inverse, count = pairs[:, 0].unique(return_inverse=True, return_counts=True)
    suspects = {*pairs[count[inverse] > 1, 1].tolist()}
    places: dict[int, list[int]] = {}
    for row, content in zip(survey.rows[varied].tolist(), contents.tolist(), strict=True):
        if content in suspects:
            places.setdefault(content, []).append(row)
    firsts = torch.tensor([rows[0] for rows in places.values()], dtype=torch.int64)
    starts: dict[bytes, int] = {}
    copies: list[int] = []
    for rows, batch in zip(places.values(), reader.read(firsts.split(1) if len(firsts) else []), strict=True):
        start, form = _canonical(one_tensor(batch))
        if starts.setdefault(form, start) != start:
            copies += rows
    return sorted(copies)


def _canonical(image: Tensor) -> tuple[int, bytes]:
    """Return the position of an image ``(1, channel, *spatial)`` in its orbit, and a digest that its shifts share."""
    start = int(rank_restored(image[None], torch.ones(1, dtype=torch.bool)).argmax())
    position = torch.stack(torch.unravel_index(torch.tensor([start]), image.shape[2:]), 1)
    form = undo(image, position).contiguous().flatten().view(torch.uint8).numpy().data
    return start, hashlib.sha256(form).digest()


def shift_invariant(images: Tensor) -> Tensor:
    """Return one int64 per image, the same for all its shifts: a sum, modulo 2^64, over its pixels."""
    channel = torch.arange(images.shape[1], device=images.device).view(1, -1, 1)
    mixed = (ordered_bits(images).flatten(2) + channel * 0x632BE5AB) * 0x1E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 29)) * 0x3F58476D1CE4E5B9
    return (mixed ^ (mixed >> 32)).sum((1, 2))
