"""Restore in the DataLoader: its workers undo the shifts, and the training or test loop does not change.

python examples/in_a_dataloader.py
"""

from functools import partial

import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

import unshift
from unshift.classifiers import load as load_classifier
from unshift.data import dataset, resize, to_float


def restored(restorer: unshift.Restorer, samples: list) -> list:
    """Collate samples as usual, with the images restored."""
    images, labels = default_collate(samples)
    return [restorer(images), labels]


if __name__ == "__main__":
    digits = dataset("mnist-10k", "test")
    images = resize(to_float(digits.images[:500]), (32, 32))
    moved = unshift.apply(images, torch.randint(-10, 11, (500, 2)))
    data = TensorDataset(moved, digits.labels[:500])

    collate = partial(restored, unshift.load("mnist"))
    loaders = {
        "not restored": DataLoader(data, batch_size=64, num_workers=2),
        "restored": DataLoader(data, batch_size=64, num_workers=2, collate_fn=collate),
    }
    classifier = load_classifier("lenet5-mnist")
    for name, loader in loaders.items():
        right = sum(int((classifier(images).argmax(1) == labels).sum()) for images, labels in loader)
        print(f"{name}: {right} of {len(data)} shifted digits right  {'#' * (right // 12)}")
