"""PyTorch's tools on ``nn.Sequential(restorer, classifier)``: those that work, and those that are refused."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from samples import blobs, hard_images, make_restorer
from torch import nn

import unshift

SIZE = (8, 8)


def model(preset: str = "paper") -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(make_restorer(preset, 1, SIZE, trained=True), nn.Flatten(), nn.Linear(64, 3)).eval()


@pytest.mark.parametrize(
    ("preset", "strict"), [("paper", False), ("seam", False), pytest.param("seam", True, marks=pytest.mark.slow)]
)
def test_export_takes_the_module_as_it_is(preset, strict):
    whole, images = model(preset), torch.stack([*hard_images(1, SIZE).values()])
    dynamic = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(whole, (images[:3],), dynamic_shapes=dynamic, strict=strict)
    for some in (images, images[:1], images[3:5]):
        assert torch.equal(program.module()(some), whole(some))
    assert torch.equal(copy.deepcopy(whole)(images), whole(images))  # nothing of the graph is left on the module


def test_compile_takes_any_batch():
    whole, images = model(), torch.stack([*hard_images(1, SIZE).values()])
    compiled = torch.compile(whole, backend="aot_eager", dynamic=True)
    for count in (4, 2, 7):
        assert torch.equal(compiled(images[:count]), whole(images[:count]))


def test_each_compiled_restorer_uses_its_weights():
    first, second = (make_restorer("paper", 1, SIZE, trained=trained) for trained in (True, False))
    images = blobs(4, 1, SIZE, seed=3)
    moved = unshift.apply(images, torch.tensor([[3, 5]] * 4))
    for restorer in (first, second, copy.deepcopy(first)):
        compiled = torch.compile(restorer, backend="aot_eager", dynamic=True)
        assert torch.equal(compiled(moved), restorer(images))


def test_a_compiled_restorer_refuses_what_the_restorer_does():
    compiled = torch.compile(make_restorer("paper", 1, SIZE, trained=True), backend="aot_eager", dynamic=True)
    with pytest.raises(Exception, match="images must be finite"):
        compiled(torch.full((2, 1, *SIZE), float("nan")))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript's own
def test_recorders_are_refused_with_an_alternative():
    whole, images = model(), blobs(2, 1, SIZE)
    with pytest.raises(ValueError, match=r"torch\.jit\.trace.*torch\.export\.export"):
        torch.jit.trace(whole, images)
    with pytest.raises(ValueError, match=r"torch\.jit\.script.*torch\.export\.export"):
        torch.jit.script(whole)
    with pytest.raises(ValueError, match="vmap"):
        torch.vmap(lambda image: whole(image[None])[0])(images)


def test_another_thread_may_compile_meanwhile():
    images = torch.rand(2, 1, *SIZE)
    wide = unshift.quantise(unshift.ShiftEstimator.preset("paper", 1, SIZE), images, bits=20, sum_bits=45)
    restorer = unshift.Restorer(wide)
    wanted, scores = restorer(images), wide(images)
    begun, done = threading.Event(), threading.Event()

    def wait(graph, _):
        begun.set()
        done.wait(60)
        return graph

    other = threading.Thread(target=lambda: torch.compile(lambda x: x + 1, backend=wait)(torch.rand(2)))
    other.start()
    try:
        assert begun.wait(60)
        assert torch.compiler.is_compiling()  # PyTorch's flag is set in all threads
        assert torch.equal(restorer(images), wanted)
        assert torch.equal(wide(images), scores)
    finally:
        done.set()
        other.join()


def test_compiled_ties_are_broken_by_the_target():
    restorer, grey, colours = make_restorer("paper", 1, SIZE), torch.zeros(2, 1, *SIZE), torch.rand(2, 3, *SIZE)
    compiled = torch.compile(lambda x, of: restorer.undo(of, restorer.estimate(x, target=of)), backend="aot_eager")
    moved = unshift.apply(colours, torch.tensor([[3, 4], [5, 6]]))
    assert torch.equal(compiled(grey, moved), compiled(grey, colours))
    assert torch.equal(compiled(grey, moved), restorer.undo(colours, restorer.estimate(grey, target=colours)))


def test_an_export_leaves_the_compiled_functions_of_the_user_alone():
    compilations = []

    def counting(graph, _):
        compilations.append(1)
        return graph

    compiled = torch.compile(lambda x: x.sin() + 1, backend=counting)
    compiled(torch.rand(3))
    for size in (8, 9):  # several sizes in one process, which the loops of the tie rule must survive
        restorer, images = make_restorer("paper", 1, SIZE), torch.rand(2, 1, size, size)
        program = torch.export.export(restorer, (images,))
        assert torch.equal(program.module()(images), restorer(images))
    compiled(torch.rand(3))
    assert len(compilations) == 1


def test_sums_beyond_float32_are_refused_in_a_graph():
    wide = unshift.quantise(unshift.ShiftEstimator.preset("paper", 1, SIZE), blobs(4, 1, SIZE), sum_bits=32)
    with pytest.raises(Exception, match="sum_bits=24"):
        torch.export.export(unshift.Restorer(wide), (torch.rand(2, 1, *SIZE),))


def test_several_positions_are_refused_in_a_graph():
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.restorer = make_restorer("paper", 1, SIZE)

        def forward(self, images):
            return self.restorer.estimate(images, top=2)[1].shift

    with pytest.raises(Exception, match="without top"):
        torch.export.export(Several(), (torch.rand(2, 1, *SIZE),), strict=False)
