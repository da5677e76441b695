"""``fashion-mnist``: clothes anywhere in 32x32 pixels. They fill the frame, so the seam shows the shift.

python -m reproduction.train.fashion_mnist --out fashion-mnist.safetensors
"""

from reproduction.train.common import Fit, main

# Contrasts, and three layers of lines.
NETWORK = {"in_channels": 1, "channels": (16,), "kernel_size": (3, 3), "bias": True, "activation": "abs"}
NETWORK |= {"line_channels": (24, 24, 1), "line_kernel_size": (11, 11)}
RECIPE = {"epochs": 16, "patience": 16, "learning_rate": 0.01, "batch_size": 64}
RECIPE |= {"standardise": True, "optimizer": "muon"}
FIT = Fit("fashion-mnist", NETWORK, {"resize": [32, 32]}, RECIPE)
HELD_OUT, images, train = FIT.HELD_OUT, FIT.images, FIT.train

if __name__ == "__main__":
    main()
