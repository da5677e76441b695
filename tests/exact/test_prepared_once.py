"""What is prepared once follows the integers: changes, copies, other sizes and threads."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import torch
from networks import fresh
from samples import PRESETS, blobs, make_estimator, make_restorer

from unshift import Restorer, quantise
from unshift.exact.integers import bits_of


def run_and(change, preset="paper"):
    """Run a net, change it, and return its scores and those of a net that was never run before the change."""
    net, images = fresh(make_restorer(preset, 1, (9, 13)).scorer), torch.rand(2, 1, 9, 13)
    before = net(images)
    net = change(net) or net
    return before, net(images), fresh(net)(images)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("buffer", ["weight", "bias", "divisor"])
def test_changes_in_place_are_followed(preset, buffer):
    def change(net):
        getattr(net.local[0], buffer).mul_(2).add_(10_000)

    before, found, wanted = run_and(change, preset)
    assert torch.equal(found, wanted)
    assert not torch.equal(found, before)


def test_a_change_of_the_pixel_scale_is_followed():
    def finer(net):
        net.pixel_scale_bits.copy_(bits_of(100.0))
        net.score_unit_bits.copy_(bits_of(0.25))

    net = fresh(make_restorer("paper", 1, (9, 13)).scorer)
    assert net.score_unit != 0.25
    before, found, wanted = run_and(finer)
    finer(net)
    assert net.score_unit == 0.25
    assert torch.equal(found, wanted)
    assert not torch.equal(found, before)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
def test_other_weights_are_followed(preset, assign):
    other = make_restorer(preset, 1, (9, 13), trained=True).scorer
    state = {name: buffer.clone() for name, buffer in other.state_dict().items()}

    def change(net):
        net.load_state_dict(state, assign=assign)

    before, found, wanted = run_and(change, preset)
    assert torch.equal(found, wanted)
    assert not torch.equal(found, before)


def test_a_copy_and_its_original_go_their_own_ways():
    net, images = fresh(make_restorer("paper", 1, (9, 13)).scorer), torch.rand(2, 1, 9, 13)
    before = net(images)
    twin = copy.deepcopy(net)
    twin.local[0].weight.mul_(-1)
    assert torch.equal(net(images), before)
    assert torch.equal(twin(images), fresh(twin)(images))
    assert not torch.equal(twin(images), before)


@pytest.mark.parametrize("change", ["half", "bfloat16", "double", "float"])
def test_a_change_of_dtype_changes_nothing_that_was_prepared(change):
    before, found, wanted = run_and(lambda net: getattr(net, change)())
    assert torch.equal(found, before)
    assert torch.equal(found, wanted)


def test_many_sizes_do_not_fill_the_memory():
    net = fresh(make_restorer("paper", 1, (9, 9)).scorer)
    for width in range(9, 49):
        net(torch.rand(1, 1, 9, width))
    assert len(net._plans) <= 8


def test_threads_that_share_a_net_get_its_scores():
    net, images = fresh(make_restorer("seam", 1, (9, 13)).scorer), torch.rand(4, 1, 9, 13)
    wanted, found = fresh(net)(images), []
    workers = [threading.Thread(target=lambda: found.append(net(images))) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 8
    assert all(torch.equal(one, wanted) for one in found)


def test_nets_made_and_run_in_inference_mode():
    images = torch.rand(3, 1, 8, 8)
    wanted = make_restorer("dense", 1, (8, 8))(images)
    with torch.inference_mode():
        restorer = Restorer(quantise(make_estimator("dense", 1, (8, 8)), blobs(16, 1, (8, 8))))
        assert torch.equal(restorer(images), wanted)
        assert torch.equal(copy.deepcopy(restorer)(images), wanted)
    assert torch.equal(restorer(images), wanted)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_a_copy_answers_with_its_own_weights_however_often_both_were_changed(copied):
    """A copy's buffers count their changes anew, and may come back to the count of another content."""
    net, images = make_restorer("paper", 1, (8, 8)).scorer, blobs(3, 1, (8, 8))
    one = {name: buffer.clone() for name, buffer in net.state_dict().items()}
    other = {name: buffer.flip(-1) if "weight" in name else buffer for name, buffer in one.items()}
    wanted = copy.deepcopy(net)
    wanted.load_state_dict(other)
    net = copy.deepcopy(net)
    for changes in range(4):
        net.load_state_dict(one)
        before = net(images)
        twin = copied(net)
        for _ in range(changes):
            twin.load_state_dict(other)
        assert torch.equal(twin(images), wanted(images) if changes else before)


def test_an_export_after_other_weights_were_loaded_is_of_these():
    restorer, images = copy.deepcopy(make_restorer("paper", 1, (8, 8))), blobs(3, 1, (8, 8))
    torch.export.export(restorer, (images,))
    state = {name: buffer.flip(-1) if "weight" in name else buffer for name, buffer in restorer.state_dict().items()}
    state["scorer.pixel_scale_bits"] = bits_of(restorer.scorer.pixel_scale / 3)
    restorer.load_state_dict(state)
    program = torch.export.export(restorer, (images,))
    assert torch.equal(program.module()(images), restorer(images))
