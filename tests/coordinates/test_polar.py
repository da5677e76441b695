"""Restorers of rotations: exact under quarter turns, and errors that say what is wrong."""

from __future__ import annotations

import pytest
import torch
from quarter_turns import FLOATS, SIZES, make, quarter
from samples import bits

import unshift
from unshift.coordinates import Polar, Pose, rotate
from unshift.data import dataset
from unshift.exact import choose
from unshift.testing import assert_equivariant, verify


def assert_quarters_exact(restorer, images, axis=0):
    wanted, still = restorer(images), restorer.estimate(images)
    for k in range(1, 4):
        turned = quarter(images, k, axis)
        found = restorer.estimate(turned)
        assert torch.equal(bits(restorer.undo(turned, found)), bits(wanted))
        assert not found.shift.any()
        assert found.turn is None
        more = torch.remainder(found.angle - still.angle, 360)
        assert (more[~still.tied] == 90 * k).all()
        assert torch.equal(found.confidence, still.confidence)
        assert torch.equal(found.tied, still.tied)


@pytest.mark.parametrize(
    ("refine", "count"), [(True, 500), (False, 500), pytest.param(True, 10_000, marks=pytest.mark.slow)]
)
def test_every_test_digit_is_exact_under_quarter_turns(refine, count):
    digits = dataset("mnist-10k", "test").images[:count]
    restorer = make(Polar(28, angles=36, radii=12, refine=refine))
    for part in digits.split(2500):
        assert_quarters_exact(restorer, part)
    shown = restorer.estimate(digits[:50])
    assert shown.angle is not None
    assert len(set(shown.angle.tolist())) > 5  # it does not just say 0


@pytest.mark.parametrize("dtype", [torch.uint8, *FLOATS])
@pytest.mark.parametrize("size", SIZES)
def test_random_images_are_exact_under_quarter_turns(size, dtype):
    images = (200 * torch.rand(3, 2, size, size)).to(dtype)  # far beyond the calibration: floats are tied as well
    for refine in (False, True):
        assert_quarters_exact(make(Polar(size, angles=12, radii=4, refine=refine), channels=2), images)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_volumes_are_exact_under_quarter_turns(axis):
    polar = Polar(8, angles=12, radii=4, polar_angles=5, axis=axis, refine=True)
    assert_quarters_exact(make(polar), torch.rand(20, 1, 8, 8, 8), axis)


def symmetric_images(size=12):
    """Images whose canvas repeats itself, though not all of the image does: the ties that canvases cannot tell."""
    generator = torch.Generator().manual_seed(3)
    noise = torch.rand(size, size, generator=generator)
    fourfold = sum(torch.rot90(noise, k) for k in range(4)) / 4
    twofold = noise + torch.rot90(noise, 2)
    corners = torch.rand(size, size, generator=generator)
    middle = torch.arange(size) - (size - 1) / 2
    seen = (middle[:, None] ** 2 + middle[None] ** 2).sqrt() <= size / 4 + 2
    images = [
        torch.zeros(size, size),
        torch.full((size, size), 0.7),
        fourfold,
        twofold,
        torch.where(seen, torch.zeros(()), corners),
        torch.where(seen, torch.full((), 0.5), corners),
        torch.where(seen, fourfold, corners),
        torch.where(seen, twofold, corners),
        torch.where(seen, fourfold, corners.round()),
    ]
    return torch.stack(images)[:, None]


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("calibration", [1.0, 0.01])
def test_ties_are_settled_by_the_images_not_the_canvas(refine, calibration):
    images = symmetric_images()
    polar = Polar(12, angles=12, radii=4, radius=3.0, refine=refine)
    restorer = make(polar, calibration=calibration)
    assert restorer.estimate(images).tied.sum() >= 6
    assert_quarters_exact(restorer, images)
    # The canvas alone would not do: some tied positions share it, and restore to different images.
    plain = []
    for x in (images, quarter(images, 1)):
        canvas = polar.canvas(x)
        scores = restorer.scores(canvas)
        index, _ = choose(scores, lambda canvas=canvas: canvas)
        plain.append(polar.undo(x, polar.pose(index, scores, (12, 12))))
    assert not torch.equal(*plain)


def test_rotated_images_come_back():
    """A net trained for a moment on lopsided blobs finds the angle to within half a step."""
    torch.manual_seed(1)
    size = 32
    place = torch.arange(size) - (size - 1) / 2
    right, up = place[None, :], -place[:, None]

    def blob(x, y):
        return torch.exp(-((right - x) ** 2 + (up - y) ** 2) / 8)

    jitter = torch.randn(200, 4)
    images = torch.stack([blob(8 + a, 1 + b) + 0.6 * blob(-2 + c, 6 + d) for a, b, c, d in jitter.tolist()])[:, None]
    polar = Polar(size, angles=24, radii=8, ratio=None, refine=True)
    net = polar.network("dense", 1, (size, size))
    restorer = unshift.fit(images, net, coordinates=polar, epochs=5, batch_size=20, progress=False)
    applied = torch.linspace(0, 359, 60, dtype=torch.float64)
    estimate = restorer.estimate(rotate(images[:60], applied))
    assert estimate.angle is not None
    error = ((estimate.angle - applied + 180) % 360 - 180).abs()
    assert error.median() < 10
    assert restorer.coordinates.describe()["kind"] == "polar"


