"""``mnist3d``: volumes of digits anywhere in 32x32x32 voxels, by the paper's network.

python -m reproduction.train.mnist3d --out mnist3d.safetensors
"""

from reproduction.train.common import Fit, main

FIT = Fit("mnist3d", "paper", {}, {"epochs": 6, "batch_size": 32}, HELD_OUT=500)
HELD_OUT, images, train = FIT.HELD_OUT, FIT.images, FIT.train

if __name__ == "__main__":
    main()
