"""Make a frozen segmentation network equivariant: undo the shift, predict the mask, redo the shift on the mask.

python examples/segmentation.py
"""

import torch
from torch import nn

import unshift
from unshift.data import dataset, resize, to_float


def segment(net: nn.Module, restorer: unshift.Restorer, images: torch.Tensor) -> torch.Tensor:
    """Return the class of each pixel. The network sees restored images; its masks are shifted back."""
    estimate = restorer.estimate(images)
    return restorer.redo(net(restorer.undo(images, estimate)).argmax(1, keepdim=True), estimate)


if __name__ == "__main__":
    torch.manual_seed(0)
    digits = dataset("mnist-10k", "test")
    images = resize(to_float(digits.images[:4300]), (32, 32))
    masks = torch.where(images > 0.3, digits.labels[:4300, None, None, None], 10)  # a pixel is its digit, or 10
    encoder = [nn.Conv2d(1, 8, 4, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15**2, 96), nn.ReLU()]
    net = nn.Sequential(*encoder, nn.Linear(96, 11 * 32**2), nn.Unflatten(1, (11, 32, 32)))  # your network
    optimizer, weight = torch.optim.Adam(net.parameters(), lr=0.003), torch.tensor([1.0] * 10 + [0.2])
    for batch in torch.randint(4000, (160, 40)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images[batch]), masks[batch, 0], weight).backward()
        optimizer.step()

    images, masks, shift = images[4000:], masks[4000:], torch.randint(-12, 13, (300, 2))  # held out
    moved, truth = unshift.apply(images, shift), unshift.apply(masks, shift)
    restorer = unshift.load("mnist")
    models = {"alone": lambda x: net(x).argmax(1, keepdim=True), "wrapped": lambda x: segment(net, restorer, x)}
    for name, model in models.items():
        accuracy = (model(moved) == truth)[truth < 10].float().mean()
        same = torch.equal(model(moved), unshift.apply(model(images), shift))
        print(f"{name:8} {accuracy:6.1%} of the pixels of shifted digits correct; equivariant bit for bit: {same}")
