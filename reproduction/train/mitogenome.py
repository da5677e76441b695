"""``mitogenome``: circular genomes of bony fish, from any base of either strand.

python -m reproduction.train.mitogenome --out mitogenome.safetensors
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import unshift
from reproduction import mitogenomes
from reproduction.train.common import fit, main
from unshift.coordinates import Turns

HELD_OUT = 0.1
MOST = 0.1
"""The largest share of bases to replace: other fish differ as much from those that were trained on."""
ABOUT = {
    "trained on": "mitogenomes of bony fish of GenBank that are deposited from tRNA-Phe, of two genera out of three, "
    "the others being the test",
    "does not know": "other starts than tRNA-Phe; mitochondria of animals that are not bony fish; plasmids, phages and "
    "bacteria; genomes that lack the gene. It answers all the same, so mind the confidence",
}


def images(split: str) -> list[Tensor]:
    """Return the genomes that begin at tRNA-Phe, as shares of the bases."""
    return mitogenomes.examples(split)


def substitutions(genomes: Tensor, generator: torch.Generator, share: float | None = None) -> Tensor:
    """Replace a share of the bases at random; by default a random share up to :data:`MOST`."""
    rate = MOST * float(torch.rand(1, generator=generator)) if share is None else share
    chosen = torch.rand(len(genomes), 1, genomes.shape[2], generator=generator) < rate
    bases = torch.randint(4, (len(genomes), genomes.shape[2]), generator=generator)
    return torch.where(chosen, F.one_hot(bases, 4).movedim(2, 1).to(genomes.dtype), genomes)


def train(**options: Any) -> unshift.Restorer:
    """Fit the preset ``sequence`` on genomes with substitutions."""
    recipe: Any = {"epochs": 2, "batch_size": 8, "augment": [substitutions], **options}
    turns = Turns("strand")
    restorer = fit("mitogenomes of bony fish", images("train"), "sequence", {}, HELD_OUT, coordinates=turns, **recipe)
    restorer.metadata["about"] = ABOUT
    return restorer


if __name__ == "__main__":
    main()
