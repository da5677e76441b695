"""Shared by the tests of exports: restorers of every kind, and the outputs of a graph and of PyTorch."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import onnxruntime
import pytest
import torch
from samples import bits, hard_images, make_restorer, untrained
from torch import nn

import unshift
from unshift import Restorer, apply
from unshift.coordinates import Padded, Polar
from unshift.exporting import Graph
from unshift.shifts import all_shifts


def session(data):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options)


def run(runtime, images):
    names = [output.name for output in runtime.get_outputs()]
    return dict(zip(names, map(torch.from_numpy, runtime.run(None, {"images": images.numpy()})), strict=True))


def in_pytorch(restorer, images):
    """The outputs of a graph, computed by the restorer in PyTorch."""
    first = restorer.stages[0]
    scores = first.scorer.scores(first.coordinates.canvases(images)).map().squeeze(1)
    wanted = {"restored": restorer(images), **restorer.estimate(images)._asdict(), "scores": scores}
    return {name: value for name, value in wanted.items() if value is not None}


def in_graph(restorer, images):
    """The outputs of the module that becomes the graph: its operations, with its loops run in Python.

    Capturing and writing a graph takes seconds. This is the same arithmetic, at any number of sizes; the files are
    tested too, at a few.
    """

    def while_loop(more, body, state):
        while more(*state):
            state = body(*state)
        return state

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("unshift.exact.runtime.is_traced", lambda: True)
        patch.setattr("unshift.exact.graph.while_loop", while_loop)
        return Graph(restorer, None, True)(images)


def differences(found, wanted):
    """The indices of the images for which any output differs in a bit."""
    wrong = set()
    for name, value in wanted.items():
        if name in found:
            assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype), name
            different = bits(found[name]) != bits(value)
            wrong.update(different.reshape(len(value), -1).any(1).nonzero().flatten().tolist())
    assert {"restored", "shift", "confidence", "tied"} <= set(found)
    assert {"turn", "angle"} & set(found) == {"turn", "angle"} & set(wanted)
    return sorted(wrong)


def everywhere(image):
    """One image at every shift."""
    moves = all_shifts(image.shape[1:])
    return apply(image.expand(len(moves), *image.shape), moves)


def assert_same_in(runtime, restorer, images, batch_size=64):
    for batch in images.split(batch_size):
        assert differences(run(runtime, batch), in_pytorch(restorer, batch)) == []


def padded(preset, channels, size, pad, trained=True):
    scorer = make_restorer(preset, channels, tuple(n + 2 * pad for n in size), trained).scorer
    return Restorer(scorer, coordinates=Padded(pad, 0.25))


@functools.cache
def turner(refine, size=12, angles=8, polar_angles=None):
    """A rotation restorer, not trained: its answers are arbitrary, and must be the same everywhere."""
    torch.manual_seed(0)
    polar = Polar(size, angles=angles, radii=3, ratio=None, refine=refine, polar_angles=polar_angles)
    return untrained(polar, 1, (size,) * polar.spatial_axes, "dense")


def moved_images(restorer, channels, size):
    """Hard images (constant, symmetric, tied, -0.0) and random ones, each under three moves of the group."""
    images = torch.stack([*hard_images(channels, size).values(), *torch.rand(3, channels, *size)])
    moves = restorer.coordinates.moves(size)
    chosen = torch.linspace(0, len(moves.shift) - 1, 3).long()
    poses = [
        type(moves)(*(None if part is None else part[k].expand(len(images), *part[k].shape) for part in moves))
        for k in chosen
    ]
    return torch.cat([restorer.coordinates.redo(images, pose) for pose in poses])


def turned(channels, size):
    """Hard images for rotations: those for shifts, each at four quarter turns, and rings that tie all angles."""
    images = torch.stack([*hard_images(channels, size).values()])
    middle = torch.stack(torch.meshgrid(*[torch.arange(n) - (n - 1) / 2 for n in size], indexing="ij"))
    ring = (middle[-2:].square().sum(0).sqrt().round() % 3 / 4).expand(1, channels, *size)
    spot = ring.clone()
    spot[0, 0].view(-1)[0] = 1  # in a corner, where the grid does not look: canvases are one, images are not
    images = torch.cat([images, ring, spot])
    return torch.cat([torch.rot90(images, quarter, (-2, -1)) for quarter in range(4)])


@functools.cache
def exported(scores=True):
    """A small net with a classifier behind it, as the bytes of a file."""
    torch.manual_seed(0)
    classifier = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5))
    restorer = make_restorer("dense", 1, (8, 8), True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.onnx"
        unshift.export(restorer, path, classifier=classifier.train(), size=(8, 8), scores=scores, name="small")
        assert [file.name for file in Path(folder).iterdir()] == ["small.onnx"]  # one file, and no weights beside it
        return restorer, classifier, path.read_bytes()


def overflowing(refine):
    """A rotation restorer whose grid has weights that add up to a little more than 1 in float32."""
    polar = Polar(12, angles=28, radii=5, ratio=None, refine=refine)
    return untrained(polar, 1, (12, 12), "dense")


def enormous(size):
    """Images of pixels as large as float32 holds, of either sign, with zeros of either sign among them."""
    largest = torch.finfo(torch.float32).max
    values = torch.tensor([largest, -largest, 0.0, -0.0, largest / 2])
    mixed = values[torch.randint(5, (12, 1, size, size), generator=torch.Generator().manual_seed(0))]
    constant = values.view(5, 1, 1, 1).expand(5, 1, size, size)
    return torch.cat([mixed, constant, torch.rot90(mixed[:3], 1, (2, 3))])
