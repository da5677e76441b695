"""Random integers, and a network with an empty cache."""

from __future__ import annotations

import torch

from unshift.exact import IntegerEstimator


def integers(low, high, *shape):
    return torch.randint(low, high + 1, shape)


def fresh(net):
    """The same integers in a network that has prepared nothing yet."""
    again = IntegerEstimator(**net.describe())
    again.load_state_dict(net.state_dict())
    return again


def plans(net):
    """The plans in the cache of a network."""
    return [value for key, (_, value, _) in net.cache._entries.items() if hasattr(value, "local")]


def used_kernels(net):
    """The kernels that a network has run with."""
    layers = [
        layer for plan in plans(net) for layer in [*plan.local, *(layer for line in plan.lines for layer in line)]
    ]
    return {type(layer.kernel) for layer in layers}
