"""Moves written with torch alone, hard images under all of them, and the check that they are undone bit for bit."""

from __future__ import annotations

import functools

import torch
from samples import blobs, hard_images, train

from unshift import Chain, Restorer, ShiftEstimator, quantise
from unshift.coordinates import Centre, Polar
from unshift.exact import ordered_bits
from unshift.shifts import all_shifts

DTYPES = (torch.uint8, torch.float16, torch.float32, torch.float64)

QUARTERS = [functools.partial(torch.rot90, k=k, dims=(2, 3)) for k in range(4)]


def cube_turns():
    """Return the 24 rotations of a cube, as products of quarter turns in its three planes."""
    number = torch.arange(27).view(1, 1, 3, 3, 3)
    words = {tuple(number.flatten().tolist()): ()}
    reached = list(words.values())
    for word in reached:
        for plane in ((2, 3), (2, 4), (3, 4)):
            longer = (*word, plane)
            found = tuple(spell(longer)(number).flatten().tolist())
            if found not in words:
                words[found] = longer
                reached.append(longer)
    return [spell(word) for word in reached]


def spell(word):
    return lambda x: functools.reduce(lambda x, plane: torch.rot90(x, 1, plane), word, x)


SPELT = {  # the elements of each group, in its order (except for the cube)
    "mirror": [lambda x: x, lambda x: x.flip(-1)],
    "half": [lambda x: x, lambda x: x.rot90(2, (2, 3))],
    "quarter": QUARTERS,
    "flips": [*QUARTERS, *(lambda x, turn=turn: turn(x.flip(-1)) for turn in QUARTERS)],
    "strand": [lambda x: x, lambda x: x.flip(1, 2)],
    "cube": cube_turns(),
}

CASES = [
    ("mirror", 1, (6, 6)),
    ("mirror", 2, (9,)),
    ("mirror", 1, (5, 7)),
    ("mirror", 1, (3, 4, 5)),
    ("half", 1, (8, 8)),
    ("half", 2, (5, 6)),
    ("quarter", 1, (8, 8)),
    ("quarter", 3, (5, 5)),
    ("flips", 1, (8, 8)),
    ("flips", 1, (5, 5)),
    ("strand", 4, (16,)),
    ("strand", 4, (15,)),
    ("cube", 1, (3, 3, 3)),
]

KINDS = ("random", "constant", "uneven", "one_pixel", "tied", "symmetric", "faint_symmetric", "signed_zeros")
"""The hard images that differ most, where there is no time for all."""


def moved_by_all(image, turns):
    """Return every turn and shift of ``image``."""
    shifts = all_shifts(image.shape[1:])
    axes = tuple(range(1, image.ndim))
    return torch.stack([turn(image[None])[0].roll(tuple(s), axes) for turn in turns for s in shifts.tolist()])


def images_for(turns, channels, size, dtype):
    """Return all hard images, images that the turns leave unchanged, and noise that quantises to 0."""
    images = hard_images(channels, size, dtype)
    noise = torch.rand(channels, *size, generator=torch.Generator().manual_seed(5))
    largest = torch.stack([turn(noise[None])[0] for turn in turns]).amax(0)  # no sum: the same bits in any order
    images["symmetric"] = (255 * largest).to(dtype) if dtype == torch.uint8 else largest.to(dtype)
    if dtype != torch.uint8:
        images["faint"], images["faint_symmetric"] = (noise * 1e-4).to(dtype), (largest * 1e-4).to(dtype)
    return images


def restorer_for(coordinates, preset, channels, size, trained=False):
    torch.manual_seed(0)
    net = coordinates.network(preset, channels, size)
    samples = torch.cat(list(coordinates.canvases(blobs(16, channels, size))))
    if trained:
        train(net, samples)
    return Restorer(quantise(net, samples), coordinates=coordinates)


def wrong(restorer, images, moved):
    """Return which moved images ``(image, move, channel, *size)`` differ in any bit of the result or the estimate."""
    count, flat = moved.shape[1], moved.flatten(0, 1)
    still, found = restorer.estimate(images), restorer.estimate(flat)
    wanted = ordered_bits(restorer.undo(images, still)).repeat_interleave(count, 0)
    different = (ordered_bits(restorer.undo(flat, found)) != wanted).flatten(1).any(1)
    for moved_part, still_part in ((found.confidence, still.confidence), (found.tied, still.tied)):
        different |= moved_part != still_part.repeat_interleave(count)
    return different.view(len(images), count)


def mismatches(restorer, image, moved):
    """Return the number of moved images whose result or estimate differs from that of ``image``."""
    return int(wrong(restorer, image[None], moved[None]).sum())


def assert_all_exact(restorer, turns, channels, size, dtypes=(torch.float32,), kinds=None, move=moved_by_all):
    """Assert that every hard image is restored to the same bits under every move."""
    for dtype in dtypes:
        images = images_for(turns, channels, size, dtype)
        images = {kind: image for kind, image in images.items() if kinds is None or kind in kinds}
        moved = torch.stack([move(image, turns) for image in images.values()])
        found = wrong(restorer, torch.stack([*images.values()]), moved).sum(1).tolist()
        assert not any(found), (dtype, {kind: n for kind, n in zip(images, found, strict=True) if n})


def chain_for(size, preset="dense", trained=False, refine=False):
    centre = restorer_for(Centre(), preset, 1, (size, size), trained)
    polar = Polar(size, angles=8, radii=3, ratio=None, refine=refine)
    return Chain(centre, restorer_for(polar, "dense", 1, (size, size), trained))


def quarter(images, k, axis=0):
    """Turn images, or volumes about ``axis``, by ``k`` quarters."""
    if images.ndim == 4:
        return torch.rot90(images, k, (2, 3))
    return torch.rot90(images, k, [2 + a for a in range(3) if a != axis])


def polar_restorer(polar, channels=1, widths=(4, 1), calibration=1.0):
    """Return a restorer with random full-size filters on ``polar``."""
    torch.manual_seed(0)
    n = polar.angles
    net = ShiftEstimator(channels * polar.channels, channels=widths, kernel_size=[n], bias=True, size=[n])
    sample = torch.rand(8, channels, *[polar.size] * polar.spatial_axes) * calibration
    return Restorer(quantise(net, polar.canvases(sample)[0]), coordinates=polar).eval()
