"""Make a segmentation net equivariant: restore the image, predict the mask, shift the mask back.

python examples/segmentation.py
"""

import torch
from torch import nn

import unshift
from unshift.data import dataset, resize, to_float

torch.manual_seed(0)
digits = dataset("mnist-10k", "test")
images = resize(to_float(digits.images[:4300]), (32, 32))
masks = torch.where(images > 0.3, digits.labels[:4300, None, None, None], 10)  # of each pixel: its digit, or 10
encoder = [nn.Conv2d(1, 8, 4, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15**2, 96), nn.ReLU()]
net = nn.Sequential(*encoder, nn.Linear(96, 11 * 32**2), nn.Unflatten(1, (11, 32, 32)))  # yours
optimizer, weight = torch.optim.Adam(net.parameters(), lr=0.003), torch.tensor([1.0] * 10 + [0.2])
for batch in torch.randint(4000, (160, 40)):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(images[batch]), masks[batch, 0], weight).backward()
    optimizer.step()


def segment(images: torch.Tensor, restorer: unshift.Restorer | None) -> torch.Tensor:
    """Return the net's masks; with a restorer: of the restored images, shifted back to where those were."""
    if restorer is None:
        return net(images).argmax(1, keepdim=True)
    return unshift.apply(segment(restorer(images), None), restorer.estimate(images).shift)


images, masks, shift = images[4000:], masks[4000:], torch.randint(-12, 13, (300, 2))  # new ones
moved, truth = unshift.apply(images, shift), unshift.apply(masks, shift)
for name, restorer in {"alone": None, "wrapped": unshift.load("mnist")}.items():
    mask = segment(moved, restorer)
    right = (mask == truth)[truth < 10].float().mean()
    same = torch.equal(mask, unshift.apply(segment(images, restorer), shift))
    print(f"{name:8} {right:6.1%} of the pixels of shifted digits right; the masks moved along, to the bit: {same}")
