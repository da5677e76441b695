"""What should the network of a ring see of the axes that do not go round: channels, or axes of local filters?

    python benchmarks/ring.py [--images N] [--epochs N]

Photos of CIFAR-10, whose columns go round. *Channels*: each column, all rows and colours of it, is one position of 96
channels, and all filters are 1-D. *Local filters*: the first layer has 2-D filters, then comes a mean over the rows.
Both are the preset ``seam`` by the same recipe; the share of held-out training photos found to the column.
"""

from __future__ import annotations

import argparse
import time

import unshift
from unshift.coordinates import Ring
from unshift.data import dataset, to_float


class Channels(Ring):
    """A ring whose networks see the other axes as channels, whatever the preset."""

    def network(self, preset: str, channels: int, size: tuple[int, ...]) -> unshift.ShiftEstimator:
        return unshift.ShiftEstimator.preset(preset, channels * size[0], [size[1]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    photos = to_float(dataset("cifar10", "train").images[: arguments.images + 1000])
    for name, ring in (("channels", Channels()), ("local filters", Ring())):
        start = time.process_time()
        fitted = unshift.fit(photos, "seam", coordinates=ring, epochs=arguments.epochs, validation=1000, progress=False)
        exact, seconds = fitted.metadata["validation"]["exact"], time.process_time() - start
        print(f"{name:14} {100 * exact:5.1f}% of 1,000 held out, {seconds:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
