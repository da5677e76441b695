"""unshift: make any frozen image classifier ignore where the object is, exactly.

restorer = unshift.load("mnist")
model = torch.nn.Sequential(restorer, classifier)
"""

from unshift.estimator import ShiftEstimator
from unshift.exact import quantise
from unshift.restorer import Estimate, Restorer
from unshift.shifts import apply, undo
from unshift.testing import verify
from unshift.training import fit
from unshift.weights import load

__version__ = "0.1.0"

__all__ = ["Estimate", "Restorer", "ShiftEstimator", "apply", "fit", "load", "quantise", "undo", "verify"]
