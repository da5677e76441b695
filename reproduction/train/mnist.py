"""``mnist``: digits anywhere in 32x32 pixels, by a network of lines.

python -m reproduction.train.mnist --out mnist.safetensors
"""

from reproduction.train.common import Fit, main

FIT = Fit("mnist", "lines", {"resize": [32, 32]})
HELD_OUT, images, train = FIT.HELD_OUT, FIT.images, FIT.train

if __name__ == "__main__":
    main()
