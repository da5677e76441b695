"""``mitogenome``: circular genomes of vertebrates, from any base of either strand.

python -m reproduction.train.mitogenome --out mitogenome.safetensors
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

import unshift
from reproduction import mitogenomes
from reproduction.mitogenomes import Mitogenome
from reproduction.train.common import fit, main, seeded
from unshift.coordinates import Turns
from unshift.data.sequences import encode
from unshift.evaluation import Judged, calibrate, rates_from

HELD_OUT = 50
"""Genomes to follow the training by. The confidence is calibrated on genera that were held out."""
NEAR, STRETCH = 400, 2000
"""Bases to keep on each side of the start, and of the stretch elsewhere that is scored with them."""
MOST, INDELS = 0.1, 0.01
"""The largest shares of bases to replace, and to delete or double."""
MOST_WRONG = 0.005
ABOUT = {
    "trained on": "mitogenomes of vertebrates of GenBank, one of each species, turned to tRNA-Phe; five genera of "
    "eight, the others being held out to calibrate on and to test",
    "does not know": "mitochondria of tunicates, of other invertebrates, of plants and of fungi; plasmids, phages and "
    "bacteria; genomes that lack tRNA-Phe. unshift orient leaves most of them as they are, by the confidence",
}
NETWORK: dict[str, Any] = {"channels": (16, 16, 1), "kernel_size": (33,), "bias": True}


def windows(genomes: Tensor, generator: torch.Generator) -> Tensor:
    """Keep the surroundings of the start, and one random stretch of the rest: a sixth of the work of a genome."""
    length = genomes.shape[2]
    if length < 2 * NEAR + STRETCH:
        return genomes
    at = int(torch.randint(NEAR, length - NEAR - STRETCH + 1, (), generator=generator))
    return torch.cat([genomes[..., :NEAR], genomes[..., at : at + STRETCH], genomes[..., length - NEAR :]], 2)


def indels(genomes: Tensor, generator: torch.Generator, share: float | None = None) -> Tensor:
    """Delete or double a share of the bases, but not the first; by default a random share up to :data:`INDELS`."""
    rate = INDELS * float(torch.rand(1, generator=generator)) if share is None else share
    chance = torch.rand(genomes.shape[2], generator=generator)
    copies = 1 + (chance < rate / 2).long() - (chance > 1 - rate / 2).long()
    copies[0] = 1
    return genomes.repeat_interleave(copies, 2)


def substitutions(genomes: Tensor, generator: torch.Generator, share: float | None = None) -> Tensor:
    """Replace a share of the bases at random; by default a random share up to :data:`MOST`."""
    rate = MOST * float(torch.rand(1, generator=generator)) if share is None else share
    chosen = torch.rand(len(genomes), 1, genomes.shape[2], generator=generator) < rate
    bases = torch.randint(4, (len(genomes), genomes.shape[2]), generator=generator)
    return torch.where(chosen, F.one_hot(bases, 4).movedim(2, 1).to(genomes.dtype), genomes)


def balanced(genomes: Sequence[Mitogenome]) -> list[Tensor]:
    """Return the genomes, those of smaller classes several times: a class counts by the root of its size."""
    groups: dict[str, list[Mitogenome]] = {}
    for one in genomes:
        groups.setdefault(one.group, []).append(one)
    largest = max(map(len, groups.values()))
    return [
        image
        for members in groups.values()
        for one in members
        for image in [encode(one.text)] * min(10, round(math.sqrt(largest / len(members))))
    ]


def images(split: Literal["train", "test"]) -> list[Tensor]:
    """Return the genomes of a split by genus."""
    return mitogenomes.examples(split)


def without_start(text: str) -> str:
    """Return a genome without its first gene and what precedes it: a partial one, which has no start."""
    return text[150 : len(text) - 200]


def calibrate_on_genera(restorer: Any) -> None:
    """Calibrate the confidence, and choose the least one of ``unshift orient``, on genera that were held out.

    Two sequences without a start stand beside each genome: itself without the gene, and its bases shuffled. The
    confidence is thus low where there is nothing to find. The least one is the lowest at which at most 0.5% of the
    genomes that are turned are wrong by any base, and at most 0.5% of these other sequences are turned.
    """
    texts = [one.text for one in mitogenomes.genomes() if one.split == "calibration"]
    chance = random.Random(0)
    others = [without_start(text) for text in texts] + ["".join(chance.sample(text, len(text))) for text in texts]
    images = [encode(text) for text in [*texts, *others]]
    judged = calibrate(restorer, lambda: ([image[None]] for image in images))
    own = Judged(*(part[: len(texts)] for part in judged))
    restorer.metadata["validation"] = rates_from(own).as_dict()
    for least in sorted({*judged.confidence.tolist()}):
        turned = own.confidence >= least
        wrong, foreign = int((turned & ~own.right).sum()), int((judged.confidence[len(texts) :] >= least).sum())
        if wrong <= MOST_WRONG * int(turned.sum()) and foreign <= MOST_WRONG * len(others):
            break
    restorer.metadata["orient"] = {
        "min_confidence": least,
        "genomes": len(texts),
        "turned": int(turned.sum()),
        "wrong": wrong,
        "others": len(others),
        "others_turned": foreign,
    }


def fit_on(genomes: Sequence[Mitogenome], **options: Any) -> unshift.Restorer:
    """Fit on genomes, with balanced classes."""
    recipe: Any = {"epochs": 6, "batch_size": 8, "learning_rate": 0.006, **options}
    recipe |= {"coordinates": Turns("strand"), "augment": [windows, indels, substitutions]}
    held_out = min(HELD_OUT, max(1, len(genomes) // 10))
    return fit("mitogenomes of vertebrates", balanced(genomes), seeded(0, 4, **NETWORK), {}, held_out, **recipe)


def train(**options: Any) -> unshift.Restorer:
    """Fit on the training genera; calibrate on the genera held out for that."""
    restorer = fit_on([one for one in mitogenomes.genomes() if one.split == "train"], **options)
    calibrate_on_genera(restorer)
    restorer.metadata["about"] = ABOUT
    return restorer


if __name__ == "__main__":
    main()
