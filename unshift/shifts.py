"""The group action: apply a circular shift to images, undo it, compose two.

Convention
----------
``images`` is ``(batch, channel, *spatial)`` with 1, 2 or 3 spatial axes. ``shift`` is an integer
tensor ``(batch, d)``, one row per image: **the shift that was applied**. It is the paper's
translation ``T^M`` (Definition "Translation"), indices taken modulo the size::

    apply(x, s)[..., I] == x[..., I - s]        apply([0, 1, 2, 3], 1) == [3, 0, 1, 2]
    undo(x, s) == apply(x, -s)                  undo([3, 0, 1, 2], 1) == [0, 1, 2, 3]

For an image, axis 0 of the shift moves *down* and axis 1 moves *right*. Pixels are gathered or
rolled: no interpolation, no arithmetic on pixels, hence exact for every dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = [
    "add_margin",
    "all_shifts",
    "apply",
    "check_images",
    "compose",
    "format_size",
    "integer_view",
    "movable",
    "ravel",
    "take",
    "undo",
    "unravel",
    "view_as",
]


LARGE = 2**15  # element count of an image above which ``roll`` beats ``gather``: ``benchmarks/run.py moves``

_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_UNSIGNED = tuple(getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name))
"""PyTorch has these since 2.3."""
_INTEGERS = (torch.bool, torch.uint8, *_SIGNED.values(), *_UNSIGNED)


def format_size(size: Sequence[int]) -> str:
    """Return a size as text.

    >>> format_size((32, 48))
    '32x48'
    """
    return "x".join(map(str, size))


def integer_view(values: Tensor) -> Tensor:
    """View the bits of ``values`` as signed integers of the same width."""
    return values.view(_SIGNED[values.element_size()])


def movable(values: Tensor) -> Tensor:
    """Return ``values``, or their bits as integers if PyTorch may not gather, roll or flip their dtype."""
    return integer_view(values) if values.dtype in _UNSIGNED or values.element_size() == 1 else values


def view_as(moved: Tensor, dtype: torch.dtype) -> Tensor:
    """Undo :func:`movable`: view the bits as ``dtype`` again."""
    return moved if moved.dtype == dtype else moved.view(dtype)


def take(flat: Tensor, source: Tensor) -> Tensor:
    """Gather pixels ``(batch, channel, n)`` of any dtype along the last axis."""
    return view_as(movable(flat).gather(2, source), flat.dtype)


def check_images(images: Tensor) -> tuple[int, ...]:
    """Return the spatial size of ``images``. Raise a ``ValueError`` if they are not images."""
    if not isinstance(images, Tensor):
        raise ValueError(f"images must be a torch.Tensor (batch, channel, *spatial), got {type(images).__name__}")
    if images.ndim not in (3, 4, 5):
        raise ValueError(
            "images must be (batch, channel, *spatial) with 1, 2 or 3 spatial axes, "
            f"got {images.ndim} axes: shape {tuple(images.shape)}"
        )
    if 0 in images.shape[1:]:
        raise ValueError(f"images must have at least one channel and pixel, got shape {tuple(images.shape)}")
    if not (images.dtype in _INTEGERS or images.is_floating_point()) or str(images.dtype).endswith("_x2"):
        raise ValueError(f"images must be real, with one number per element, got {images.dtype}")
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
    """Add a margin of constant pixels on both sides of every spatial axis.

    Args:
        images: ``(batch, channel, *spatial)``.
        pad: Width of the margin. A negative width crops.
        value: Value of its pixels.
    """
    try:
        return F.pad(images, [pad] * 2 * (images.ndim - 2), value=value) if pad else images
    except RuntimeError as error:  # e.g. float8_e8m0fnu has no 0
        raise ValueError(f"{images.dtype} images cannot have a margin of {pad} pixels of value {value}") from error


def apply(images: Tensor, shift: Tensor) -> Tensor:
    """Shift each image circularly by its own row of ``shift``.

    Any integer is allowed (negative, larger than the image), and gradients flow to ``images``.

    >>> apply(torch.tensor([[[0, 1, 2, 3]]]), torch.tensor([[1]]))
    tensor([[[3, 0, 1, 2]]])

    Args:
        images: ``(batch, channel, *spatial)``, of any dtype.
        shift: Integers ``(batch, d)``, one row per image.

    Returns:
        The shifted images, with the same shape, dtype and memory format.
    """
    return _shift(images, shift, 1)


def _shift(images: Tensor, shift: Tensor, sign: int) -> Tensor:
    """Shift each image by ``sign`` times its row of ``shift``. The memory format stays."""
    size = _check_shift(images, shift)
    batch = images.shape[0]
    # An image of one channel is contiguous in both formats, and then comes back in the default one.
    channels_last = not images.is_contiguous() and images.movedim(1, -1).is_contiguous()
    x, first = (images.movedim(1, -1), 1) if channels_last else (images, 2)
    differentiable = images.requires_grad and torch.is_grad_enabled()
    if (batch == 1 or images.numel() >= LARGE * batch > 0) and not (differentiable or torch.compiler.is_compiling()):
        # Roll each image by itself, without an index for every pixel.
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        for image, moved, row in zip(x, y, shift.tolist(), strict=True):
            moves = {a + first - 1: sign * m % n for a, (m, n) in enumerate(zip(row, size, strict=True)) if m % n}
            moved.copy_(_roll(image, moves))
        return y.movedim(-1, 1) if channels_last else y
    # One flat index per pixel, built axis by axis: source = destination - shift, modulo the size.
    source = torch.zeros(batch, 1, dtype=torch.int64, device=images.device)
    for axis, n in enumerate(size):
        # Reduce before subtracting, so that no int64 shift, however large, overflows.
        moved = sign * (shift[:, axis, None].to(images.device, torch.int64) % n)
        along = (torch.arange(n, device=images.device) - moved) % n
        source = (source[:, :, None] * n + along[:, None, :]).flatten(1)
    source = source[:, None, :].expand(batch, images.shape[1], math.prod(size))
    y = take(images.flatten(2), source).reshape(images.shape)
    return y.movedim(1, -1).contiguous().movedim(-1, 1) if channels_last else y


def _roll(image: Tensor, moves: dict[int, int]) -> Tensor:
    if not moves:  # roll by 0 is slow
        return image
    return view_as(movable(image).roll([*moves.values()], [*moves]), image.dtype)


def undo(images: Tensor, shift: Tensor) -> Tensor:
    """Undo ``shift``: the inverse of :func:`apply`, and as exact.

    >>> undo(torch.tensor([[[3, 0, 1, 2]]]), torch.tensor([[1]]))
    tensor([[[0, 1, 2, 3]]])

    Args:
        images: ``(batch, channel, *spatial)``, of any dtype.
        shift: Integers ``(batch, d)``: the shift that was applied to each image.
    """
    return _shift(images, shift, -1)


def compose(first: Tensor, second: Tensor, size: tuple[int, ...]) -> Tensor:
    """Return the shift, in ``[0, size)``, that equals ``first`` followed by ``second``.

    >>> compose(torch.tensor([[3]]), torch.tensor([[2]]), (4,))
    tensor([[1]])

    Args:
        first: Integers ``(..., d)``.
        second: Integers ``(..., d)``.
        size: The spatial size of the images.
    """
    if any(shift.is_floating_point() or shift.is_complex() for shift in (first, second)):
        raise ValueError(f"shifts must be integer tensors, got {first.dtype} and {second.dtype}")
    if first.shape[-1] != len(size) or second.shape[-1] != len(size):
        raise ValueError(
            f"shifts must end in {len(size)} axes for size {size}, "
            f"got shapes {tuple(first.shape)} and {tuple(second.shape)}"
        )
    modulus = torch.tensor(size, dtype=torch.int64, device=first.device)
    # Reduce before adding, so that no two int64 shifts overflow.
    return (first.to(torch.int64) % modulus + second.to(torch.int64) % modulus) % modulus


def unravel(index: Tensor, size: tuple[int, ...]) -> Tensor:
    """Turn flat indices ``(batch,)`` into positions ``(batch, d)``."""
    position: list[Tensor] = []
    for n in size[:0:-1]:
        position.append(index % n)
        index = index.floor_divide(n)
    return torch.stack([index, *position[::-1]], 1)


def ravel(position: Tensor, size: tuple[int, ...]) -> Tensor:
    """Turn positions ``(batch, d)``, any integers, into flat indices ``(batch,)``: the inverse of :func:`unravel`."""
    index = torch.zeros_like(position[:, 0])
    for axis, n in enumerate(size):
        index = index * n + position[:, axis] % n
    return index


def all_shifts(size: tuple[int, ...]) -> Tensor:
    """Return every shift of a grid, int64 ``(N, d)``, in row-major order.

    >>> all_shifts((2, 2)).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    grids = torch.meshgrid(*[torch.arange(n) for n in size], indexing="ij")
    return torch.stack([grid.flatten() for grid in grids], 1)
