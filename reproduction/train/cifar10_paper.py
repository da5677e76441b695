"""``cifar10-paper``: photos padded to 40x40, anywhere, by the paper's network.

python -m reproduction.train.cifar10_paper --out cifar10-paper.safetensors
"""

from dataclasses import replace

from reproduction.train import cifar10
from reproduction.train.common import main

FIT = replace(cifar10.FIT, preset="paper", recipe={})
HELD_OUT, images, train = FIT.HELD_OUT, FIT.images, FIT.train

if __name__ == "__main__":
    main()
