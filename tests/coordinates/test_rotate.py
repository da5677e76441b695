"""rotate: by any angle as torch does it, by multiples of 90 degrees without touching a value."""

from __future__ import annotations

import pytest
import torch
from quarter_turns import FLOATS
from torch import nn

from unshift.coordinates import Polar, rotate


def angle_of(polar, step, scores):
    """The angle that a chosen step of the grid stands for."""
    pose = polar.pose(step, scores[:, None], (polar.size, polar.size))
    assert not pose.shift.any()
    assert pose.turn is None
    return pose.angle


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


def test_angles_add_up_exactly():
    """90 degrees more in, 90 degrees more out, to the last bit: what the exact undo rests on."""
    polar = Polar(8, angles=28, radii=2, refine=True)  # 360/28 is no binary fraction
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
    assert angle_of(Polar(8, angles=8, radii=2), torch.tensor([2]), scores).item() == 90  # not asked to refine
