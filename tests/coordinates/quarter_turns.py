"""Restorers on polar grids, quarter turns with torch alone, and the check that they are undone bit for bit."""

from __future__ import annotations

import torch

from unshift import Restorer, ShiftEstimator, quantise

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

SIZES = (8, 9, 28)  # even and odd: the centre lies between pixels, or on one


def quarter(images, k, axis=0):
    """Turn by ``k`` quarters with nothing but torch: images in their plane, volumes about ``axis``."""
    if images.ndim == 4:
        return torch.rot90(images, k, (2, 3))
    return torch.rot90(images, k, [2 + a for a in range(3) if a != axis])


def seen(polar, images):
    """What the network sees: one copy, the canvas ``(batch, channel, angle)``."""
    canvas = polar.canvas(images)
    assert canvas.shape[1] == 1
    return canvas[:, 0]


def make(polar, channels=1, widths=(4, 1), calibration=1.0):
    """A restorer with random filters on ``polar``."""
    torch.manual_seed(0)
    n = polar.angles
    net = ShiftEstimator(channels * polar.channels, channels=widths, kernel_size=[n], bias=True, size=[n])
    sample = torch.rand(8, channels, *[polar.size] * polar.spatial_axes) * calibration
    return Restorer(quantise(net, seen(polar, sample)), coordinates=polar).eval()
