"""``cifar10``: photos padded to 40x40, anywhere, by a small network of lines.

python -m reproduction.train.cifar10 --out cifar10.safetensors
"""

from reproduction.train.common import Fit, main

# A third of the channels of the preset ``seam``: a margin is easy to see.
NETWORK = {"in_channels": 3, "channels": (8,), "kernel_size": (3, 3), "bias": True, "activation": "abs"}
NETWORK |= {"line_channels": (16, 1), "line_kernel_size": (9, 9)}
# The loss varies while the learning rate is high, and falls at the end of the cycle: do not stop early.
RECIPE = {"epochs": 20, "patience": 20, "learning_rate": 0.01, "batch_size": 64}
RECIPE |= {"standardise": True, "optimizer": "muon", "augment": ["mirror"]}
FIT = Fit("cifar10", NETWORK, {"pad": 4}, RECIPE)
HELD_OUT, images, train = FIT.HELD_OUT, FIT.images, FIT.train

if __name__ == "__main__":
    main()
