"""What should the network of a ring see of the axes that do not go round: channels, or local 2-D filters first?

    python benchmarks/ring.py [--images N] [--epochs N]

Photos of CIFAR-10, whose columns go round. *Channels*: each column, all rows and colours of it, is one position of 96
channels, with 1-D filters (``Ring``). *Local filters*: one layer of 2-D filters, a mean over the rows, then 1-D ones.
Both get the same 1-D layers, images, epochs and optimiser; the share of held-out training photos found to the column.
"""

from __future__ import annotations

import argparse
import itertools
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unshift.circular import CircularFilter
from unshift.data import dataset, to_float
from unshift.muon import Muon


class Net(nn.Module):
    def __init__(self, local: bool) -> None:
        super().__init__()
        self.local = CircularFilter(3, 24, [3, 3]) if local else None
        widths = [24 if local else 96, 64, 64, 1]
        self.lines = nn.ModuleList(CircularFilter(i, o, [9]) for i, o in itertools.pairwise(widths))

    def forward(self, images: Tensor) -> Tensor:
        x = images.flatten(1, 2) if self.local is None else torch.relu(self.local(images)).mean(2)
        for layer in self.lines[:-1]:
            x = torch.relu(layer(x))
        return self.lines[-1](x)[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    photos = to_float(dataset("cifar10", "train").images[: arguments.images + 1000])
    photos = (photos - photos.mean((0, 2, 3), keepdim=True)) / photos.std()
    train, held = photos[1000:], photos[:1000]
    for name, local in (("channels", False), ("local filters", True)):
        torch.manual_seed(0)
        net, start = Net(local), time.process_time()
        optimizer = Muon(net.parameters(), lr=0.01)
        for _ in range(arguments.epochs):
            for batch in train[torch.randperm(len(train))].split(64):
                loss = F.cross_entropy(net(batch), torch.zeros(len(batch), dtype=torch.int64))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            exact = (net(held).argmax(1) == 0).float().mean()
        count, seconds = sum(p.numel() for p in net.parameters()), time.process_time() - start
        print(
            f"{name:14} {100 * exact:5.1f}% of 1,000 held out, {count:,} parameters, {seconds:.0f} s of CPU", flush=True
        )


if __name__ == "__main__":
    main()
