"""Polar coordinates and rotation: quarter turns shift the canvas and are undone bit for bit."""

from __future__ import annotations

import math

import pytest
import torch
from samples import bits
from spelt_moves import polar_restorer as make
from spelt_moves import quarter
from torch import nn

import unshift
from unshift import apply
from unshift.coordinates import Polar, rotate
from unshift.coordinates.polar import polar_points
from unshift.data import dataset
from unshift.exact import Scores

pytestmark = pytest.mark.filterwarnings("ignore:this")

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SIZES = (8, 9, 28)  # even and odd: the centre is between pixels, or on one


def canvas_of(polar, images):
    """Return the canvas ``(batch, channel, angle)`` of the only copy."""
    (canvas,) = polar.canvases(images)
    return canvas


def angle_of(polar, step, scores):
    """Return the angle of candidate ``step`` given the scores of all."""
    return polar.pose(step, Scores([scores], (1, polar.angles)), (polar.size, polar.size)).angle


# --- the grid --------------------------------------------------------------------------------------


def test_the_convention():
    image = torch.tensor([[[[1, 2], [3, 4]]]])
    assert rotate(image, 90).tolist() == [[[[2, 4], [1, 3]]]]
    assert rotate(image, -90).tolist() == [[[[3, 1], [4, 2]]]]
    assert torch.equal(rotate(image, 90), torch.rot90(image, 1, (2, 3)))
    # Azimuths: right, up, left, down.
    cross = torch.zeros(1, 1, 3, 3)
    cross[0, 0, 1, 2], cross[0, 0, 0, 1], cross[0, 0, 1, 0], cross[0, 0, 2, 1] = 1.0, 2.0, 3.0, 4.0
    assert canvas_of(Polar(3, angles=4, radii=1, radius=1.0), cross).tolist() == [[[1.0, 2.0, 3.0, 4.0]]]


def test_points_are_the_papers_formula():
    points = torch.tensor(polar_points((5, 4), [0.3, 1.1], [2.0, 3.0]), dtype=torch.float64)
    assert points.shape == (20, 2, 2, 4)
    assert torch.allclose(points.norm(dim=-1), torch.tensor([2.0, 3.0], dtype=torch.float64)[:, None])
    first, second, turn = math.pi * 1 / 4, math.pi * 2 / 3, 1.1
    wanted = [
        math.cos(first),
        math.sin(first) * math.cos(second),
        math.sin(first) * math.sin(second) * math.cos(turn),
        math.sin(first) * math.sin(second) * math.sin(turn),
    ]
    assert points[1 * 4 + 2, 0, 1].tolist() == pytest.approx([2 * c for c in wanted])


@pytest.mark.parametrize(("ratio", "wanted"), [(0.5, [4.0, 2.0, 1.0]), (None, [0.0, 4 / 3, 8 / 3])])
def test_radii(ratio, wanted):
    size = 9
    distance = (torch.arange(size) - 4.0).abs().expand(1, 1, size, size)  # linear along each row, off the centre
    canvas = canvas_of(Polar(size, angles=4, radii=3, radius=4.0, ratio=ratio), distance)
    assert canvas[0, :, 0].tolist() == pytest.approx(wanted)


