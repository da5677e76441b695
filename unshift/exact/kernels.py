"""Circular correlation of integers without error: a table of kernels, each with its proof.

A sum of integers that a number format holds exactly does not care about its order, so threads, batches,
devices, strips and shifts cannot show in it. Each kernel says for which sums that holds (``holds``), what it
costs, and what it computes once from the filters (``__init__``). :func:`prepare` takes the cheapest that holds.

Notation of the proofs: images hold integers up to ``largest``; ``worst`` is the largest that any output can be,
``largest`` times the L1 norm of a filter over all its inputs, plus the bias; ``u = 2^-53``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from unshift.circular import full_row

__all__ = ["KERNELS", "Task", "fft_error_bound", "float32_is_plain", "is_traced", "prepare", "waves_error_bound"]

FLOAT32 = 2**24
FLOAT64 = 2**53


class Task(NamedTuple):
    """What is to be added up: filters of a shape, on images of a size, with sums up to ``worst``."""

    shape: tuple[int, ...]
    """``(out, in, *kernel)``"""
    size: tuple[int, ...]
    worst: float
    strips: bool = False
    """whether the first axis comes in strips that carry their own margin"""
    traced: bool = False
    """whether it is for a graph, which must be exact wherever it runs"""

    @property
    def taps(self) -> int:
        """Taps of one filter between one input and one output."""
        return math.prod(self.shape[2:])


class Kernel(Protocol):
    """One way to correlate exactly."""

    dtype: ClassVar[torch.dtype]
    traced: ClassVar[bool]
    """whether exported graphs may use it: whether every runtime computes it exactly"""

    def __init__(self, weight: Tensor, task: Task) -> None:
        """Compute once what every call needs of the filters."""

    def __call__(self, images: Tensor, margin: bool) -> Tensor:
        """Return the sums. With ``margin`` the first axis carries its margin already, and loses it."""

    @staticmethod
    def holds(task: Task) -> bool:
        """Tell whether all sums of this task come out exact."""

    @staticmethod
    def cost(task: Task) -> float:
        """Estimate the nanoseconds a pixel on one core. Measured: ``benchmarks/run.py kernels``."""


def is_traced() -> bool:
    """Tell whether a graph is being made: then nothing may depend on values, nor on this machine."""
    return torch.compiler.is_compiling()


def float32_is_plain(device: torch.device) -> bool:
    """Tell whether float32 means float32 here: products and sums of 24 bits, by oneDNN or a matrix product.

    Not where TF32 or bfloat16 may stand in for it (GPUs, a user's setting, an environment variable that oneDNN
    reads), nor where oneDNN is off: PyTorch may then pick kernels that do not add up plain products.
    """
    if device.type != "cpu" or os.environ.get("ONEDNN_DEFAULT_FPMATH_MODE", "").upper() not in ("", "STRICT"):
        return False
    backend = torch.backends.mkldnn
    modules = (backend, getattr(backend, "conv", None), getattr(backend, "matmul", None))
    plain = all(getattr(module, "fp32_precision", "none") in ("none", "ieee") for module in modules)
    on = backend.is_available() and getattr(torch._C, "_get_mkldnn_enabled", lambda: False)()  # in the build, and now
    return on and plain and torch.get_float32_matmul_precision() == "highest"


def wrap(images: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Continue ``images`` circularly along ``axis``, in operations that every runtime has."""
    n = images.shape[axis]
    while after > n:  # more than once round: only where tiles are wider than the image
        images, after = torch.cat([images, images.narrow(axis, 0, n)], axis), after - n
    ends = (images.narrow(axis, n - before, before), images, images.narrow(axis, 0, after))
    parts = [part for part in ends if part.shape[axis]]
    return torch.cat(parts, axis) if len(parts) > 1 else images


