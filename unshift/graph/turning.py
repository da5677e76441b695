"""Polar coordinates as plain tensor operations: :class:`unshift.polar.Polar` for any runtime, to the last bit.

Angles are counted in whole grains of 1/1024 degree, as ``Polar.angle`` rounds them, so that cos and sin come out of
a table made by Python's own: runtimes differ in theirs. All else is one rounded operation after another, in the
order in which ``Polar`` does them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

from unshift.graph.choice import Keys, tied_first
from unshift.polar import GRAIN, Polar

QUARTER = 90 * GRAIN
"""Grains in a quarter turn."""


class Turning(nn.Module):
    """The polar canvas of images, the angle that was read off it, and the rotation that undoes it."""

    index: Tensor
    weight: Tensor
    step: Tensor
    cos: Tensor
    sin: Tensor
    quarters: Tensor

    def __init__(self, polar: Polar) -> None:
        super().__init__()
        self.angles, self.refine, self.axis, self.size = polar.angles, polar.refine, polar.axis, polar.size
        self.keys = Keys()
        self.register_buffer("index", polar.index)
        self.register_buffer("weight", polar.weight_bits.view(torch.float64).to(torch.float32))
        # A buffer: exporters write plain numbers as float32.
        self.register_buffer("step", torch.tensor([360 / polar.angles * GRAIN], dtype=torch.float64))
        rests = [round(k * (360 / polar.angles * GRAIN)) for k in range(polar.angles // 4)]
        self.unit = 1 if polar.refine else math.gcd(*rests, QUARTER // 2)  # grains between the table's entries
        radians = [math.radians(grains / GRAIN) for grains in range(0, QUARTER // 2 + 1, self.unit)]
        self.register_buffer("cos", torch.tensor([math.cos(r) for r in radians], dtype=torch.float64))
        self.register_buffer("sin", torch.tensor([math.sin(r) for r in radians], dtype=torch.float64))
        pixels = torch.arange(polar.size**2).view(polar.size, polar.size)
        self.register_buffer("quarters", torch.stack([torch.rot90(pixels, q, (0, 1)).flatten() for q in range(4)]))

    def forward(self, images: Tensor) -> Tensor:
        """Sample ``images`` on the grid."""
        flat = images.flatten(2)
        total = flat.index_select(2, self.index[0]) * self.weight[0]
        for corner in range(1, len(self.index)):
            total = total + flat.index_select(2, self.index[corner]) * self.weight[corner]
        return total.unflatten(2, (-1, self.angles)).flatten(1, 2)

    def angle(self, shift: Tensor, scores: Tensor) -> Tensor:
        """Return the rotation that was applied, int64 grains ``(batch,)`` from -180 to 180 degrees."""
        step = shift[:, 0]
        quarter = self.angles // 4
        rest = (step % quarter).to(torch.float64)
        if self.refine:
            before, top, after = (
                scores.gather(1, ((step + side) % self.angles)[:, None])[:, 0].to(torch.float64)
                for side in (self.angles - 1, 0, 1)
            )
            bend = before - 2 * top + after
            rest = rest + torch.where(bend < 0, (before - after) / (2 * bend), 0.0)
        grains = (rest * self.step).round().to(torch.int64) + QUARTER * (step // quarter)
        return torch.where(grains >= 2 * QUARTER, grains - 4 * QUARTER, grains)

    def undo(self, images: Tensor, angle: Tensor) -> Tensor:
        """Rotate ``images`` back by ``angle``, in grains."""
        volumes = images.movedim(2 + self.axis, 2) if images.ndim == 5 else images
        flat = volumes.reshape(images.shape[0], -1, self.size**2)
        rest = (QUARTER // 2 - angle) % QUARTER - QUARTER // 2
        quarters = ((-angle - rest) // QUARTER) % 4
        source = self.quarters[quarters][:, None].expand(-1, flat.shape[1], -1)
        turned = flat.gather(2, source)
        # A gather, and not torch.where: that of ONNX Runtime turns -0.0 into 0.0.
        both = torch.cat([turned, self._interpolate(turned, rest)], 2)
        chosen = torch.arange(self.size**2) + self.size**2 * (rest != 0).to(torch.int64)[:, None]
        turned = both.gather(2, chosen[:, None].expand(-1, flat.shape[1], -1)).reshape(volumes.shape)
        return turned.movedim(2, 2 + self.axis) if images.ndim == 5 else turned

    def _interpolate(self, flat: Tensor, rest: Tensor) -> Tensor:
        """Rotate images ``(batch, channel, size * size)`` by ``rest`` grains, bilinearly: ``polar._interpolate``."""
        size = self.size
        at = rest.abs() // self.unit
        cos = self.cos[at][:, None, None]
        sin = (self.sin[at] * rest.sign())[:, None, None]
        middle = (size - 1) / 2
        along = torch.arange(size, dtype=torch.float64) - middle
        right, up = along[None, None, :], -along[None, :, None]
        row = ((right * sin - up * cos) + (middle + 1)).flatten(1).clamp(0, size + 1)
        column = ((right * cos + up * sin) + (middle + 1)).flatten(1).clamp(0, size + 1)
        wide = F.pad(flat.unflatten(2, (size, size)), (1, 2, 1, 2)).flatten(2)
        top, left = row.floor(), column.floor()
        lower, further = ((row - top).to(torch.float32)[:, None], (column - left).to(torch.float32)[:, None])
        upper, nearer = 1 - lower, 1 - further
        first = (top.to(torch.int64) * (size + 3) + left.to(torch.int64))[:, None].expand(-1, flat.shape[1], -1)
        above = wide.gather(2, first) * nearer + wide.gather(2, first + 1) * further
        below = wide.gather(2, first + (size + 3)) * nearer + wide.gather(2, first + (size + 4)) * further
        return above * upper + below * lower

    def prefer(self, images: Tensor, scores: Tensor, ranks: Tensor, tied: Tensor) -> Tensor:
        """Return, of the positions of highest rank, the one that restores to the largest image, the first of equals.

        Their canvases are one and the same; the images may still differ, where the grid does not look. A loop over
        all angles of all tied images; ``champion`` is the largest so far of the image that it is at.
        """
        rows = tied_first(tied)
        same = ranks == ranks.amax(1, keepdim=True)
        count = tied.sum() * self.angles

        def more(step: Tensor, index: Tensor, champion: Tensor) -> Tensor:
            return step < count

        def compare(step: Tensor, index: Tensor, champion: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            row, shift = rows.index_select(0, step[None] // self.angles), step[None] % self.angles
            angle = self.angle(shift[:, None], scores.index_select(0, row))
            keys = self.keys(self.undo(images.index_select(0, row), angle).flatten())
            first = (keys != champion).to(torch.int32).argmax(0, keepdim=True)  # pixel that differs, or any
            larger = keys.index_select(0, first) > champion.index_select(0, first)
            held = index.index_select(0, row)  # at first the first of ``same``: none is compared before it
            candidate = same.index_select(0, row)[0].index_select(0, shift)
            wins = candidate & ((shift == held) | larger)
            index = index.index_copy(0, row, torch.where(wins, shift, held))
            return step + 1, index, torch.where(wins, keys, champion)

        none = torch.zeros(math.prod(images.shape[1:]), dtype=torch.float64)
        start = torch.zeros((), dtype=torch.int64), ranks.argmax(1), none
        return while_loop(more, compare, start)[1]
