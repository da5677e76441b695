"""unshift.exporting: ONNX Runtime, torch.export and torch.compile return the bits that PyTorch returns."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from graphs import (
    assert_same_in,
    differences,
    enormous,
    everywhere,
    exported,
    in_graph,
    in_pytorch,
    moved_images,
    overflowing,
    padded,
    run,
    session,
    turned,
    turner,
)
from onnx import numpy_helper
from samples import KINDS, PRESETS, bits, blobs, hard_images, kind_of, make_estimator, make_restorer

import unshift
from unshift import Restorer, apply, quantise
from unshift.coordinates.rotation import GRAIN, QUARTER, rotate, rotate_grains
from unshift.data import dataset, prepare, to_float
from unshift.data.catalogue import find
from unshift.exporting import OPSET, PROMISE, program

ROOT = Path(unshift.__file__).parents[1]
pytestmark = pytest.mark.filterwarnings("ignore:this restorer may be wrong")


# --- ONNX Runtime ----------------------------------------------------------------------------------


def test_hard_images_at_all_shifts_and_the_classifier_behind_them():
    restorer, classifier, data = exported()
    runtime = session(data)
    for image in hard_images(1, (8, 8)).values():
        assert_same_in(runtime, restorer, everywhere(image))
    images = torch.stack([*hard_images(1, (8, 8)).values(), *torch.rand(53, 1, 8, 8)])
    assert len(images) == 64
    together = run(runtime, images)
    assert 6 <= together["tied"].sum() < 64
    for row in (0, 8, 10, 63):  # in a batch of one
        alone = run(runtime, images[row : row + 1])
        assert all(torch.equal(alone[name][0], together[name][row]) for name in alone if name != "logits")
    assert all(module.training for module in classifier.modules())  # exported in evaluation mode, and left as it was
    with torch.no_grad():
        wanted = copy.deepcopy(classifier).eval()(restorer(images))
    torch.testing.assert_close(together["logits"], wanted)


OTHERS = [
    pytest.param(make_restorer("dense", 3, (9, 13), True), 3, (9, 13), id="dense, not square", marks=pytest.mark.slow),
    pytest.param(padded("seam", 3, (5, 6), 1), 3, (5, 6), id="seam, on a margin", marks=pytest.mark.slow),
    pytest.param(make_restorer("seam", 2, (7,)), 2, (7,), id="1-D", marks=pytest.mark.slow),
    pytest.param(make_restorer("paper", 1, (3, 4, 5)), 1, (3, 4, 5), id="3-D", marks=pytest.mark.slow),
    pytest.param(make_restorer("dense", 1, (24, 16)), 1, (24, 16), id="spectral only", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("restorer", "channels", "size"), OTHERS)
def test_every_preset_at_odd_sizes(restorer, channels, size, tmp_path):
    unshift.export(restorer, tmp_path / "x.onnx", size=size, scores=True)
    runtime = session(str(tmp_path / "x.onnx"))
    for name, image in hard_images(channels, size).items():
        images = everywhere(image)
        if len(images) > 64 and name not in ("tied", "signed_zeros"):  # the rest of the shifts in a slow test below
            images = images[torch.randperm(len(images))[:24]]
        assert_same_in(runtime, restorer, images)
    assert_same_in(runtime, restorer, torch.randn(64, channels, *size))


def test_rotations_and_their_ties(tmp_path):
    restorer = turner(refine=True)
    unshift.export(restorer, tmp_path / "x.onnx", scores=True)
    runtime = session(str(tmp_path / "x.onnx"))
    images = torch.cat([turned(1, (12, 12)), torch.rand(24, 1, 12, 12)])
    assert restorer.estimate(images).tied.sum() > 12
    assert "angle" in run(runtime, images)
    assert_same_in(runtime, restorer, images)


QUICK = ("quarter", "poses", "angles, reduced", "scene, judged")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in KINDS])
def test_every_kind_of_coordinates(name, tmp_path):
    """In ONNX Runtime and in torch.export, in batches of 1, 3 and 7: every output is PyTorch's, bit for bit."""
    restorer, channels, size = kind_of(name)
    images = moved_images(restorer, channels, size)
    assert restorer.estimate(images).tied.any()
    unshift.export(restorer, tmp_path / "x.onnx", size=size, scores=True)
    runtime = session(str(tmp_path / "x.onnx"))
    captured = program(restorer, size=size, scores=True).module()
    wanted = in_pytorch(restorer, images)
    assert set(run(runtime, images)) == set(wanted)
    for count in (1, 3, 7):
        for at in range(0, len(images), count):
            batch = images[at : at + count]
            own = {key: value[at : at + count] for key, value in wanted.items()}
            assert differences(run(runtime, batch), own) == []
            assert differences(captured(batch), own) == []


