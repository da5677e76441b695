"""``cifar10-seam``: photos of 32x32 without a margin, anywhere, by their seam.

python -m reproduction.train.cifar10_seam --out cifar10-seam.safetensors
"""

from reproduction.train.common import Fit, main

RECIPE = {"epochs": 60, "patience": 60, "augment": ["mirror", "windows", "colour"]}
FIT = Fit("cifar10", "seam", {}, RECIPE)
HELD_OUT, images, train = FIT.HELD_OUT, FIT.images, FIT.train

if __name__ == "__main__":
    main()