class _Direct:
    """A convolution of the image on a margin of itself: one product and sum for every tap."""

    dtype: ClassVar[torch.dtype]

    def __init__(self, weight: Tensor, task: Task) -> None:
        self.weight = weight.to(self.dtype)

    def __call__(self, images: Tensor, margin: bool) -> Tensor:
        for axis, taps in enumerate(self.weight.shape[2:], 2):
            if not (margin and axis == 2):
                images = wrap(images, axis, taps // 2, taps - 1 - taps // 2)
        return (F.conv1d, F.conv2d, F.conv3d)[self.weight.ndim - 3](images, self.weight)


class Direct32(_Direct):
    """Exact where every sum is below 2^24: float32 holds all integers up to there, in whatever order they add up."""

    dtype: ClassVar[torch.dtype] = torch.float32
    traced: ClassVar[bool] = True

    @staticmethod
    def holds(task: Task) -> bool:
        """See the class."""
        return task.worst < FLOAT32

    @staticmethod
    def cost(task: Task) -> float:
        """Few channels leave the vector units half empty."""
        outputs, inputs = task.shape[:2]
        return 4 + 0.025 * task.taps * max(inputs, 4) * max(outputs, 8)


class Direct64(_Direct):
    """Exact where every sum is below 2^53, as in float32 below 2^24."""

    dtype: ClassVar[torch.dtype] = torch.float64
    traced: ClassVar[bool] = False

    @staticmethod
    def holds(task: Task) -> bool:
        """See the class."""
        return task.worst < FLOAT64

    @staticmethod
    def cost(task: Task) -> float:
        """Through a matrix of all patches: memory is what it costs."""
        outputs, inputs = task.shape[:2]
        return 8 + task.taps * inputs * (2 + 0.15 * outputs)


class Rows32:
    """A few channels as one matrix product: a stretch of a row depends on stretches of the rows around it, linearly.

    The matrix holds, for a stretch of ``tile`` outputs, the kernel's rows each shifted along. More products than a
    convolution takes, zeros among them, but all in the form in which processors are fastest. Exact as
    :class:`Direct32` is: a matrix product of float32 is a sum of products in some order.
    """

    dtype: ClassVar[torch.dtype] = torch.float32
    traced: ClassVar[bool] = True

    def __init__(self, weight: Tensor, task: Task) -> None:
        outputs, inputs, self.height, self.width = weight.shape
        self.columns = task.size[1]
        self.outputs, self.tile = outputs, self.columns if self.columns <= 64 else 32
        self.whole = self.tile == self.columns  # one stretch goes all the way round, and needs no margin
        room = self.tile if self.whole else self.tile + self.width - 1
        matrix = weight.new_zeros(inputs, self.height, room, outputs, self.tile, dtype=torch.float32)
        taps = weight.to(torch.float32).permute(1, 2, 3, 0)  # (in, row, tap, out)
        for at in range(self.tile):
            for tap in range(self.width):
                source = (at + tap - self.width // 2) % self.columns if self.whole else at + tap
                matrix[:, :, source, :, at] += taps[:, :, tap]
        self.matrix = matrix.flatten(0, 2).flatten(1)

    def __call__(self, images: Tensor, margin: bool) -> Tensor:
        before, after = self.height // 2, self.height - 1 - self.height // 2
        tall = images if margin else wrap(images, 2, before, after)
        rows = tall.shape[2] - self.height + 1
        count = 1
        if not self.whole:
            count = -(-self.columns // self.tile)
            before, length = self.width // 2, count * self.tile + self.width - 1
            tall = wrap(tall, 3, before, length - self.columns - before)
            tall = tall.unfold(3, self.tile + self.width - 1, self.tile)  # (batch, in, row, stretch, pixel)
        else:
            tall = tall[:, :, :, None]
        slices = [tall[:, c, r : r + rows] for c in range(tall.shape[1]) for r in range(self.height)]
        sums: Tensor = torch.cat(slices, -1) @ self.matrix  # (batch, row, stretch, out * tile)
        if self.outputs == 1:
            return sums.flatten(2)[:, None, :, : self.columns]
        sums = sums.unflatten(3, (self.outputs, self.tile)).permute(0, 3, 1, 2, 4).flatten(3)
        return sums[..., : self.columns].contiguous()

    @staticmethod
    def holds(task: Task) -> bool:
        """See the class. Graphs are made of one stretch only: not every runtime has overlapping views."""
        if len(task.shape) != 4 or (task.traced and task.size[1] > 64):
            return False
        return task.worst < FLOAT32

    @staticmethod
    def cost(task: Task) -> float:
        """Products and the copy of the stretches."""
        outputs, inputs, height, width = task.shape
        tile = task.size[1] if task.size[1] <= 64 else 32
        depth = inputs * height * (tile if tile == task.size[1] else tile + width - 1)
        return 3 + 0.03 * depth * outputs + 0.5 * depth / tile


def fft_error_bound(size: Sequence[int], inputs: int, worst: float) -> float:
    """Bound the error of a float64 FFT correlation, of ``inputs`` channels each, whose sums are below ``worst``.

    Per channel, Higham (Accuracy and Stability, Theorem 24.2) gives a relative error of about ``7 u log2 N`` in
    the 2-norm for one transform; three of them and a product make 21. We take 64, which also covers the longer
    transforms used at sizes with large prime factors. By Cauchy-Schwarz the 2-norms of image and filter multiply
    to at most ``sqrt(N)`` times ``largest`` times the filter's L1 norm. Summed over channels these make
    ``sqrt(N) worst``; adding up ``inputs`` spectra adds ``inputs u`` to the relative error.
    """
    n = math.prod(size)
    return (64 * (math.log2(n) + 1) + inputs) * 2.0**-53 * math.sqrt(n) * worst


class Fft64:
    """A product of spectra in float64, rounded: exact where the error is below 1/2 (:func:`fft_error_bound`)."""

    dtype: ClassVar[torch.dtype] = torch.float64
    traced: ClassVar[bool] = False

    def __init__(self, weight: Tensor, task: Task) -> None:
        self.size = task.size
        self.axes = tuple(range(-len(task.size), 0))
        row = full_row(weight.to(torch.float64), task.size)
        self.spectrum = torch.fft.rfftn(row, dim=self.axes).conj().resolve_conj()

    def __call__(self, images: Tensor, margin: bool) -> Tensor:
        assert not margin
        spectrum = torch.fft.rfftn(images, dim=self.axes)
        outputs, inputs = self.spectrum.shape[:2]
        if inputs == 1:
            product = spectrum * self.spectrum[:, 0]
        elif outputs == 1:
            product = (spectrum * self.spectrum[0]).sum(1, keepdim=True)
        else:
            product = torch.einsum("bi...,oi...->bo...", spectrum, self.spectrum)
        sums: Tensor = torch.fft.irfftn(product, s=list(self.size), dim=self.axes)
        return sums.round_()

    @staticmethod
    def holds(task: Task) -> bool:
        """See the class."""
        return not task.strips and fft_error_bound(task.size, task.shape[1], task.worst) < 0.5

    @staticmethod
    def cost(task: Task) -> float:
        """Transforms, and a complex product a frequency."""
        outputs, inputs = task.shape[:2]
        return 3 + 0.5 * math.log2(max(2, math.prod(task.size))) * (inputs + outputs) + 1.0 * inputs * outputs


def waves_error_bound(size: Sequence[int], inputs: int, worst: float) -> float:
    """Bound the error of :class:`Waves64` where no sum of absolute values exceeds ``worst``.

    A dot product of length n is off by at most ``n u`` times the sum of its absolute terms in any order; cosines
    are off by 16 u. With N = H W pixels up to L and spectra up to N L, the transform (lengths W and 2 H) is off
    by ``(1.5 W + 4 H + 56) u N L``, and so is the filter's, relative to its own size. Their product, summed over 2
    inputs, is off by ``(4.3 W + 11.4 H + 2.9 inputs + 160) u N worst``; the way back doubles that and adds
    ``(2 W + 4 H + 68) u N worst``. In all less than what is returned.
    """
    return 32 * (sum(size) + inputs + 16) * 2.0**-53 * math.prod(size) * worst


class Waves64:
    """A product of spectra whose Fourier transforms are products with float64 matrices, rounded: for graphs.

    ONNX Runtime has a discrete Fourier transform, but not in float64 for all lengths and not in the browser.
    Exact where the error is below 1/2 (:func:`waves_error_bound`).
    """

    dtype: ClassVar[torch.dtype] = torch.float64
    traced: ClassVar[bool] = True

    def __init__(self, weight: Tensor, task: Task) -> None:
        height, width = task.size
        cos, sin = _waves(width)
        half = width // 2 + 1
        cos, sin = cos[:, :half], sin[:, :half]
        self.across = torch.cat([cos, -sin], 1)
        # Of a real image the other half of the spectrum is the mirror image of this one: it counts twice.
        counts = [1 if 2 * k % width == 0 else 2 for k in range(half)]
        twice = torch.tensor(counts, dtype=torch.float64) / (height * width)
        self.back = torch.cat([cos * twice, -sin * twice], 1).T.contiguous()
        cos, sin = _waves(height)
        self.down = torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])
        self.up = torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)])
        real, imaginary = self._spectrum(full_row(weight.to(torch.float64), task.size))
        self.real, self.imaginary = real.contiguous(), imaginary.contiguous()

    def _spectrum(self, images: Tensor) -> tuple[Tensor, Tensor]:
        half, height = self.across.shape[1] // 2, len(self.down) // 2
        spectrum = images @ self.across
        spectrum = self.down @ torch.cat([spectrum[..., :half], spectrum[..., half:]], -2)
        return spectrum[..., :height, :], spectrum[..., height:, :]

    def __call__(self, images: Tensor, margin: bool) -> Tensor:
        assert not margin
        height = self.real.shape[-2]
        real, imaginary = (part[:, None] for part in self._spectrum(images))
        # Times the conjugate: a correlation, not a convolution.
        product = [
            (real * self.real + imaginary * self.imaginary).sum(2),
            (imaginary * self.real - real * self.imaginary).sum(2),
        ]
        waves = self.up @ torch.cat(product, -2)
        return (torch.cat([waves[..., :height, :], waves[..., height:, :]], -1) @ self.back).round()

    @staticmethod
    def holds(task: Task) -> bool:
        """See the class. Only for graphs, where there is no FFT, and for sums that other parts of them can hold."""
        in_bounds = task.worst < FLOAT32 and task.traced and len(task.size) == 2 and not task.strips
        return in_bounds and waves_error_bound(task.size, task.shape[1], task.worst) < 0.5

    @staticmethod
    def cost(task: Task) -> float:
        """Four times the products: float64, and smaller matrices."""
        outputs, inputs = task.shape[:2]
        return 0.03 * 4 * (2 * (inputs + outputs) * sum(task.size) + 4 * inputs * outputs)


