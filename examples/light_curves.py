"""Where is the maximum of a folded light curve? Learn it from stars whose maximum is known, and find that of others.

python examples/light_curves.py
"""

import numpy as np
import torch

import unshift
from unshift.experiments.folding import BANDS, BINS, Star, fold, sampled

chance = np.random.default_rng(0)


def star(name: str) -> Star:
    """Make one up: a quick rise to the maximum at phase 0, a slow fall, seen 60 times a band at random."""
    period, fall, amplitude = chance.uniform(0.4, 0.7), chance.uniform(3, 6), chance.uniform(0.5, 1.2)
    observed = {}
    for band, share in zip(BANDS, (1.2, 0.85, 0.68), strict=True):
        time = chance.uniform(0, 3000, 60)
        phase = time / period % 1
        bright = amplitude * share * np.where(phase > 0.9, (phase - 0.9) / 0.1, np.exp(-fall * phase))
        observed[band] = np.stack([time, 16 - bright + chance.normal(0, 0.02, 60)], 1)
    return Star(name, period, 0.0, observed)


known, new = [star(f"known {n}") for n in range(100)], [star(f"new {n}") for n in range(50)]
curves = torch.stack([fold(sampled(one, count, chance)) for one in known for count in (None, 25, 12, 12)])
restorer = unshift.fit(curves, preset="dense", batch_size=64, epochs=8, progress=False)

for count in (None, 12):  # observations a band; and each star folded from an epoch of its own
    ahead = torch.rand(len(new), generator=torch.Generator().manual_seed(1))
    folded = torch.stack([fold(sampled(one, count, chance), float(at)) for one, at in zip(new, ahead, strict=True)])
    off = (restorer.estimate(folded).shift[:, 0] / BINS - ahead + 0.5) % 1 - 0.5
    close = (off.abs() <= 0.05).float().mean()
    print(f"{count or 'all'} observations a band: {100 * close:.0f}% of {len(new)} new stars within 0.05 cycles")
