"""An object anywhere in a scene: unshift beside a spatial transformer that had labels, and beside template matching."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from timing import Rows, milliseconds, take_turns
from torch import Tensor, nn
from torch.nn import functional as F

import unshift
from unshift.data import dataset, prepare, resize, to_float
from unshift.evaluation import predict
from unshift.experiments.classifiers import shipped
from unshift.experiments.scenes import NAME, scenes_of
from unshift.scenes import Scenes, cut

SIZE, WINDOW, DRAWS = (64, 64), (32, 32), 3
EPOCHS = 4


class SpatialTransformer(nn.Module):
    """A localisation network that says where to look and how close, a bilinear window, and the classifier behind it.

    It starts with the whole scene in view, so that gradients reach it, and learns to move in. The classifier starts as
    the frozen one and is trained along: what it sees is interpolated.
    """

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.localise = nn.Sequential(
            nn.Conv2d(1, 8, 7, stride=2, padding=3), nn.ReLU(),
            nn.Conv2d(8, 16, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 64, 64), nn.ReLU(), nn.Linear(64, 3),
        )  # fmt: skip
        last: Any = self.localise[-1]
        nn.init.zeros_(last.weight)
        last.bias.data = torch.tensor([2.0, 0.0, 0.0])
        self.classifier = copy.deepcopy(classifier)

    def forward(self, scenes: Tensor) -> Tensor:
        """Return logits."""
        zoom, down, right = self.localise(scenes).unbind(1)
        scale, none = 0.5 + 0.5 * zoom.sigmoid(), torch.zeros_like(zoom)
        rows = [torch.stack(row, 1) for row in ((scale, none, right.tanh()), (none, scale, down.tanh()))]
        grid = F.affine_grid(torch.stack(rows, 1), [len(scenes), 1, *WINDOW], align_corners=False)
        found: Tensor = self.classifier(F.grid_sample(scenes, grid, align_corners=False))
        return found


def _trained(digits: Tensor, labels: Tensor, classifier: nn.Module, epochs: int) -> tuple[SpatialTransformer, float]:
    """Train a spatial transformer on the scenes that the restorer learns from, with labels; return its CPU seconds."""
    torch.manual_seed(0)
    net = SpatialTransformer(classifier).train().requires_grad_(True)
    make = Scenes(SIZE, WINDOW, digits.shape[1:], "clutter", value=0.0)
    steps = epochs * (len(digits) // 64)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps + 1)
    generator, start = torch.Generator().manual_seed(0), time.process_time()
    for _ in range(epochs):
        for rows in torch.randperm(len(digits), generator=generator).split(64)[: len(digits) // 64]:
            scenes, _ = make.posed(digits[rows], generator)
            loss = F.cross_entropy(net(scenes), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval(), time.process_time() - start


def matched(template: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what cuts out the window where normalised cross-correlation with a template is highest."""
    from skimage.feature import match_template

    half = torch.tensor(WINDOW) // 2

    def windows(scenes: Tensor) -> Tensor:
        places = []
        for scene in scenes[:, 0].numpy():
            scores = torch.from_numpy(match_template(scene, template.numpy(), pad_input=True, mode="wrap"))
            places.append(torch.tensor(divmod(int(scores.argmax()), scores.shape[1])) - half)
        return cut(scenes, torch.stack(places), WINDOW)

    return windows


def scenes(quick: bool) -> Rows:
    """A digit at a random place of a 64x64 scene: accuracy of LeNet-5 in %, MNIST test, n = 4,000, seed 0, with six
    8x8 pieces of other digits, and with none. *One verdict*: 1,000 of the scenes under three random circular shifts
    each. The spatial transformer is trained on scenes like those that the restorer learnt from, with labels, four
    epochs of MNIST, its classifier too. Templates: the mean training digit, scikit-image, wrapped round the edges.
    Milliseconds for a scene in batches of 64, the classifier included."""
    train, test = dataset("mnist", "train"), dataset("mnist-10k", "test")
    assert train.labels is not None
    assert test.labels is not None
    steps, few = {"resize": list(WINDOW)}, 200 if quick else 4_000
    learnt = to_float(prepare(train.images[: 640 if quick else None], steps))
    digits, labels = to_float(prepare(test.images[:few], steps)), test.labels[:few]
    classifier, restorer = shipped()["lenet5-mnist"]().eval(), unshift.load(NAME)
    transformer, seconds = _trained(learnt, train.labels[: len(learnt)], classifier, 1 if quick else EPOCHS)
    find = matched(learnt.mean(0)[0])
    contenders: dict[str, Callable[[Tensor], Tensor]] = {
        "scaled down to 32x32": lambda x: classifier(resize(x, WINDOW)),
        "mean digit, normalised cross-correlation": lambda x: classifier(find(x)),
        f"spatial transformer with labels ({seconds:.0f} s of CPU)": transformer,
        f"unshift, `{NAME}`": lambda x: classifier(restorer(x)),
    }
    moves = [torch.randint(64, (1000, 2), generator=torch.Generator().manual_seed(draw)) for draw in range(DRAWS)]
    crowded, place = scenes_of(digits, SIZE, 6, 0)
    empty, _ = scenes_of(digits, SIZE, 0, 0)
    rows: Rows = []
    with torch.no_grad():
        right = predict(lambda x: classifier(x), cut(crowded, place, WINDOW)) == labels
        alone = predict(lambda x: classifier(x), digits) == labels
        rows.append({"": "window at the true place", "6 pieces": _percent(right), "no pieces": _percent(alone)})
        timed = take_turns(
            {name: lambda see=see: see(crowded[:64]) for name, see in contenders.items()}, 2 if quick else 7
        )
        for name, see in contenders.items():
            some = crowded[:1000]
            verdicts = torch.stack([predict(see, unshift.apply(some, move[: len(some)])) for move in moves])
            rows.append({
                "": name,
                "6 pieces": _percent(predict(see, crowded) == labels),
                "no pieces": _percent(predict(see, empty) == labels),
                "one verdict": _percent((verdicts == verdicts[0]).all(0)),
                "ms a scene": milliseconds([quartile / 64 for quartile in timed[name]]),
            })  # fmt: skip
    return rows


def _percent(right: Tensor) -> str:
    return f"{100 * float(right.double().mean()):.2f}"
