"""Single images, NumPy arrays and Pillow images: each comes back as what it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from samples import blobs, make_restorer

import unshift

SIZE = (9, 12)


def restorer(channels: int = 3) -> unshift.Restorer:
    return make_restorer("paper", channels, SIZE, trained=True)


def test_a_single_image_is_a_batch_of_one():
    image = blobs(1, 3, SIZE)[0]
    found = restorer().estimate(image)
    assert found.shift.shape == (1, 2)
    assert torch.equal(found.shift, restorer().estimate(image[None]).shift)
    assert torch.equal(restorer()(image), restorer()(image[None])[0])
    assert torch.equal(restorer().undo(image, found), restorer()(image))
    assert torch.equal(restorer().redo(restorer().undo(image, found), found), image)


@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("layout", ["CHW", "HWC", "NCHW", "NHWC"])
def test_an_array_comes_back_as_it_was(layout, kind):
    images = torch.from_numpy((255 * blobs(4, 3, SIZE)).numpy().astype(kind))
    batch = images if "N" in layout else images[:1]
    given = batch.movedim(1, -1) if layout.endswith("C") else batch
    given = (given if "N" in layout else given[0]).numpy()
    wanted = restorer()(batch)
    back = restorer()(given)
    assert isinstance(back, np.ndarray)
    assert (back.dtype, back.shape) == (given.dtype, given.shape)
    planes = torch.from_numpy(back)
    planes = planes.movedim(-1, -3) if layout.endswith("C") else planes
    assert torch.equal(planes if "N" in layout else planes[None], wanted)
    assert torch.equal(restorer().estimate(given).shift, restorer().estimate(batch).shift)


def test_a_grey_array_needs_no_channel():
    image = blobs(1, 1, SIZE)
    back = restorer(1)(image[0, 0].numpy())
    assert np.array_equal(back, restorer(1)(image)[0, 0].numpy())
    turned = image[0, 0].numpy()[::-1]  # negative strides
    assert np.array_equal(restorer(1)(turned), restorer(1)(image.flip(2))[0, 0].numpy())


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1", "I;16", "LA"])
def test_a_pillow_image_keeps_its_mode(mode):
    rgb = Image.fromarray((255 * blobs(1, 3, SIZE, seed=2)[0]).byte().movedim(0, -1).contiguous().numpy())
    if mode == "I;16":
        image = Image.fromarray(np.asarray(rgb.convert("L")).astype(np.uint16) * 200)
    else:
        image = rgb.quantize(9) if mode == "P" else rgb.convert(mode)
    back = restorer()(image)
    assert (back.mode, back.size) == (image.mode, image.size)
    moved = image.copy()
    array = np.roll(np.asarray(image), (4, 7), (0, 1))
    moved.frombytes((np.packbits(array, axis=1) if mode == "1" else array).tobytes())
    assert np.array_equal(np.asarray(restorer()(moved)), np.asarray(back))
    shift = restorer().estimate(moved).shift
    assert shift.shape == (1, 2)
    assert np.array_equal(np.asarray(restorer().undo(moved, restorer().estimate(moved))), np.asarray(back))


def test_a_rotation_takes_the_palette_away():
    upright = unshift.load("mnist-rotation-paper")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (224, 224), dtype=np.uint8)).quantize(5)
    assert upright(image).mode == "RGB"


def test_what_is_no_image_is_refused_as_before():
    with pytest.raises(ValueError, match=r"must be a torch.Tensor .*, a NumPy array, .*got str; open the file"):
        restorer()("image.png")
    with pytest.raises(ValueError, match=r"got \d axes"):
        restorer()(np.zeros(5))
