"""The canonical architecture in float64, equations (network) and (layer) of section 3.3; Definition 4.1.

Here the filters are *written down* by a proof, not trained, so they are buffers. The trainable
layer is ``unshift.CircularFilter``; this one computes the same map.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from unshift.shifts import check_images

__all__ = ["CanonicalLayer", "CanonicalNetwork", "is_estimator"]


class CanonicalLayer(nn.Module):
    """One layer ``σ(W·X + C)`` of the canonical architecture: equation (layer), σ the ReLU.

    ``rows[k, r]`` is row 0 of the circular filter ``W^{k,r}``, of the image's size, or of size 1 in
    every axis for a multiple of the identity. ``bias[k]`` is the constant ``Σ_r C^{k,r}``.
    """

    rows: Tensor
    bias: Tensor

    def __init__(self, rows: Tensor, bias: Tensor) -> None:
        super().__init__()
        if rows.ndim not in (3, 4, 5) or bias.shape != rows.shape[:1]:
            raise ValueError(
                "a layer wants rows (out, in, *size) with 1, 2 or 3 spatial axes and bias (out,), "
                f"got {tuple(rows.shape)} and {tuple(bias.shape)}"
            )
        self.register_buffer("rows", rows.double())
        self.register_buffer("bias", bias.double())

    @property
    def channels(self) -> int:
        """The paper's ``n_l``: how many channels come out."""
        return self.rows.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(batch, in, *size)`` to ``(batch, out, *size)``, both float64."""
        kernel = self.rows.shape[2:]
        if any(k not in (1, n) for k, n in zip(kernel, x.shape[2:], strict=True)):
            raise ValueError(f"this layer is for images of size {tuple(kernel)}, got {tuple(x.shape[2:])}")
        # Wrapped by a whole turn, an ordinary cross-correlation is the circular one.
        wrap = [side for k in reversed(kernel) for side in (0, k - 1)]
        convolve = (F.conv1d, F.conv2d, F.conv3d)[len(kernel) - 1]
        return F.relu(convolve(F.pad(x, wrap, mode="circular"), self.rows, self.bias))


class CanonicalNetwork(nn.Sequential):
    """Layers one after the other: equation (network), with the paper's depth and width."""

    def __init__(self, layers: list[CanonicalLayer], size: tuple[int, ...]) -> None:
        super().__init__(*layers)
        self.size = tuple(size)

    @property
    def layers(self) -> list[CanonicalLayer]:
        """The layers, first to last."""
        return [layer for layer in self if isinstance(layer, CanonicalLayer)]

    @property
    def depth(self) -> int:
        """The number of layers ``L``."""
        return len(self)

    @property
    def width(self) -> int:
        """The most neurons in one layer: its channels times the ``N`` positions."""
        return max(layer.channels for layer in self.layers) * math.prod(self.size)

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``(batch, channel, *size)`` of any real type through all layers, in float64."""
        if check_images(images) != self.size:
            raise ValueError(f"this network is for images of size {self.size}, got {tuple(images.shape[2:])}")
        features = images.double()
        for layer in self:
            features = layer(features)
        return features


def is_estimator(network: Callable[[Tensor], Tensor], dataset: Tensor, *, unique: bool = True) -> bool:
    """Tell whether ``network`` puts its maximum at position 0 for all of ``dataset``: Definition 4.1.

    ``network`` maps ``(batch, channel, *size)`` to ``(batch, *size)`` or ``(batch, 1, *size)``. As the paper
    words it (``unique=False``) a constant map is an estimator too; one that tells a shift needs 0 to
    be the *only* maximum.

    Args:
        network: From images ``(batch, channel, *size)`` to scores.
        dataset: Images ``(image, channel, *size)``.
        unique: Whether position 0 must be the only maximum.

    Returns:
        Whether it is one for every image.
    """
    values = network(dataset).flatten(1)
    top = values.amax(dim=1)
    ties = (values == top[:, None]).sum(dim=1)
    return bool(((values[:, 0] == top) & ((ties == 1) | (not unique))).all())
