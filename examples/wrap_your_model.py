"""Put a restorer before a model you have: it is frozen, never retrained, and no longer cares about shifts.

python examples/wrap_your_model.py
"""

import torch

import unshift
from unshift.data import dataset, resize, to_float
from unshift.evaluation import accuracy_over_scopes
from unshift.experiments.classifiers import shipped

classifier = shipped()["lenet5-mnist"]()  # yours: any module from images to logits
restorer = unshift.load("mnist")
model = torch.nn.Sequential(restorer, classifier)  # that is all

digits = dataset("mnist-10k", "test")  # comes with the package
images = resize(to_float(digits.images[:500]), (32, 32))
rows = accuracy_over_scopes(classifier, images, digits.labels[:500], restorer, scopes=[0, 2, 4, 8])
print("shift up to   alone   wrapped")
for row in rows:
    print(f"{row.scope:3} pixels   {row.without[0]:7.1%}   {row.restored[0]:7.1%}  {'#' * round(40 * row.without[0])}")

moved = unshift.apply(images, torch.randint(-32, 32, (500, 2)))
print("\nwrapped, logits of shifted and unshifted digits equal:", torch.equal(model(moved), model(images)))
print("alone, how far the logits are apart:", f"{(classifier(moved) - classifier(images)).abs().max():.1f}")

found = restorer.estimate(moved)
print("\nwhat the restorer read off the first three (down, right):", found.shift[:3].tolist(), "of 32 each")
