"""Continue training from a restorer: build a trainable network from its integers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from unshift.exact import IntegerEstimator
from unshift.network import ShiftEstimator
from unshift.restorer import Restorer

__all__ = ["dequantise", "network_of"]


def network_of(start: Restorer) -> ShiftEstimator:
    """Return the network of a restorer in floats, to continue its training."""
    scorer = getattr(start, "scorer", None)
    if type(scorer) is not IntegerEstimator:
        raise ValueError(f"start wants a Restorer with one trained network, such as photos; got {type(start).__name__}")
    return dequantise(scorer)


@torch.no_grad()
def dequantise(net: IntegerEstimator) -> ShiftEstimator:
    """Return a float network with the scores of an integer one, up to rounding.

    The activations of all layers but the last are homogeneous (ReLU, absolute value), so a layer may be scaled if the
    next one is scaled back. All but the last get the standard deviation of new weights, as training expects.
    """
    estimator = ShiftEstimator(**net.describe()["network"])
    pixels = torch.full([1], net.pixel_scale / net.largest, dtype=torch.float64)
    units = _fill(net, net.local, estimator.local, pixels)
    for axis, (line, floats) in enumerate(zip(net.lines, estimator.lines, strict=True)):
        assert net.calibrated is not None
        count = math.prod(net.across) * math.prod(net.calibrated) // net.calibrated[axis]
        _fill(net, line, floats, units * count / net.get_buffer(f"mean_divisor_{axis}").double())
    return estimator


def _fill(net: IntegerEstimator, layers: Any, floats: Any, units: Tensor) -> Tensor:
    """Fill float layers. ``units`` are the integers, as shares of the largest, that represent 1 in each input channel.

    Return the units of the outputs.
    """
    for layer, floating in zip(layers, floats, strict=True):
        shape = [-1, *[1] * (layer.weight.ndim - 1)]
        # The last layer has no divisor: its sums times the score unit are logits.
        last = torch.full([len(layer.bias)], 1 / (net.score_unit * net.largest), dtype=torch.float64)
        divisor = last if layer.divisor is None else layer.divisor.double()
        weight = layer.weight * units.view(1, *shape[:-1]) / divisor.view(shape)
        scale = 1.0
        if layer.divisor is not None:
            scale = (2 / weight[0].numel()) ** 0.5 / max(float(weight.std(correction=0)), 1e-12)
        floating.weight.copy_(scale * weight)
        if floating.bias is not None:
            floating.bias.copy_(scale * layer.bias / (divisor * net.largest))
        units = torch.full([1], 1 / scale, dtype=torch.float64)
    return units
