"""``mnist-paper``: digits anywhere in 32x32 pixels, by the paper's network.

python -m reproduction.train.mnist_paper --out mnist-paper.safetensors
"""

from dataclasses import replace

from reproduction.train import mnist
from reproduction.train.common import main

FIT = replace(mnist.FIT, preset="paper")
HELD_OUT, images, train = FIT.HELD_OUT, FIT.images, FIT.train

if __name__ == "__main__":
    main()