def _waves(length: int) -> tuple[Tensor, Tensor]:
    """Return cos and sin of ``2 pi j k / length``, the product reduced first: whole turns are exact."""
    turns = torch.arange(length)[:, None] * torch.arange(length) % length
    angle = turns.to(torch.float64) * (2 * math.pi / length)
    return angle.cos(), angle.sin()


KERNELS: tuple[type[Kernel], ...] = (Direct32, Rows32, Direct64, Fft64, Waves64)


def prepare(weight: Tensor, task: Task, plain: bool) -> Kernel:
    """Return the cheapest kernel that is exact for this task, made ready.

    Args:
        weight: The filters, int64 ``(out, in, *kernel)``.
        task: What they will be used on.
        plain: Whether float32 may be used (:func:`float32_is_plain`).

    Raises:
        ValueError: If the filters are larger than the images, or no kernel is exact for sums so large.
    """
    if any(k > n for k, n in zip(task.shape[2:], task.size, strict=True)):
        raise ValueError(f"kernel {task.shape[2:]} is larger than the image {task.size}")
    usable: Callable[[type[Kernel]], bool] = lambda kernel: (  # noqa: E731
        kernel.holds(task) and (kernel.traced if task.traced else plain or kernel.dtype == torch.float64)
    )
    for kernel in sorted(filter(usable, KERNELS), key=lambda kernel: kernel.cost(task)):
        made = kernel(weight, task)
        if kernel.dtype == torch.float64 or task.traced or _tried(made, weight, task):
            return made
    limit = "2^24, the most that a graph holds: quantise it with sum_bits=24" if task.traced else "2^53"
    raise ValueError(f"this network's sums reach {task.worst:.0f}; they must stay below {limit}")


def _tried(kernel: Kernel, weight: Tensor, task: Task) -> bool:
    """Run float32 once on an image as bad as can be, beside float64: a kernel that is not plain shows at once.

    Bfloat16 keeps 8 bits of a product, Winograd and FFT kernels round between their transforms. The image's
    pixels are as large as the sums allow, and odd, so that every bit of every product matters.
    """
    l1 = float(weight.double().abs().flatten(1).sum(1).max())
    largest = int(min(task.worst, FLOAT32 - 1) / max(l1, 1.0))
    side = [max(k, min(n, 16)) if len(task.size) < 3 else k for k, n in zip(task.shape[2:], task.size, strict=True)]
    if isinstance(kernel, Rows32):
        side[1] = task.size[1]
    generator = torch.Generator().manual_seed(0)
    shape = (2, task.shape[1], *side)
    image = torch.randint(-largest, largest + 1, shape, generator=generator).bitwise_or(1).clamp(-largest, largest)
    image = image.to(weight.device)
    exact = Direct64(weight, task)(image.to(torch.float64), margin=False)
    return torch.equal(kernel(image.to(torch.float32), margin=False).to(torch.float64), exact)
