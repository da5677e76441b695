"""A network that has prepared nothing yet, and the kernels that one was run with."""

from __future__ import annotations

from unshift.exact import IntegerEstimator


def fresh(net):
    """The same integers in a net that has prepared nothing yet."""
    again = IntegerEstimator(**net.describe())
    again.load_state_dict(net.state_dict())
    return again