def test_the_network_and_verify_work_as_they_are():
    polar = Polar(16, angles=12, radii=5)
    restorer = make(polar, widths=(3, 1))
    assert_equivariant(restorer.scorer, (polar.channels, 12), tolerance=0, dtype=torch.float32)
    assert verify(restorer, torch.rand(3, 1, 16, 16), brute_force=True).exact


def test_the_papers_net_has_369_parameters():
    polar = Polar.preset("paper", (224, 224))
    assert (polar.angles, polar.channels, polar.describe()["radius"]) == (36, 36, 112.0)
    net = polar.network("paper", 1, (224, 224))
    assert sum(p.numel() for p in net.parameters()) == 36 * 9 + 5 * 9 == 369


def test_rotation_restorers_are_saved_and_loaded(tmp_path):
    images = torch.rand(6, 1, 16, 16)
    for polar in (Polar(16, angles=12, radii=5, ratio=None, refine=True), Polar(16, angles=8, radii=3, radius=5.5)):
        restorer = make(polar)
        restorer.save(tmp_path / "r.safetensors")
        again = unshift.load(tmp_path / "r.safetensors")
        assert again.coordinates.describe() == polar.describe()
        assert torch.equal(again(images), restorer(images))
    with pytest.raises(ValueError, match="pad is for circular shifts along all axes; polar coordinates have no margin"):
        unshift.load(tmp_path / "r.safetensors", pad=2)


def test_half_and_empty_batches():
    polar = Polar(16, angles=12, radii=5)
    images = torch.rand(4, 1, 16, 16)
    restorer = make(polar)
    wanted = restorer(images)
    assert torch.equal(restorer.half()(images), wanted)
    assert restorer(images[:0]).shape == (0, 1, 16, 16)
    assert restorer.estimate(images[:0]).angle.shape == (0,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"angles": 1}, "multiple of 4"),
        ({"angles": 30}, "multiple of 4, so that quarter turns fall on the grid and are exact, got 30"),
        ({"angles": 0}, "multiple of 4"),
        ({"radius": 15.0}, "at most 14 for size 28, got 15"),
        ({"radius": 0.0}, "radius must be positive"),
        ({"ratio": 1.0}, "between 0 and 1"),
        ({"radii": 0}, "radii 1 or more"),
        ({"polar_angles": 1}, "2 or more"),
        ({"axis": 3}, "axis must be 0, 1 or 2"),
    ],
)
def test_a_bad_grid_gets_a_clear_error(options, message):
    with pytest.raises(ValueError, match=message):
        Polar(28, **options)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 1, 28, 32), r"want square images, so that a quarter turn fits, got shape \(1, 1, 28, 32\)"),
        ((1, 1, 32, 32), "made for square images of size 28, got 32: resize them"),
        ((1, 1, 28), "square images"),
        ((1, 1, 28, 28, 28), "square images"),
    ],
)
def test_bad_images_get_a_clear_error(shape, message):
    restorer = make(Polar(28, angles=8, radii=3))
    with pytest.raises(ValueError, match=message):
        restorer(torch.zeros(shape))
    with pytest.raises(ValueError, match=message):
        restorer.undo(torch.zeros(shape), Pose(torch.zeros(1, 2, dtype=torch.int64), angle=torch.zeros(1)))


def test_other_bad_input_gets_a_clear_error():
    with pytest.raises(ValueError, match="rotate wants square images"):
        rotate(torch.zeros(1, 1, 4, 5), 90)
    with pytest.raises(ValueError, match=r"one per image \(2\), got shape \(3,\)"):
        rotate(torch.zeros(2, 1, 4, 4), torch.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        rotate(torch.zeros(2, 1, 4, 4), float("nan"))
    square = torch.rand(10, 1, 8, 8)
    with pytest.raises(ValueError, match="no preset 'seam' for rotations; there are paper, dense"):
        unshift.fit(square, "seam", coordinates=Polar(8))
    with pytest.raises(ValueError, match="no preset 'seam' for rotations; there are paper, dense"):
        Polar.preset("seam", (8, 8))
    for size in ((8, 9), (8,), (8, 8, 9)):
        with pytest.raises(ValueError, match=r"rotations want square images or cubic volumes, got size"):
            Polar.preset("paper", size)
    with pytest.raises(ValueError, match=r"polar coordinates want square images.*got shape"):
        unshift.fit(torch.rand(10, 1, 8, 9), coordinates=Polar(8))


def test_fit_on_volumes_and_loaders(tmp_path):
    volumes = torch.rand(20, 1, 8, 8, 8)
    spherical = Polar.preset("paper", (8, 8, 8))
    restorer = unshift.fit(volumes, coordinates=spherical, epochs=1, batch_size=8, progress=False)
    assert restorer.trained_on["size"] == [8, 8, 8]
    restorer.save(tmp_path / "volumes.safetensors")
    assert_quarters_exact(unshift.load(tmp_path / "volumes.safetensors"), volumes)
    images = torch.rand(20, 1, 8, 8)
    quick = {"coordinates": Polar.preset("dense", (8, 8)), "epochs": 1, "batch_size": 8, "progress": False}
    wanted = unshift.fit(images, "dense", **quick)(images)
    pairs = torch.utils.data.TensorDataset(images, torch.zeros(20))
    assert torch.equal(unshift.fit(pairs, "dense", **quick)(images), wanted)
    loader = torch.utils.data.DataLoader(pairs, batch_size=6)
    assert torch.equal(unshift.fit(loader, "dense", **quick)(images), wanted)
    assert torch.equal(unshift.fit(images.numpy(), "dense", **quick)(images), wanted)
