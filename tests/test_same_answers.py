"""The same result for all batches, threads, memory formats, dtypes and copies."""

from __future__ import annotations

import copy

import pytest
import torch
from samples import (
    PRESETS,
    hard_images,
    make_restorer,
)

from unshift import Restorer
from unshift.exact import IntegerEstimator

# --- the same answer however it is asked -----------------------------------------------------------


def answers(restorer, images, row):
    """Return the restored images and estimates of some images of a batch."""
    found = restorer.estimate(images)
    return restorer(images)[row], found.shift[row], found.confidence[row], found.tied[row]


def assert_same(found, wanted):
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_same_alone_and_in_any_batch(preset):
    restorer, others = make_restorer(preset, 3, (9, 13), trained=True), torch.rand(63, 3, 9, 13)
    for image in hard_images(3, (9, 13)).values():
        alone = answers(restorer, image[None], 0)
        assert_same(answers(restorer, torch.cat([others[:17], image[None], others[17:]]), 17), alone)
        assert_same(answers(restorer, torch.cat([others[:6], image[None]]), 6), alone)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_same_with_any_number_of_threads(preset, threads):
    restorer = make_restorer(preset, 3, (9, 13), trained=True)
    images = torch.cat([torch.stack([*hard_images(3, (9, 13)).values()]), torch.rand(53, 3, 9, 13)])
    threads(1)
    wanted = answers(restorer, images, slice(None))
    threads(2)
    assert_same(answers(restorer, images, slice(None)), wanted)
    assert_same(answers(restorer, images[:1], 0), [part[0] for part in wanted])


@pytest.mark.parametrize("preset", PRESETS)
def test_the_same_under_autocast(preset):
    restorer, images = make_restorer(preset, 1, (9, 13), trained=True), torch.rand(8, 1, 9, 13)
    wanted = answers(restorer, images, slice(None))
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(answers(restorer, images, slice(None)), wanted)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_same_in_any_layout_of_memory(preset):
    restorer = make_restorer(preset, 3, (9, 13))
    images = torch.stack([*hard_images(3, (9, 13)).values()])
    wanted = restorer(images)
    assert torch.equal(restorer(images.to(memory_format=torch.channels_last)), wanted)
    assert torch.equal(restorer(images.transpose(2, 3).contiguous().transpose(2, 3)), wanted)
    assert torch.equal(restorer(images.repeat_interleave(2, 0)[::2]), wanted)


# --- an nn.Module like any other -------------------------------------------------------------------


def copies(restorer):
    """Return copies of a module that must give the same results."""
    yield "eval", restorer.eval()
    yield "train", restorer.train()
    yield "deepcopy", copy.deepcopy(restorer)
    for change in ("half", "bfloat16", "double", "float"):
        yield change, getattr(copy.deepcopy(restorer), change)()
    yield "to", copy.deepcopy(restorer).to("cpu", torch.float16)
    fresh = Restorer(IntegerEstimator(**restorer.scorer.describe()))
    fresh.load_state_dict(restorer.state_dict())
    yield "state_dict", fresh


@pytest.mark.parametrize("preset", PRESETS)
def test_copies_and_modes_give_the_same_answers(preset):
    restorer = make_restorer(preset, 1, (8, 8), trained=True)
    images = torch.stack([*hard_images(1, (8, 8)).values()])
    wanted = answers(restorer, images, slice(None))
    for _, other in copies(restorer):
        assert_same(answers(other, images, slice(None)), wanted)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert_same(answers(restorer, images, slice(None)), wanted)
