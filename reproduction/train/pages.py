"""``pages``: pages of documents, in quarter turns.

    python -m reproduction.train.pages --out pages.safetensors

It is trained in bfloat16 on crops of pages of Debian packages (:mod:`reproduction.pages`), at random sizes and degraded
like scans. Threshold and calibration come from pages of other packages. A killed run resumes where it stopped.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import unshift
from reproduction.pages import PACKAGES, SET, age, home, pages, shown
from unshift.coordinates import Poses
from unshift.evaluation import calibrate, judge, rates_from
from unshift.training.muon import Muon

SIDE, TILE = 256, 800
"""Sizes of the crops to learn from, and of the part of each page that they are cut from."""
SCALES = (0.38, 0.85)
"""Crops are reduced to these shares of a rendered page's resolution: the network sees longer sides of 650 to 1,300."""
BATCH, AVERAGE = 16, 0.999
PHASES = ((16000, 0.005, {}), (12000, 0.003, {"set": 3, "he": 6}))
"""Steps, learning rate, and how much more often to show the pages set here (in one language): those learnt last."""
STEPS = sum(steps for steps, _, _ in PHASES)
SHARPNESS = 4
"""Factor of the scores in the loss: means over all positions differ little at first."""
NETWORK: dict[str, Any] = {
    "channels": (16, 48, 96, 128),
    "kernel_size": (6, 3, 3, 3),
    "stride": (4, 3, 2, 2),
    "hidden": 128,
}
WRONG = 0.0015
"""Share of the pages held out that may be turned wrongly: half of what is promised."""
SEEN = 1300
"""The network sees pages whose longer side has at most this many pixels."""


def edges(image: np.ndarray) -> float:
    """Return the share of steep steps between neighbouring pixels: how much is printed."""
    return float((np.abs(np.diff(image[::3].astype(np.int16))) > 60).mean())


def tiles(package: str, language: str | None = None) -> np.ndarray:
    """Return one square part of each page of a package, the fullest of three random ones: uint8 ``(n, side, side)``.

    Of the pages set here, those in one language.
    """
    path = home() / f"tiles-{'-'.join(filter(None, (package, language)))}.npy"
    if not path.exists():
        chance, found = np.random.default_rng(0), []
        for image in (page.image for page in pages("train", package) if language in (None, page.file)):
            image = np.pad(image, [(0, max(0, TILE - n)) for n in image.shape], constant_values=255)
            corners = [[int(chance.integers(0, n - TILE + 1)) for n in image.shape] for _ in range(3)]
            parts = [image[y : y + TILE, x : x + TILE] for y, x in corners]
            fullest = max(parts, key=edges)
            if edges(fullest) > 0.002:
                found.append(fullest)
        np.save(path, np.array(found, np.uint8).reshape(-1, TILE, TILE))
    return np.load(path, mmap_mode="r")


def training_tiles() -> dict[str, np.ndarray]:
    """Return the parts of pages to learn from, by package; of those set here, by language."""
    found = {package: tiles(package) for package in PACKAGES["train"]}
    found |= {language: tiles("set", language) for language in SET["train"][2]}
    return {name: each for name, each in found.items() if len(each)}


def crop(sources: list[np.ndarray], shares: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    """Return a random crop that is not blank, aged three times out of four."""
    source = sources[chance.choice(len(sources), p=shares)]
    tile = np.asarray(source[chance.integers(len(source))])
    for _ in range(4):
        side = min(SIDE / math.exp(chance.uniform(*map(math.log, SCALES))), TILE)
        x, y = chance.uniform(0, TILE - side, 2)
        if edges(tile[int(y) : int(y + side), int(x) : int(x + side)]) > 0.004:
            break
    box = (x, y, x + side, y + side)
    image = np.asarray(Image.fromarray(tile).resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box))
    return age(image, chance) if chance.random() < 0.75 else image


class Crops(Dataset[Tensor]):
    """Batches of crops, one for each step; the step is the seed."""

    def __init__(self, sources: dict[str, np.ndarray]) -> None:
        self.sources = list(sources.values())
        self.shares = []
        for _, _, more in PHASES:
            often = [more.get(name, more.get("set", 1) if name in SET["train"][2] else 1) for name in sources]
            shares = np.array(often) * np.array([len(source) for source in self.sources]) ** 0.6
            self.shares.append(shares / shares.sum())

    def __getitem__(self, step: int) -> Tensor:
        torch.set_num_threads(1)
        chance, shares = np.random.default_rng(step), self.shares[phase_of(step)[0]]
        return torch.from_numpy(np.stack([crop(self.sources, shares, chance) for _ in range(BATCH)]))


