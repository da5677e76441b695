"""The alternative that is trained with labels: a spatial transformer (Jaderberg 2015) before a classifier."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["SpatialTransformer", "shift_smoothly"]


def shift_smoothly(images: Tensor, shift: Tensor) -> Tensor:
    """Undo circular shifts by any number of pixels, linear between pixels, so that gradients reach ``shift``."""
    for axis in (2, 3):
        n = images.shape[axis]
        whole = shift[:, axis - 2].floor()
        rest = (shift[:, axis - 2] - whole).view(-1, 1, 1, 1)
        at = (torch.arange(n) + whole.long()[:, None]) % n
        shape = [len(images), 1, 1, 1]
        shape[axis] = n
        near, far = (images.gather(axis, rows.view(shape).expand_as(images)) for rows in (at, (at + 1) % n))
        images = (1 - rest) * near + rest * far
    return images


class SpatialTransformer(nn.Module):
    """Estimate the place of the object with a small network, and resample the image there.

    Without a window, it estimates a circular shift as one angle for each axis, starts at no shift, and undoes it. With
    a window, it estimates place and zoom of the window, and starts with the whole scene in view, so that gradients
    reach it.
    """

    def __init__(self, channels: int = 1, size: int = 32, window: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.window = window
        start = [1.0, 0.0, 1.0, 0.0] if window is None else [2.0, 0.0, 0.0]
        self.localise = nn.Sequential(
            nn.Conv2d(channels, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * (size // 4) ** 2, 64),
            nn.ReLU(),
            nn.Linear(64, len(start)),
        )
        last: Any = self.localise[-1]
        nn.init.zeros_(last.weight)
        last.bias.data = torch.tensor(start)

    def forward(self, images: Tensor) -> Tensor:
        """Return the images with the shift undone, or their windows."""
        if self.window is None:
            return shift_smoothly(images, self.angles(images) * images.shape[-1] / (2 * torch.pi))
        zoom, down, right = self.localise(images).unbind(1)
        scale, none = 0.5 + 0.5 * zoom.sigmoid(), torch.zeros_like(zoom)
        rows = [torch.stack(row, 1) for row in ((scale, none, right.tanh()), (none, scale, down.tanh()))]
        shape = [*images.shape[:2], *self.window]
        return F.grid_sample(
            images, F.affine_grid(torch.stack(rows, 1), shape, align_corners=False), align_corners=False
        )

    def angles(self, images: Tensor) -> Tensor:
        """Return the estimated shift along each axis as an angle; a whole turn is the size of the image."""
        cosine, sine = self.localise(images).view(-1, 2, 2).unbind(2)
        return torch.atan2(sine, cosine)
