"""Find the layers of a network that break equivariance: measure each on its own input.

python examples/which_layer_breaks.py
"""

import math

import torch
from torch import nn

from unshift.classifiers import load as load_classifier
from unshift.testing import equivariance_error
from unshift.theory import diagnose

torch.manual_seed(0)
network = nn.Sequential(  # your network
    nn.Conv2d(1, 8, 5, padding=2, padding_mode="circular"),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.Conv2d(8, 8, 3, padding=1),
    nn.GELU(),
    nn.MaxPool2d(3, stride=1, padding=1),
    nn.AdaptiveAvgPool2d(16),
    nn.Upsample(scale_factor=1.5, mode="bilinear"),
)
images = torch.rand(1, 1, 24, 24, dtype=torch.float64)
print("largest difference between shift-then-layer and layer-then-shift, over all shifts:\n")
for number, layer in enumerate(network.double().eval()):
    error = equivariance_error(layer, images.shape[1:], images=images)
    bar = "" if error < 1e-9 else "#" * round(min(30, 30 + 6 * math.log10(error)))
    why = "another size" if math.isinf(error) else "equivariant" if not bar else "BREAKS IT"
    print(f"{number} {type(layer).__name__:18} {error:8.1e}  {why:13} {bar}")
    images = layer(images).detach()

print("\nLeNet-5, whose layers change the size, with the reason for each:\n")
print(diagnose(load_classifier("lenet5-mnist"), (32, 32)))