def phase_of(step: int) -> tuple[int, float]:
    """Return the number of a step's phase, and its learning rate."""
    number = 0
    while step >= PHASES[number][0]:
        step -= PHASES[number][0]
        number += 1
    steps, rate, _ = PHASES[number]
    return number, rate * min(1, (step + 1) / 100) * (0.5 + 0.5 * math.cos(math.pi * step / steps)) + 1e-5


def fit(path: Path) -> unshift.PoseEstimator:
    """Return the trained network: cross-entropy over the four turns of each crop, the upright one being the target."""
    torch.manual_seed(0)
    network = unshift.PoseEstimator(1, **NETWORK)
    with torch.no_grad():  # filters that do not answer to brightness learn sooner
        first_filters = network.local[0].weight
        first_filters.sub_(first_filters.mean((1, 2, 3), keepdim=True)).mul_(4)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters = list(network.parameters())
    average = [p.detach().clone() for p in parameters]
    optimizer = Muon(parameters, PHASES[0][1])
    sources = training_tiles()
    print(len(sources), "packages and languages,", sum(map(len, sources.values())), "pages", flush=True)
    first, running, started = 0, math.log(4), time.monotonic()
    state = path.with_suffix(".checkpoint")
    if state.exists():
        saved = torch.load(state, weights_only=True)
        first, average = saved["step"], saved["average"]
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
    for step, made in enumerate(DataLoader(Crops(sources), None, sampler=range(first, STEPS), num_workers=2), first):
        for group in optimizer.param_groups:
            group["lr"] = phase_of(step)[1]
        crops = made.float()[:, None] / 255
        turned = torch.cat([torch.rot90(crops, turn, (2, 3)) for turn in range(4)])
        with torch.autocast("cpu", torch.bfloat16):
            scores = network(turned.contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(SHARPNESS * scores.float().view(4, BATCH).T, torch.zeros(BATCH, dtype=torch.int64))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        share = min(AVERAGE, (1 + step) / (10 + step))
        with torch.no_grad():
            for mean, p in zip(average, parameters, strict=True):
                mean.lerp_(p, 1 - share)
        running += 0.02 * (float(loss.detach()) - running)
        if step % 100 == 99:
            print(step + 1, f"loss {running:.3f}", f"{time.monotonic() - started:.0f} s", flush=True)
            parts = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({"step": step + 1, "average": average, **parts}, state)
    with torch.no_grad():
        for mean, p in zip(average, parameters, strict=True):
            p.copy_(mean)
    return network


def images(role: str) -> list[torch.Tensor]:
    """Return pages that are not trained on."""
    return [torch.from_numpy(image.copy())[None, None] for _, image, _ in shown(role)]


def finish(network: unshift.PoseEstimator) -> unshift.Restorer:
    """Return the restorer in integers: calibrated, and with its threshold, on pages of the packages held out."""
    samples = [torch.from_numpy(tiles(package)[:8].copy())[:, None] for package in PACKAGES["train"]]
    coordinates = Poses("quarter", longest=SEEN)
    restorer = unshift.Restorer(unshift.quantise(network, torch.cat(samples)), coordinates=coordinates)
    held = images("held")
    judged = calibrate(restorer, lambda: ([image] for image in held))
    right, confidence = judged.right, judged.confidence
    wrong = confidence[~right].sort(descending=True).values
    allowed = int(WRONG * len(held))
    restorer.min_confidence = float(wrong[allowed]) + 1e-6 if len(wrong) > allowed else 0.5
    refused = float((confidence < restorer.min_confidence).double().mean())
    restorer.metadata |= {
        "data": "pages of Debian packages",
        "preset": "custom",
        "train_images": sum(map(len, training_tiles().values())),
        "steps": STEPS,
        "batch_size": BATCH,
        "seed": 0,
        "validation": rates_from(judged).as_dict() | {"refused": refused},
    }
    restorer.trained_on = {"channels": 1, "range": [0.0, 1.0], "preparation": {}}
    return restorer


def main() -> None:
    """Train, calibrate and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where the restorer goes")
    parser.add_argument("--threads", type=int, help="CPU threads; the last bits of results depend on their number")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    restorer = finish(fit(given.out))
    least, restorer.min_confidence = restorer.min_confidence, 0.0
    restorer.metadata["test"] = rates_from(judge(restorer, ([image] for image in images("test")))).as_dict()
    restorer.min_confidence = least
    restorer.save(given.out)
    print(given.out, restorer.min_confidence, restorer.metadata["validation"], restorer.metadata.get("calibration"))


if __name__ == "__main__":
    main()
