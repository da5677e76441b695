"""The images that fit takes, whatever holds them, and those that it refuses."""

from __future__ import annotations

import pytest
import torch
from fits import assert_same, quick
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import blobs
from torch.utils.data import DataLoader, TensorDataset

from unshift import apply
from unshift.data.reading import open_reader
from unshift.image_survey import Survey, shifted_copies

# --- what images may come in -----------------------------------------------------------------------


def test_every_container_of_images_gives_the_same_weights(images):
    pixels = (255 * images).round().to(torch.uint8)
    labels = torch.arange(len(pixels))
    wanted = quick(pixels)
    assert_same(quick(pixels.float() / 255), wanted)
    assert_same(quick(pixels.numpy()), wanted)
    assert_same(quick(pixels.numpy()[:, :, ::-1][:, :, ::-1]), wanted)  # not contiguous
    assert_same(quick(TensorDataset(pixels)), wanted)
    assert_same(quick(TensorDataset(pixels, labels)), wanted)
    assert_same(quick([(image, 7) for image in pixels]), wanted)
    assert_same(quick([image.numpy() for image in pixels]), wanted)
    assert_same(quick(DataLoader(TensorDataset(pixels, labels), batch_size=7)), wanted)


@pytest.mark.parametrize("size", [(16,), (6, 7, 5)])
def test_signals_and_volumes(size):
    restorer = quick(blobs(20, 2, size), epochs=1)
    assert restorer(blobs(3, 2, size)).shape == (3, 2, *size)
    assert (restorer.trained_on["size"], restorer.trained_on["channels"]) == (list(size), 2)
    assert restorer.trained_on.keys() == {"size", "channels", "range", "background", "prints"}


def test_the_images_are_not_changed(images):
    before = images.clone()
    quick(images)
    assert torch.equal(images, before)


# --- what they must not be -------------------------------------------------------------------------


def test_one_image_is_refused(images):
    with pytest.raises(ValueError, match="fit needs at least two images, got 1"):
        quick(images[:1])
    with pytest.raises(ValueError, match="fit needs at least two images, got 0"):
        quick(images[:0])
    with pytest.raises(ValueError, match="fit needs at least two images, got 0"):
        quick(TensorDataset(images[:0]))


def test_constant_images_are_refused_and_counted(images):
    dull = torch.cat([images[:10], torch.ones(2, 1, 12, 12), images[10:], torch.zeros(1, 1, 12, 12)])
    with pytest.raises(ValueError, match=r"3 of 63 images are constant \(the first is number 10\)"):
        quick(dull)


def test_an_image_of_constant_channels_is_constant():
    colours = blobs(10, 3, (8, 8))
    colours[4] = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)
    with pytest.raises(ValueError, match=r"1 of 10 images are constant \(the first is number 4\)"):
        quick(colours)


def test_shifted_copies_are_refused_and_counted(images):
    copies = apply(images[:4], torch.tensor([[0, 1], [3, 0], [-2, 5], [11, 11]]))
    with pytest.raises(ValueError, match=r"4 of 64 images are shifted copies of others \(the first is number 60\)"):
        quick(torch.cat([images, copies]))


def test_plain_repeats_do_no_harm(images):
    assert quick(torch.cat([images, images[:5]])).metadata["train_images"] == 65 - round(6.5)


def test_unusable_images_are_dropped_when_told(images):
    copies = apply(images[:4], torch.ones(4, 2, dtype=torch.int64))
    mixed = torch.cat([images[:7], torch.ones(2, 1, 12, 12), images[7:], copies])
    assert_same(quick(mixed, drop_unusable=True), quick(images))


def test_too_few_usable_images_are_refused(images):
    nothing = torch.cat([images[:1], torch.ones(3, 1, 12, 12), apply(images[:1], torch.tensor([[1, 1]]))])
    with pytest.raises(ValueError, match="fewer than two of the 5 images are usable"):
        quick(nothing, drop_unusable=True)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_shifted_copies_against_brute_force(data):
    height, width, channels = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2))
    count = data.draw(st.integers(0, 8))
    values = data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count).flatmap(
        lambda _: st.lists(st.integers(0, 1), min_size=(n := count * channels * height * width), max_size=n)
    ))  # fmt: skip
    images = torch.tensor(values, dtype=torch.uint8).view(count, channels, height, width)
    wanted, firsts = [], []
    for j, image in enumerate(images):
        shifts = [image.roll((a, b), (1, 2)) for a in range(height) for b in range(width)]
        first = next((f for f in firsts if any(torch.equal(images[f], moved) for moved in shifts)), None)
        if first is None:
            firsts.append(j)
        elif not torch.equal(images[first], image):
            wanted.append(j)
    for pixels in (images, images.float() - 0.5):
        reader = open_reader(pixels)
        survey = Survey(reader)
        survey.constant[:] = False
        assert shifted_copies(survey, reader) == wanted


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (5, "must be a tensor, an array, a Dataset, a DataLoader or a folder's path, got int"),
        (torch.rand(4, 4), "1, 2 or 3 spatial axes"),
        (torch.rand(4, 1, 5, 5, dtype=torch.complex64), "must be real"),
        (torch.full((4, 1, 5, 5), torch.nan), "must be finite"),
        ([torch.rand(1, 5, 5).numpy(), torch.rand(1, 5, 6).numpy()], "differ in shape"),
    ],
)
def test_bad_images(data, message):
    with pytest.raises(ValueError, match=message):
        quick(data)
