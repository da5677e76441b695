"""Cached plans follow the integers: changes, copies, other sizes, threads and forks."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import time

import pytest
import torch
from networks import fresh, plans
from samples import PRESETS, blobs, make_estimator, make_restorer

from unshift import Restorer, load, quantise
from unshift.exact import inference, quantised
from unshift.exact.quantised import bits_of


def run_and(change, preset="paper"):
    """Run a net, change it, and return its scores and those of a net that was never run before the change."""
    net, images = fresh(make_restorer(preset, 1, (9, 13)).scorer), torch.rand(2, 1, 9, 13)
    before = net(images)
    net = change(net) or net
    return before, net(images), fresh(net)(images)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("buffer", ["weight", "bias", "divisor"])
def test_changes_in_place_take_effect(preset, buffer):
    def change(net):
        getattr(net.local[0], buffer).mul_(2).add_(10_000)

    before, found, wanted = run_and(change, preset)
    assert torch.equal(found, wanted)
    assert not torch.equal(found, before)


def test_a_change_of_the_pixel_scale_takes_effect():
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
def test_other_weights_take_effect(preset, assign):
    other = make_restorer(preset, 1, (9, 13), trained=True).scorer
    state = {name: buffer.clone() for name, buffer in other.state_dict().items()}

    def change(net):
        net.load_state_dict(state, assign=assign)

    before, found, wanted = run_and(change, preset)
    assert torch.equal(found, wanted)
    assert not torch.equal(found, before)


def test_least_recently_used_plans_are_dropped_first(monkeypatch):
    net = fresh(make_restorer("paper", 1, (9, 9)).scorer)

    def widths():
        return [key[0][1] for key, (_, value, _) in net.cache._entries.items() if value in plans(net)]

    for width in range(9, 41):
        net(torch.rand(1, 1, 9, width))
    assert widths() == [*range(9, 41)]  # many sizes fit
    net(torch.rand(1, 1, 9, 9))
    monkeypatch.setattr(quantised, "LIMIT", sum(size for _, _, size in net.cache._entries.values()) // 2)
    net(torch.rand(1, 1, 9, 50))
    assert 2 <= len(widths()) < 32
    assert widths()[-2:] == [9, 50]
    net(torch.rand(1, 1, 9, 9))
    assert widths()[-2:] == [50, 9]


def test_sizes_in_turn_are_prepared_once(monkeypatch):
    """More sizes than the cache expected must not prepare a network again for each image."""
    net, made = fresh(make_restorer("paper", 1, (9, 9)).scorer), []
    plan = inference.Plan
    monkeypatch.setattr(inference, "Plan", lambda *arguments: made.append(1) or plan(*arguments))
    for _ in range(3):
        for width in range(9, 29):
            net(torch.rand(1, 1, 9, width))
    assert len(made) == 20


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_copies_do_not_carry_the_cache(copied):
    restorer = load("cifar10-seam")
    before = len(pickle.dumps(restorer))
    for size in (32, 40, 48, 56):
        restorer(torch.rand(1, 3, size, size))
    assert len(pickle.dumps(restorer)) == before
    assert len(restorer.scorer.cache) > 4
    assert len(copied(restorer).scorer.cache) == 0


def test_threads_may_share_a_net():
    net, images = fresh(make_restorer("seam", 1, (9, 13)).scorer), torch.rand(4, 1, 9, 13)
    wanted, found = fresh(net)(images), []
    workers = [threading.Thread(target=lambda: found.append(net(images))) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 8
    assert all(torch.equal(one, wanted) for one in found)


@pytest.mark.timeout(120)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of fork in a process with threads
@pytest.mark.filterwarnings("ignore:this restorer may be wrong")  # noise is no digit
def test_forks_of_a_process_whose_threads_restore():
    """Nothing of ours may hold a lock that a forked process inherits. OpenMP's threads do not survive a fork.

    So the child uses one thread, as PyTorch's own DataLoader workers do.
    """
    restorer, images = load("mnist-turns"), torch.rand(4, 1, 32, 32)
    wanted, stop = restorer(images), threading.Event()

    def restore_until_stopped():
        while not stop.is_set():
            restorer(torch.rand(2, 1, 32, 32))

    workers = [threading.Thread(target=restore_until_stopped) for _ in range(4)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(8):
            child = os.fork()
            if not child:
                torch.set_num_threads(1)
                os._exit(0 if torch.equal(restorer(images), wanted) else 1)
            deadline = time.monotonic() + 60
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
            if ended[0] == 0:
                os.kill(child, 9)
                os.waitpid(child, 0)
            assert ended == (child, 0)
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def test_nets_made_and_run_in_inference_mode():
    images = torch.rand(3, 1, 8, 8)
    wanted = make_restorer("dense", 1, (8, 8))(images)
    with torch.inference_mode():
        restorer = Restorer(quantise(make_estimator("dense", 1, (8, 8)), blobs(16, 1, (8, 8))))
        assert torch.equal(restorer(images), wanted)
        assert torch.equal(copy.deepcopy(restorer)(images), wanted)
    assert torch.equal(restorer(images), wanted)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_a_copy_uses_its_weights_however_often_both_were_changed(copied):
    """The version counters of a copy start anew, and may reach the count of other content."""
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


def test_an_export_uses_the_weights_loaded_last():
    restorer, images = copy.deepcopy(make_restorer("paper", 1, (8, 8))), blobs(3, 1, (8, 8))
    torch.export.export(restorer, (images,))
    state = {name: buffer.flip(-1) if "weight" in name else buffer for name, buffer in restorer.state_dict().items()}
    state["scorer.pixel_scale_bits"] = bits_of(restorer.scorer.pixel_scale / 3)
    restorer.load_state_dict(state)
    program = torch.export.export(restorer, (images,))
    assert torch.equal(program.module()(images), restorer(images))
