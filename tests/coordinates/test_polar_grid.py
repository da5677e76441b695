"""Polar grids: where images are sampled, and that quarter turns shift what is sampled bit for bit."""

from __future__ import annotations

import math

import pytest
import torch
from quarter_turns import FLOATS, SIZES, make, quarter, seen
from samples import bits
from torch import nn

from unshift import apply
from unshift.coordinates import Polar, rotate
from unshift.coordinates.polar_grid import polar_points


def test_the_convention():
    image = torch.tensor([[[[1, 2], [3, 4]]]])
    assert rotate(image, 90).tolist() == [[[[2, 4], [1, 3]]]]
    assert rotate(image, -90).tolist() == [[[[3, 1], [4, 2]]]]
    assert torch.equal(rotate(image, 90), torch.rot90(image, 1, (2, 3)))
    # Azimuth 0 looks right and goes counter-clockwise: right, up, left, down.
    cross = torch.zeros(1, 1, 3, 3)
    cross[0, 0, 1, 2], cross[0, 0, 0, 1], cross[0, 0, 1, 0], cross[0, 0, 2, 1] = 1.0, 2.0, 3.0, 4.0
    assert seen(Polar(3, angles=4, radii=1, radius=1.0), cross).tolist() == [[[1.0, 2.0, 3.0, 4.0]]]


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
    canvas = seen(Polar(size, angles=4, radii=3, radius=4.0, ratio=ratio), distance)
    assert canvas[0, :, 0].tolist() == pytest.approx(wanted)


def test_outside_is_zero_and_uint8_is_scaled():
    canvas = seen(Polar(4, angles=4, radii=1, radius=2.0), torch.full((1, 1, 4, 4), 255, dtype=torch.uint8))
    assert canvas.dtype == torch.float32
    assert canvas.flatten().tolist() == [0.5] * 4  # half a pixel beyond the last centre


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.uint8, *FLOATS])
def test_quarter_turns_shift_the_canvas_bit_for_bit(size, dtype):
    images = (255 * torch.rand(5, 2, size, size)).to(dtype)
    for polar in (Polar(size), Polar(size, angles=20, radii=7, ratio=None)):
        canvas = seen(polar, images)
        assert canvas.shape == (5, 2 * polar.channels, polar.angles)
        for k in range(1, 4):
            shift = torch.full((5, 1), k * polar.angles // 4)
            assert torch.equal(bits(seen(polar, quarter(images, k))), bits(apply(canvas, shift)))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("size", [6, 7])
def test_volumes_quarter_turns_shift_the_canvas_bit_for_bit(size, axis):
    volumes = torch.rand(3, 2, size, size, size)
    polar = Polar(size, angles=12, radii=4, polar_angles=5, axis=axis)
    canvas = seen(polar, volumes)
    assert canvas.shape == (3, 2 * 5 * 4, 12)
    for k in range(1, 4):
        assert torch.equal(seen(polar, quarter(volumes, k, axis)), apply(canvas, torch.full((3, 1), 3 * k)))


def test_a_volume_is_sampled_where_the_formula_says():
    size = 9
    grids = torch.meshgrid(*[torch.arange(size, dtype=torch.float64) - 4] * 3, indexing="ij")
    polar = Polar(size, angles=8, radii=3, radius=4.0, ratio=None, polar_angles=5)
    canvas = seen(polar, torch.stack(grids)[:, None]).unflatten(1, (5, 3))  # linear functions: trilinear is exact
    tilt, radius, turn = math.pi * 1 / 4, 4.0 * 2 / 3, 2 * math.pi * 3 / 8
    along, row, column = canvas[:, 1, 2, 3].tolist()
    assert along == pytest.approx(radius * math.cos(tilt))
    assert row == pytest.approx(-radius * math.sin(tilt) * math.sin(turn))
    assert column == pytest.approx(radius * math.sin(tilt) * math.cos(turn))


class Lopsided(Polar):
    """A grid that is sampled in the plain way, all the way round: what must not pass."""

    def canvas(self, images):
        turn = [2 * math.pi * i / self.angles for i in range(self.angles)]
        points = torch.tensor(polar_points((), turn, [self.size / 2 * 0.9**i for i in range(6)]))[0]
        grid = torch.stack([points[..., 0], -points[..., 1]], -1) / (self.size / 2)
        sampled = nn.functional.grid_sample(images, grid.expand(len(images), *grid.shape), align_corners=False)
        return sampled.flatten(1, 2)[:, None]


def test_the_checker_fails_on_a_plain_grid():
    images = torch.rand(20, 1, 28, 28)
    polar = Lopsided(28, angles=36, radii=6)
    canvas = seen(polar, images)
    turned = seen(polar, quarter(images, 1))
    shift = torch.full((20, 1), 9)
    assert torch.allclose(turned, apply(canvas, shift), atol=1e-4)
    assert not torch.equal(turned, apply(canvas, shift))


def test_gradients_reach_the_pixels():
    images = torch.rand(2, 1, 6, 6, dtype=torch.float64, requires_grad=True)
    polar = Polar(6, angles=8, radii=3)
    assert torch.autograd.gradcheck(polar.canvas, images)
    assert torch.autograd.gradcheck(lambda x: rotate(x, torch.tensor([10.0, 130.0])), images)
    restorer = make(polar)
    restorer(images).sum().backward()
    assert images.grad is not None
    assert images.grad.abs().sum() > 0


def test_nothing_of_batch_position_or_threads_shows(threads):
    images = torch.rand(33, 1, 28, 28)
    restorer = make(Polar(28, angles=24, radii=10, refine=True))
    canvas, restored, angle = restorer.coordinates.canvas(images), restorer(images), restorer.estimate(images).angle
    assert angle is not None
    assert not torch.equal(restored, images)  # so that interpolation is in it
    for count in (1, 2):
        threads(count)
        for rows in (slice(0, 1), slice(7, 8), slice(3, 20), slice(32, 33)):
            part = images[rows]
            assert torch.equal(restorer.coordinates.canvas(part), canvas[rows])
            assert torch.equal(restorer(part), restored[rows])
            assert torch.equal(restorer.estimate(part).angle, angle[rows])