def test_pixels_outside_are_zero_and_uint8_is_scaled():
    canvas = canvas_of(Polar(4, angles=4, radii=1, radius=2.0), torch.full((1, 1, 4, 4), 255, dtype=torch.uint8))
    assert canvas.dtype == torch.float32
    assert canvas.flatten().tolist() == [0.5] * 4  # half a pixel beyond the last centre


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.uint8, *FLOATS])
def test_quarter_turns_shift_the_canvas_bit_for_bit(size, dtype):
    images = (255 * torch.rand(5, 2, size, size)).to(dtype)
    for polar in (Polar(size), Polar(size, angles=20, radii=7, ratio=None)):
        canvas = canvas_of(polar, images)
        assert canvas.shape == (5, 2 * polar.channels, polar.angles)
        for k in range(1, 4):
            shift = torch.full((5, 1), k * polar.angles // 4)
            assert torch.equal(bits(canvas_of(polar, quarter(images, k))), bits(apply(canvas, shift)))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("size", [6, 7])
def test_volumes_quarter_turns_shift_the_canvas_bit_for_bit(size, axis):
    volumes = torch.rand(3, 2, size, size, size)
    polar = Polar(size, angles=12, radii=4, polar_angles=5, axis=axis)
    canvas = canvas_of(polar, volumes)
    assert canvas.shape == (3, 2 * 5 * 4, 12)
    for k in range(1, 4):
        assert torch.equal(canvas_of(polar, quarter(volumes, k, axis)), apply(canvas, torch.full((3, 1), 3 * k)))


def test_a_volume_is_sampled_where_the_formula_says():
    size = 9
    grids = torch.meshgrid(*[torch.arange(size, dtype=torch.float64) - 4] * 3, indexing="ij")
    polar = Polar(size, angles=8, radii=3, radius=4.0, ratio=None, polar_angles=5)
    canvas = canvas_of(polar, torch.stack(grids)[:, None]).unflatten(1, (5, 3))  # linear functions: trilinear is exact
    tilt, radius, turn = math.pi * 1 / 4, 4.0 * 2 / 3, 2 * math.pi * 3 / 8
    along, row, column = canvas[:, 1, 2, 3].tolist()
    assert along == pytest.approx(radius * math.cos(tilt))
    assert row == pytest.approx(-radius * math.sin(tilt) * math.sin(turn))
    assert column == pytest.approx(radius * math.sin(tilt) * math.cos(turn))


class PlainPolar(Polar):
    """A grid sampled by ``grid_sample``, which is equivariant only up to rounding."""

    def canvases(self, images):
        turn = [2 * math.pi * i / self.angles for i in range(self.angles)]
        points = torch.tensor(polar_points((), turn, [self.size / 2 * 0.9**i for i in range(6)]))[0]
        grid = torch.stack([points[..., 0], -points[..., 1]], -1) / (self.size / 2)
        sampled = nn.functional.grid_sample(images, grid.expand(len(images), *grid.shape), align_corners=False)
        return [sampled.flatten(1, 2)]


def test_a_plain_grid_is_not_exact():
    images = torch.rand(20, 1, 28, 28)
    polar = PlainPolar(28, angles=36, radii=6)
    canvas = canvas_of(polar, images)
    turned = canvas_of(polar, quarter(images, 1))
    shift = torch.full((20, 1), 9)
    assert torch.allclose(turned, apply(canvas, shift), atol=1e-4)
    assert not torch.equal(turned, apply(canvas, shift))


def test_gradients_reach_the_pixels():
    images = torch.rand(2, 1, 6, 6, dtype=torch.float64, requires_grad=True)
    polar = Polar(6, angles=8, radii=3)
    assert torch.autograd.gradcheck(lambda x: canvas_of(polar, x), images)
    assert torch.autograd.gradcheck(lambda x: rotate(x, torch.tensor([10.0, 130.0])), images)
    restorer = make(polar)
    restorer(images).sum().backward()
    assert images.grad is not None
    assert images.grad.abs().sum() > 0


def test_results_do_not_depend_on_batches_or_threads(threads):
    images = torch.rand(33, 1, 28, 28)
    restorer = make(Polar(28, angles=24, radii=10, refine=True))
    canvas, restored, angle = (
        restorer.coordinates.canvases(images)[0],
        restorer(images),
        restorer.estimate(images).angle,
    )
    assert angle is not None
    assert not torch.equal(restored, images)  # so that interpolation is in it
    for count in (1, 2):
        threads(count)
        for rows in (slice(0, 1), slice(7, 8), slice(3, 20), slice(32, 33)):
            part = images[rows]
            assert torch.equal(restorer.coordinates.canvases(part)[0], canvas[rows])
            assert torch.equal(restorer(part), restored[rows])
            assert torch.equal(restorer.estimate(part).angle, angle[rows])


# --- rotate and angles ----------------------------------------------------------------------------


def test_rotate_agrees_with_torch():
    images = torch.rand(4, 2, 16, 16, dtype=torch.float64)
    degrees = torch.tensor([0.0, 33.0, -75.5, 200.25], dtype=torch.float64)
    found = rotate(images, degrees)
    angle = torch.deg2rad(degrees)
    zero = torch.zeros_like(angle)
    matrix = torch.stack([angle.cos(), -angle.sin(), zero, angle.sin(), angle.cos(), zero], 1).view(4, 2, 3)
    grid = nn.functional.affine_grid(matrix, list(images.shape), align_corners=False)
    assert torch.allclose(found, nn.functional.grid_sample(images, grid, align_corners=False), atol=1e-9)
    assert torch.equal(found[0], images[0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, *FLOATS])
def test_multiples_of_90_move_pixels_and_nothing_else(dtype):
    images = (100 * torch.rand(8, 3, 7, 7)).to(dtype)
    degrees = torch.tensor([-360.0, -90.0, 0.0, 90.0, 180.0, 270.0, 450.0, 720.0])
    for image, turn, turned in zip(images, degrees, rotate(images, degrees), strict=True):
        assert torch.equal(turned, torch.rot90(image, int(turn // 90), (1, 2)))
    assert rotate(images, 12.5).dtype == dtype


def test_volumes_rotate_slice_by_slice():
    volumes = torch.rand(2, 1, 5, 5, 5)
    for axis in range(3):
        turned = rotate(volumes, 37.0, axis=axis)
        for index in range(5):
            a, b = (v.select(2 + axis, index) for v in (turned, volumes))
            assert torch.equal(a, rotate(b, 37.0))


def test_a_quarter_turn_adds_exactly_90_degrees():
    polar = Polar(8, angles=28, radii=2, refine=True)  # 360/28 is not a binary fraction
    scores = torch.randint(-(2**23), 2**23, (500, 28))
    step = scores.argmax(1)
    angle = angle_of(polar, step, scores)
    assert ((angle >= -180) & (angle < 180)).all()
    assert ((angle / (360 / 28) - step + 14) % 28 - 14).abs().max() <= 0.5 + 1e-3
    for k in range(1, 4):
        turned = angle_of(polar, (step + 7 * k) % 28, scores.roll(7 * k, 1))
        assert torch.equal(torch.remainder(turned - angle, 360), torch.full_like(angle, 90.0 * k))


def test_refinement_is_the_top_of_the_parabola():
    polar = Polar(8, angles=8, radii=2, refine=True)
    scores = torch.tensor([[-1000, -90, -10, -50, -1000, -1000, -1000, -1000]])  # steps 1, 2, 3: top at 2 + 1/6
    assert angle_of(polar, torch.tensor([2]), scores).item() == pytest.approx(45 * (2 + 1 / 6), abs=1e-3)
    flat = torch.zeros(1, 8, dtype=torch.int64)
    assert angle_of(polar, torch.tensor([5]), flat).item() == -135
    assert angle_of(Polar(8, angles=8, radii=2), torch.tensor([2]), scores).item() == 90  # without refinement


# --- restorers -------------------------------------------------------------------------------------


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
    assert len(set(shown.angle.tolist())) > 5


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
    """Return images whose canvas is periodic though the image is not: ties that canvases cannot break."""
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
def test_ties_are_broken_by_the_images_not_the_canvas(refine, calibration, monkeypatch):
    images = symmetric_images()
    restorer = make(Polar(12, angles=12, radii=4, radius=3.0, refine=refine), calibration=calibration)
    assert restorer.estimate(images).tied.sum() >= 6
    assert_quarters_exact(restorer, images)
    monkeypatch.setattr(Polar, "order", unshift.coordinates.Coordinates.order)  # compares canvases only
    assert not torch.equal(restorer(images), restorer(quarter(images, 1)))


def test_the_papers_net_has_369_parameters():
    polar = Polar.preset("paper", (224, 224))
    assert (polar.angles, polar.channels, polar.describe()["radius"]) == (36, 36, 112.0)
    net = polar.network("paper", 1, (224, 224))
    assert sum(p.numel() for p in net.parameters()) == 36 * 9 + 5 * 9 == 369


def test_bad_input_to_rotate_and_presets():
    with pytest.raises(ValueError, match="square"):
        rotate(torch.zeros(1, 1, 4, 5), 90)
    with pytest.raises(ValueError, match=r"\(3,\)"):
        rotate(torch.zeros(2, 1, 4, 4), torch.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        rotate(torch.zeros(2, 1, 4, 4), float("nan"))
    with pytest.raises(ValueError, match="seam"):
        unshift.fit(torch.rand(10, 1, 8, 8), "seam", coordinates=Polar(8))
    with pytest.raises(ValueError, match="seam"):
        Polar.preset("seam", (8, 8))
    for size in ((8, 9), (8,), (8, 8, 9)):
        with pytest.raises(ValueError, match="size"):
            Polar.preset("paper", size)
    with pytest.raises(ValueError, match="square"):
        unshift.fit(torch.rand(10, 1, 8, 9), coordinates=Polar(8))
