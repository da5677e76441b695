"""The group action: apply a circular shift to images, undo it, compose two.

Convention
----------
``images`` is ``(batch, channel, *spatial)`` with 1, 2 or 3 spatial axes. ``shift`` is an integer
tensor ``(batch, d)``, one row per image: **the shift that was applied**. It is the paper's
translation ``T^M`` (Definition "Translation"), indices taken modulo the size::

    apply(x, s)[..., I] == x[..., I - s]        apply([0, 1, 2, 3], 1) == [3, 0, 1, 2]
    undo(x, s) == apply(x, -s)                  undo([3, 0, 1, 2], 1) == [0, 1, 2, 3]

For an image, axis 0 of the shift moves *down* and axis 1 moves *right*. Everything is an integer
gather: no interpolation, no arithmetic on pixels, hence exact for every dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["add_margin", "apply", "check_images", "compose", "take", "times", "undo"]


LARGE = 2**15
"""Numbers of an image from which on rolling it is quicker than picking its pixels: ``benchmarks/run.py moves``."""

_NO_GATHER = {torch.uint16, torch.uint32, torch.uint64}


def times(size: Sequence[int]) -> str:
    """Return a size as messages tell it.

    >>> times((32, 48))
    '32x48'
    """
    return "x".join(map(str, size))


def take(flat: Tensor, source: Tensor) -> Tensor:
    """Gather pixels ``(batch, channel, n)`` along the last axis, whatever their dtype: bits are moved, not numbers."""
    kind = flat.dtype
    if kind in _NO_GATHER or flat.element_size() == 1:  # PyTorch moves some of these only as integers of their width
        moved = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
        return flat.contiguous().view(moved).gather(2, source).view(kind)
    return flat.gather(2, source)


def check_images(images: Tensor) -> tuple[int, ...]:
    """Return the spatial size of ``images``, or raise a ``ValueError`` that says what is wrong."""
    if not isinstance(images, Tensor):
        raise ValueError(f"images must be a torch.Tensor (batch, channel, *spatial), got {type(images).__name__}")
    if images.ndim not in (3, 4, 5):
        raise ValueError(
            "images must be (batch, channel, *spatial) with 1, 2 or 3 spatial axes, "
            f"got {images.ndim} axes: shape {tuple(images.shape)}"
        )
    if 0 in images.shape[1:]:
        raise ValueError(f"images must have at least one channel and pixel, got shape {tuple(images.shape)}")
    if images.is_complex():
        raise ValueError(f"images must be real, got {images.dtype}")
    if images.layout != torch.strided or images.is_meta:
        raise ValueError(f"images must be dense and in memory, got layout {images.layout} on {images.device}")
    return tuple(images.shape[2:])


def _check_shift(images: Tensor, shift: Tensor) -> tuple[int, ...]:
    size = check_images(images)
    wanted = (images.shape[0], len(size))
    if not isinstance(shift, Tensor):
        raise ValueError(f"shift must be an integer tensor of shape {wanted}, got {type(shift).__name__}")
    if shift.is_floating_point() or shift.is_complex() or shift.dtype == torch.bool:
        raise ValueError(f"shift must be an integer tensor, got {shift.dtype}")
    if tuple(shift.shape) != wanted:
        raise ValueError(
            f"shift must have shape (batch, d) = {wanted} for images of shape {tuple(images.shape)}, "
            f"got {tuple(shift.shape)}"
        )
    return size


def add_margin(images: Tensor, pad: int, value: float = 0.0) -> Tensor:
    """Put ``images`` on a margin of ``pad`` constant pixels; a negative one is cut off."""
    return F.pad(images, [pad] * 2 * (images.ndim - 2), value=value) if pad else images


def apply(images: Tensor, shift: Tensor) -> Tensor:
    """Shift each image circularly by its own row of ``shift``.

    Any integer is allowed (negative, larger than the image), and gradients flow to ``images``.

    >>> apply(torch.tensor([[[0, 1, 2, 3]]]), torch.tensor([[1]]))
    tensor([[[3, 0, 1, 2]]])

    Args:
        images: ``(batch, channel, *spatial)``, of any type.
        shift: Integers ``(batch, d)``, one row per image.

    Returns:
        The shifted images, of the same shape and type.

    Raises:
        ValueError: If the shapes do not fit, or ``shift`` does not hold integers.
    """
    return _moved(images, shift, 1)


def _moved(images: Tensor, shift: Tensor, sign: int) -> Tensor:
    """Shift each image by ``sign`` times its row of ``shift``."""
    size = _check_shift(images, shift)
    batch, channels = images.shape[:2]
    learning = images.requires_grad and torch.is_grad_enabled()
    if not (learning or torch.compiler.is_compiling()) and (batch == 1 or images.numel() >= LARGE * batch > 0):
        rows = [[sign * move % n for move, n in zip(row, size, strict=True)] for row in shift.tolist()]
        return _rolled(images, rows)
    # One flat index per pixel, built axis by axis: source = destination - shift, modulo the size.
    source = torch.zeros(batch, 1, dtype=torch.int64, device=images.device)
    for axis, n in enumerate(size):
        # Reduced before it is subtracted, so that no int64 shift, however large, overflows.
        moved = sign * (shift[:, axis, None].to(images.device, torch.int64) % n)
        along = (torch.arange(n, device=images.device) - moved) % n
        source = (source[:, :, None] * n + along[:, None, :]).flatten(1)
    source = source[:, None, :].expand(batch, channels, math.prod(size))
    return take(images.flatten(2), source).reshape(images.shape)


def _rolled(images: Tensor, shift: list[list[int]]) -> Tensor:
    """Do what :func:`apply` does, image by image: without an index of every pixel, which costs more."""
    if images.shape[0] == 1:
        moves = {axis: move for axis, move in enumerate(shift[0], 2) if move}  # a roll by nothing is the slowest
        # In one order of memory for every move, since what follows may add up in it: with the channels last, as in
        # photos, or the usual one.
        last = images.ndim == 4 and images.is_contiguous(memory_format=torch.channels_last)
        if not moves:
            return images.clone(memory_format=torch.channels_last if last else torch.contiguous_format)
        if not last:
            return images.roll([*moves.values()], [*moves])
        return images.permute(0, 2, 3, 1).roll([*moves.values()], [axis - 1 for axis in moves]).permute(0, 3, 1, 2)
    found = torch.empty_like(images, memory_format=torch.contiguous_format)
    for at, row in enumerate(shift):
        found[at : at + 1] = _rolled(images[at : at + 1], [row])
    return found


def undo(images: Tensor, shift: Tensor) -> Tensor:
    """Undo ``shift``: the inverse of :func:`apply`, as exact as it is.

    >>> undo(torch.tensor([[[3, 0, 1, 2]]]), torch.tensor([[1]]))
    tensor([[[0, 1, 2, 3]]])

    Args:
        images: ``(batch, channel, *spatial)``, of any type.
        shift: Integers ``(batch, d)``: the shift that was applied to each image.

    Returns:
        The images as they were before that shift.

    Raises:
        ValueError: If the shapes do not fit, or ``shift`` does not hold integers.
    """
    return _moved(images, shift, -1)


def compose(first: Tensor, second: Tensor, size: tuple[int, ...]) -> Tensor:
    """Return the one shift, in ``[0, size)``, that does ``first`` and then ``second``.

    >>> compose(torch.tensor([[3]]), torch.tensor([[2]]), (4,))
    tensor([[1]])

    Args:
        first: Integers ``(..., d)``.
        second: Integers ``(..., d)``.
        size: The spatial size of the images.

    Returns:
        Integers ``(..., d)``.

    Raises:
        ValueError: If the shifts do not hold integers, or not one for each axis of ``size``.
    """
    if any(shift.is_floating_point() or shift.is_complex() for shift in (first, second)):
        raise ValueError(f"shifts must be integer tensors, got {first.dtype} and {second.dtype}")
    if first.shape[-1] != len(size) or second.shape[-1] != len(size):
        raise ValueError(
            f"shifts must end in {len(size)} axes for size {size}, "
            f"got shapes {tuple(first.shape)} and {tuple(second.shape)}"
        )
    modulus = torch.tensor(size, dtype=torch.int64, device=first.device)
    # Reduced before they are added, so that no two int64 shifts overflow.
    return (first.to(torch.int64) % modulus + second.to(torch.int64) % modulus) % modulus
