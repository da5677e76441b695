"""Images come back in the form they were given in; images unlike the training images raise a warning, once."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from samples import blobs, make_restorer
from torch import nn

import unshift
from unshift.data import dataset, pad, resize, to_float
from unshift.files import pretrained
from unshift.inputs import background

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


@pytest.mark.filterwarnings("ignore:this restorer may be wrong")
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("layout", ["CHW", "HWC", "NCHW", "NHWC"])
def test_an_array_keeps_its_layout_and_dtype(layout, kind):
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


def test_other_types_are_refused():
    with pytest.raises(ValueError, match=r"got str.*open"):
        restorer()("image.png")
    with pytest.raises(ValueError, match=r"got \d axes"):
        restorer()(np.zeros(5))


# --- images unlike the training images --------------------------------------------------------------


@pytest.fixture(scope="module")
def digits() -> torch.Tensor:
    return resize(to_float(dataset("mnist-10k", "test").images[:20]), (32, 32))


def messages(restorer, images) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        restorer.estimate(images)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("name", pretrained())
def test_no_warning_on_images_like_the_training_images(name):
    restorer = unshift.load(name)
    channels, size = restorer.image_shape()
    images = 0.5 * torch.rand(2, channels, *(size or (500, 500)[: restorer.stages[0].scorer.axes]))
    if common := restorer.trained_on.get("background"):
        images[torch.rand_like(images) < common[1]] = common[0]
    assert messages(restorer, images) == []


def test_another_range_warns_once(digits):
    restorer = unshift.load("mnist-paper")
    assert messages(restorer, digits) == []
    assert messages(restorer, (255 * digits).byte()) == []
    (message,) = messages(restorer, 255 * digits)
    assert "0 to 255" in message
    assert messages(restorer, 255 * digits) == []
    assert len(messages(unshift.load("mnist-paper"), (255 * digits).long())) == 1
    (message,) = messages(unshift.load("mnist-turns"), digits * 4)  # its file stores the range
    assert "0 to 1" in message


def test_another_size_warns(digits):
    (message,) = messages(unshift.load("mnist-paper"), resize(digits, (64, 64)))
    assert "32x32" in message
    assert "64x64" in message
    assert messages(unshift.load("mnist-paper"), resize(digits, (34, 34))) == []
    assert messages(unshift.load("cifar10", pad=4), torch.rand(1, 3, 32, 32)) == []  # with its margin the size fits
    assert len(messages(unshift.load("cifar10"), pad(torch.rand(1, 3, 400, 400), 56))) == 1
    for other in ((48, 60), (16, 128)):  # half to four times the size
        assert messages(unshift.load("cifar10-seam"), torch.rand(1, 3, *other)) == []
    for other in ((15, 32), (32, 129)):
        (message,) = messages(unshift.load("cifar10-seam"), torch.rand(1, 3, *other))
        assert f"{other[0]}x{other[1]}" in message
    mixed = [torch.rand(3, 40, 40), torch.rand(3, 140, 140)]
    (message,) = messages(unshift.load("cifar10-seam"), mixed)
    assert "140x140" in message
    assert messages(unshift.load("mnist-scene"), pad(digits, 30)) == []  # scenes are of any size


def test_another_background_warns(digits):
    restorer = unshift.load("mnist-paper")
    restorer.trained_on["background"] = background(digits)
    assert restorer.trained_on["background"][0] == 0
    assert restorer.trained_on["background"][1] > 0.5
    assert messages(restorer, digits) == []
    (message,) = messages(restorer, 1 - 0.9 * digits)
    assert "background (0)" in message
    assert background(torch.rand(4, 3, 9, 9)) is None


def test_unknown_properties_raise_no_warning(digits):
    restorer = unshift.load("mnist-paper")
    restorer.trained_on = {}
    assert messages(restorer, resize(digits, (64, 64))) == []
    assert messages(restorer, torch.zeros(0, 1, 32, 32)) == []
    foreign = unshift.Restorer(lambda images: images[:, 0].long())
    assert messages(foreign, 255 * blobs(2, 1, (8, 8))) == []


CALLS = {
    "estimate": lambda restorer, images: restorer.estimate(images),
    "restore": lambda restorer, images: restorer.restore(images),
    "a list": lambda restorer, images: restorer.estimate([*images]),
    "a call": lambda restorer, images: restorer(images),
    "Sequential": lambda restorer, images: nn.Sequential(restorer, nn.Flatten())(images),
    "no_grad": lambda restorer, images: torch.no_grad()(nn.Sequential(restorer))(images),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_warning_points_at_the_line_of_the_caller(call):
    with pytest.warns(UserWarning, match="64x64") as caught:
        CALLS[call](unshift.load("mnist-paper"), torch.rand(1, 1, 64, 64))
    assert [(warning.filename, warning.lineno) for warning in caught] == [
        (__file__, CALLS[call].__code__.co_firstlineno)
    ]