def altered(data, change):
    """Replace each constant of a file by ``change(name, array)``, unless that is None."""
    model = onnx.load_from_string(data)
    count = 0
    for tensor in model.graph.initializer:
        new = change(tensor.name, numpy_helper.to_array(tensor).copy())
        if new is not None:
            tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))
            count += 1
    assert count
    return model.SerializeToString()


def one_off(name, array):
    """Add one to a number of the last layer's filter, a tap or a part of its spectrum."""
    if array.ndim == 4 and array.shape[:2] == (1, 8):
        array.flat[0] += 1
        return array
    return None


def plain_zeros(name, array):
    return np.zeros_like(array) if array.dtype == np.float64 and array.ravel()[0] == -(2.0**-150) else None


def test_the_comparison_catches_a_graph_without_the_tie_rule(monkeypatch):
    """Pair every block with itself: ranks then compare single pixels only."""
    restorer, _, _ = exported()
    images = torch.cat([everywhere(image) for image in hard_images(1, (8, 8)).values()])
    wanted = in_pytorch(restorer, images)
    monkeypatch.setattr("unshift.exact.choice.doubling_steps", lambda size: [(0, 0)])
    assert differences(in_graph(restorer, images), wanted)


@pytest.mark.parametrize("change", [one_off, plain_zeros])
def test_the_comparison_catches_a_wrong_graph(change):
    restorer, _, data = exported()
    images = torch.cat([everywhere(image) for image in hard_images(1, (8, 8)).values()])
    assert differences(run(session(altered(data, change)), images), in_pytorch(restorer, images))


def test_images_that_are_not_finite_are_flagged_and_change_no_other():
    restorer, _, data = exported()
    images = torch.rand(6, 1, 8, 8)
    wanted = in_pytorch(restorer, images)
    for row, value in ((1, math.nan), (3, math.inf), (4, -math.inf)):
        images[row, 0, 2, 2] = value
    images[5] = math.nan
    found = run(session(data), images)
    assert found["confidence"].isnan().tolist() == [False, True, False, True, True, True]
    sound = [0, 2]
    found, wanted = ({name: value[sound] for name, value in each.items()} for each in (found, wanted))
    assert differences(found, wanted) == []


def test_the_file_describes_itself_and_not_the_machine():
    _, _, data = exported()
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", OPSET)]
    assert [output.name for output in model.graph.output] == [
        "restored",
        "shift",
        "confidence",
        "tied",
        "logits",
        "scores",
    ]
    batch, *rest = model.graph.input[0].type.tensor_type.shape.dim
    assert (model.graph.input[0].name, batch.dim_param) == ("images", "batch")
    assert [dim.dim_value for dim in rest] == [1, 8, 8]
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert (about["restorer"], about["undoes"], about["promise"]) == ("small", "circular shifts", PROMISE)
    assert (about["classifier"], json.loads(about["size"]), about["channels"]) == ("Sequential", [8, 8], "1")
    assert set(about) >= {"unshift", "preset", "preparation", "coordinates", "data"}
    assert str(ROOT).encode() not in data
    assert b"site-packages" not in data
    assert b"stack_trace" not in data


# --- torch.export and torch.compile ----------------------------------------------------------------


def test_graphs_do_not_depend_on_the_settings_of_the_caller():
    restorer, images = make_restorer("dense", 1, (8, 8), True), torch.rand(4, 1, 8, 8)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made = program(restorer, size=(8, 8)).module()
    finally:
        torch.set_default_dtype(torch.float32)
    assert differences(made(images), in_pytorch(restorer, images)) == []


# --- the module that becomes a graph --------------------------------------------------------------


