"""Put a restorer before your model: the model stays frozen, and its output no longer depends on the shift.

python examples/wrap_your_model.py
"""

import torch

import unshift
from unshift.classifiers import load as load_classifier
from unshift.data import dataset, resize, to_float
from unshift.evaluation import accuracy_over_scopes

classifier = load_classifier("lenet5-mnist")  # or yours: any module from images to logits
restorer = unshift.load("mnist")
model = torch.nn.Sequential(restorer, classifier)

digits = dataset("mnist-10k", "test")  # embedded in the package
images = resize(to_float(digits.images[:500]), (32, 32))
rows = accuracy_over_scopes(classifier, images, digits.labels[:500], restorer, scopes=[0, 2, 4, 8])
print("shift up to   alone   wrapped")
for row in rows:
    print(f"{row.scope:3} pixels   {row.without[0]:7.1%}   {row.restored[0]:7.1%}  {'#' * round(40 * row.without[0])}")

moved = unshift.apply(images, torch.randint(-32, 32, (500, 2)))
print("\nwrapped: logits of shifted and unshifted digits equal:", torch.equal(model(moved), model(images)))
print("alone: largest difference of the logits:", f"{(classifier(moved) - classifier(images)).abs().max():.1f}")

estimate = restorer.estimate(moved)
print("\nestimated shifts of the first three (down, right):", estimate.shift[:3].tolist(), "of 32 each")