@pytest.mark.parametrize("pad", [0, 2])
@pytest.mark.parametrize("size", [(7,), (1, 1), (1, 7), (9, 13), (8, 8), (24, 16), (3, 4, 5)], ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_the_module_at_every_preset_size_and_margin(preset, size, pad):
    for channels in (1, 3):
        restorer = padded(preset, channels, size, pad, trained=channels == 3)
        images = torch.stack([*hard_images(channels, size).values()])
        assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


@pytest.mark.parametrize("name", KINDS)
def test_the_module_of_every_kind_of_coordinates(name):
    restorer, channels, size = kind_of(name)
    images = moved_images(restorer, channels, size)
    wanted = in_pytorch(restorer, images)
    for count, end in ((1, 14), (7, 14), (len(images), len(images))):  # alone, in a few, all at once
        for at in range(0, end, count):
            own = {key: value[at : at + count] for key, value in wanted.items()}
            assert differences(in_graph(restorer, images[at : at + count]), own) == []


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize(("size", "angles", "polar_angles"), [(12, 8, None), (9, 12, None), (6, 4, 3)])
def test_the_module_of_every_kind_of_rotation(refine, size, angles, polar_angles):
    restorer = turner(refine, size, angles, polar_angles)
    axes = restorer.coordinates.spatial_axes
    images = torch.cat([turned(1, (size,) * axes), torch.rand(8, 1, *[size] * axes)])
    assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


@pytest.mark.parametrize("largest", [2.0**-149, 1e-40, 3e38, torch.finfo(torch.float32).max])
def test_extreme_pixels(largest):
    for preset in PRESETS:
        restorer = make_restorer(preset, 1, (8, 8), True)
        images = largest * torch.tensor([-1.0, -0.0, 0.0, 1.0])[torch.randint(4, (6, 1, 8, 8))]
        assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


@pytest.mark.parametrize("refine", [False, True])
def test_rotations_of_the_largest_numbers(refine):
    restorer, images = overflowing(refine), enormous(12)
    assert restorer.coordinates.canvases(images)[0].isinf().any()
    assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


@pytest.mark.parametrize("name", unshift.files.pretrained())
def test_shipped_restorers_can_be_exported(name):
    """Their sums are below 2^24, the most that a graph holds."""
    restorer = unshift.load(name)
    channels, size = restorer.image_shape()
    images = torch.rand(2, channels, *(size or (40,) * restorer.stages[0].scorer.axes))
    images[1] = 0.5
    assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


def test_sums_may_reach_the_limit():
    """At 8 bits ``quantise`` fills its 24 bits to the last: 255 divides 2^24 - 1. Divisors may be larger still."""
    net = quantise(make_estimator("dense", 1, (6, 5)), blobs(16, 1, (6, 5)), bits=8)
    first = net.local[0]
    first.weight[:], first.bias[:] = 0, 0
    first.weight[:, 0, 0, 0] = torch.tensor([1, -1]).repeat(4) * ((2**24 - 1) // 255)
    restorer = Restorer(net)
    images = torch.stack([*hard_images(1, (6, 5)).values(), *torch.randn(5, 1, 6, 5)])
    for divisor in (1, 2**24 - 1, 2**24, 2**30):
        first.divisor[:] = divisor
        assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


def test_a_graph_rotates_by_every_grain_as_python_does(monkeypatch):
    """Cosines out of a table against Python's own, for every 1/1024 of a degree all the way round."""
    grains = torch.arange(-2 * QUARTER, 2 * QUARTER + 1)
    images = torch.tensor([[[[1.0, 0.1], [0.3, 0.7]]]]).expand(len(grains), 1, 2, 2)
    wanted = rotate(images, grains.double() / GRAIN)
    monkeypatch.setattr("unshift.exact.runtime.is_traced", lambda: True)
    assert torch.equal(bits(rotate_grains(images, grains)), bits(wanted))


# --- all of a test set -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["mnist", "mnist-paper", "cifar10", "cifar10-seam"])
def test_ten_thousand_images_each_at_a_random_shift(name, tmp_path):
    restorer = unshift.load(name)
    data = name.split("-")[0]
    if data == "cifar10" and not find(data).present():
        pytest.skip("CIFAR-10 is not in $UNSHIFT_DATA; `unshift data get cifar10` brings it")
    found = dataset("mnist-10k" if data == "mnist" else data, "test").images
    images = to_float(prepare(found, restorer.trained_on["preparation"]))
    assert len(images) == 10_000
    moved = apply(images, torch.randint(-999, 999, (len(images), 2)))
    unshift.export(name, tmp_path / "x.onnx", scores=True)
    runtime = session(str(tmp_path / "x.onnx"))
    ties = 0
    for batch in moved.split(64):
        wanted = in_pytorch(restorer, batch)
        ties += int(wanted["tied"].sum())
        assert differences(run(runtime, batch), wanted) == []
        singly = [run(runtime, image) for image in batch.split(1)]
        assert differences({key: torch.cat([one[key] for one in singly]) for key in singly[0]}, wanted) == []
    for image in moved[:500].split(1):
        assert differences(run(runtime, image), in_pytorch(restorer, image)) == []
    print(f"\n{name}: {len(moved):,} images in batches of 64 and one by one, no difference; {ties} tied")
