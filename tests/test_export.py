"""unshift.exporting: ONNX Runtime, torch.export and torch.compile say what PyTorch says, to the last bit."""

from __future__ import annotations

import copy
import functools
import json
import math
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from samples import PRESETS, bits, blobs, hard_images, make_estimator, make_restorer
from torch import nn
from typer.testing import CliRunner

import unshift
from unshift import Chain, Restorer, ShiftEstimator, apply, quantise
from unshift.cli import app
from unshift.coordinates import Canvas, Centre, Polar, Ring, Turns
from unshift.coordinates.rotation import GRAIN, QUARTER, rotate, rotate_grains
from unshift.data import dataset, prepare, status, to_float
from unshift.exact import IntegerEstimator
from unshift.exact.direct import Direct64
from unshift.exact.filters import floor_divide
from unshift.exact.fourier import Waves64, waves_error_bound
from unshift.exact.task import Task
from unshift.exporting import OPSET, PROMISE, program
from unshift.exporting.module import Graph
from unshift.testing import all_shifts
from unshift.weights import image_shape

ROOT = Path(unshift.__file__).parents[1]
INTEGERS = ("shift", "tied", "scores")


# --- what is compared -----------------------------------------------------------------------------


def session(data):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options)


def run(runtime, images):
    names = [output.name for output in runtime.get_outputs()]
    return dict(zip(names, map(torch.from_numpy, runtime.run(None, {"images": images.numpy()})), strict=True))


def in_pytorch(restorer, images):
    """All that a graph says, by the restorer as everybody uses it."""
    found = restorer.estimate(images)
    scores = restorer.stages[0].scores(restorer.stages[0].coordinates.canvas(images))
    scores = scores.squeeze(1) if scores.shape[1] == 1 else scores
    wanted = {"restored": restorer(images), **found._asdict(), "scores": scores}
    return {name: value for name, value in wanted.items() if value is not None}


def in_graph(restorer, images):
    """What a graph would say, computed by the module it is made of: its operations, its loops run in Python.

    PyTorch compiles the loops of a graph first, each for its own shapes, and ONNX takes seconds to write: this is the
    same arithmetic, at any number of sizes. That the files say the same is tested too, at a few.
    """

    def while_loop(more, body, state):
        while more(*state):
            state = body(*state)
        return state

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        unshift.exporting._prepare(restorer, torch.zeros_like(images[:1]))
        for name, module in list(sys.modules.items()):
            if name.startswith("unshift.") and hasattr(module, "is_traced"):
                patch.setattr(module, "is_traced", lambda: True)
        patch.setattr(sys.modules["torch._higher_order_ops.while_loop"], "while_loop", while_loop)
        return Graph(restorer, None, True)(images)


def differences(found, wanted):
    """The images, by number, of which anything was said that differs in a bit."""
    wrong = set()
    for name, value in wanted.items():
        if name in found:
            assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype), name
            different = bits(found[name]) != bits(value)
            wrong.update(different.reshape(len(value), -1).any(1).nonzero().flatten().tolist())
    assert {"restored", "shift", "confidence", "tied"} <= set(found)
    assert {"turn", "angle"} & set(found) == {"turn", "angle"} & set(wanted)
    return sorted(wrong)


def everywhere(image):
    """One image at every shift."""
    moves = all_shifts(image.shape[1:])
    return apply(image.expand(len(moves), *image.shape), moves)


def assert_same_in(runtime, restorer, images, batch_size=64):
    for batch in images.split(batch_size):
        assert differences(run(runtime, batch), in_pytorch(restorer, batch)) == []


def padded(preset, channels, size, pad, trained=True):
    scorer = make_restorer(preset, channels, tuple(n + 2 * pad for n in size), trained).scorer
    return Restorer(scorer, coordinates=Canvas(pad, 0.25))


@functools.cache
def turner(refine, size=12, angles=8, polar_angles=None):
    """A rotation restorer, not trained: what it reads is arbitrary, and must be the same everywhere."""
    torch.manual_seed(0)
    polar = Polar(size, angles=angles, radii=3, ratio=None, refine=refine, polar_angles=polar_angles)
    return untrained(polar, 1, (size,) * polar.spatial_axes, "dense")


def untrained(coordinates, channels, size, preset="paper"):
    torch.manual_seed(0)
    images = blobs(8, channels, size) + 0.1 * torch.rand(8, channels, *size)
    estimator = coordinates.network(preset, channels, size)
    return Restorer(quantise(estimator, coordinates.canvas(images).flatten(0, 1)), coordinates=coordinates)


KINDS = {
    "mirror": (Turns("mirror"), 1, (5, 6)),
    "half": (Turns("half"), 1, (5, 6)),
    "quarter": (Turns("quarter"), 1, (6, 6)),
    "flips": (Turns("flips"), 2, (5, 5)),
    "strand": (Turns("strand"), 4, (9,)),
    "cube": (Turns("cube"), 1, (3, 3, 3)),
    "ring": (Ring(), 1, (3, 8)),
    "ring, local filters": (Ring(0), 2, (8, 4)),
    "centre, corners": (Centre(), 1, (6, 6)),
    "centre, pixels": (Centre(), 1, (5, 5)),
    "chain": (None, 1, (6, 6)),
}


@functools.cache
def kind_of(name):
    """A restorer of each kind, its channels and its size."""
    coordinates, channels, size = KINDS[name]
    if name == "chain":
        centre, polar = Centre(), Polar(6, angles=8, radii=3, ratio=None, refine=True)
        return Chain(untrained(centre, 1, size), untrained(polar, 1, size, "dense")), channels, size
    preset = "seam" if "local" in name else "paper"
    return untrained(coordinates, channels, size, preset), channels, size


def moved_images(restorer, channels, size):
    """Hard images (constant, symmetric, tied, -0.0) and plain ones, each also under some moves of the group."""
    images = torch.stack([*hard_images(channels, size).values(), *torch.rand(3, channels, *size)])
    moves = restorer.coordinates.moves(size)
    some = torch.linspace(0, len(moves.shift) - 1, 3).long()
    poses = [
        type(moves)(*(None if part is None else part[k].expand(len(images), *part[k].shape) for part in moves))
        for k in some
    ]
    return torch.cat([restorer.coordinates.move(images, pose) for pose in poses])


def turned(channels, size):
    """Hard images for rotations: those for shifts, each at four quarter turns, and rings that tie all angles."""
    images = torch.stack([*hard_images(channels, size).values()])
    middle = torch.stack(torch.meshgrid(*[torch.arange(n) - (n - 1) / 2 for n in size], indexing="ij"))
    ring = (middle[-2:].square().sum(0).sqrt().round() % 3 / 4).expand(1, channels, *size)
    spot = ring.clone()
    spot[0, 0].view(-1)[0] = 1  # in a corner, where the grid does not look: canvases are one, images are not
    images = torch.cat([images, ring, spot])
    return torch.cat([torch.rot90(images, quarter, (-2, -1)) for quarter in range(4)])


@functools.cache
def exported(scores=True):
    """A small net with a classifier behind it, as the bytes of a file."""
    torch.manual_seed(0)
    classifier = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5))
    restorer = make_restorer("paper", 1, (8, 8), True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.onnx"
        unshift.export(restorer, path, classifier=classifier.train(), size=(8, 8), scores=scores, name="small")
        assert [file.name for file in Path(folder).iterdir()] == ["small.onnx"]  # one file, and no weights beside it
        return restorer, classifier, path.read_bytes()


# --- ONNX Runtime ---------------------------------------------------------------------------------


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
    pytest.param(make_restorer("dense", 3, (9, 13), True), 3, (9, 13), id="dense, not square"),
    pytest.param(padded("seam", 3, (5, 6), 1), 3, (5, 6), id="seam, on a margin"),
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


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"refine": False, "angles": 28}, {"refine": True, "polar_angles": 3, "size": 6}])
def test_other_rotations(settings, tmp_path):
    restorer = turner(**settings)
    unshift.export(restorer, tmp_path / "x.onnx", scores=True)
    size = (restorer.coordinates.size,) * restorer.coordinates.spatial_axes
    assert_same_in(session(str(tmp_path / "x.onnx")), restorer, turned(1, size))


QUICK = ("ring",)


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


@pytest.mark.slow
def test_rotations_of_the_largest_numbers(tmp_path):
    """The polar grid of pixels of +-float32 max may overflow to infinity: it does so everywhere alike."""
    restorer, images = overflowing(refine=True), enormous(12)
    unshift.export(restorer, tmp_path / "x.onnx", scores=True)
    assert_same_in(session(str(tmp_path / "x.onnx")), restorer, images)
    captured = program(restorer, scores=True).module()
    assert differences(captured(images), in_pytorch(restorer, images)) == []


def overflowing(refine):
    """A rotation restorer whose grid has weights that add up to a little more than 1 in float32."""
    polar = Polar(12, angles=28, radii=5, ratio=None, refine=refine)
    return untrained(polar, 1, (12, 12), "dense")


def enormous(size):
    """Images of pixels as large as float32 holds, of either sign, with zeros of either sign among them."""
    largest = torch.finfo(torch.float32).max
    values = torch.tensor([largest, -largest, 0.0, -0.0, largest / 2])
    mixed = values[torch.randint(5, (12, 1, size, size), generator=torch.Generator().manual_seed(0))]
    constant = values.view(5, 1, 1, 1).expand(5, 1, size, size)
    return torch.cat([mixed, constant, torch.rot90(mixed[:3], 1, (2, 3))])


def altered(data, change):
    """The file with each constant given to ``change`` with its name, which returns its replacement or None."""
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
    """One number of the last layer's filter, a tap or a part of its spectrum, is one more."""
    if "scorer.local.5" in name and array.size > 1:
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
    alone = lambda copies, size: torch.arange(copies * math.prod(size))[None]  # noqa: E731
    monkeypatch.setattr("unshift.exact.ties._blocks_ahead", alone)
    assert differences(in_graph(restorer, images), wanted)


@pytest.mark.parametrize("change", [one_off, plain_zeros])
def test_the_comparison_catches_a_wrong_graph(change):
    restorer, _, data = exported()
    images = torch.cat([everywhere(image) for image in hard_images(1, (8, 8)).values()])
    assert differences(run(session(altered(data, change)), images), in_pytorch(restorer, images))


def test_what_is_not_finite_is_flagged_and_harms_no_other_image():
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


def test_an_input_of_another_size_is_refused_in_plain_words():
    runtime = session(exported()[2])
    with pytest.raises(Exception, match=r"images.*\n? *index: 2 Got: 9 Expected: 8"):
        run(runtime, torch.zeros(1, 1, 9, 8))
    with pytest.raises(Exception, match=r"index: 1 Got: 3 Expected: 1"):
        run(runtime, torch.zeros(1, 3, 8, 8))
    with pytest.raises(Exception, match=r"Unexpected input data type.*double.*expected.*float"):
        run(runtime, torch.zeros(1, 1, 8, 8, dtype=torch.float64))


def test_the_file_explains_itself_and_tells_nothing_of_who_made_it():
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
    assert (about["restorer"], about["undoes"], about["promise"]) == ("small", "circular shifts, exactly", PROMISE)
    assert (about["classifier"], json.loads(about["size"]), about["channels"]) == ("Sequential", [8, 8], "1")
    assert set(about) >= {"unshift", "preset", "preparation", "coordinates", "data"}
    assert str(ROOT).encode() not in data
    assert b"site-packages" not in data
    assert b"stack_trace" not in data


@pytest.mark.slow
def test_in_an_environment_without_torch(tmp_path):
    """A fresh environment with onnxruntime alone: the file, an image at two shifts, one answer."""
    restorer, _, data = exported()
    (tmp_path / "model.onnx").write_bytes(data)
    image = hard_images(1, (8, 8))["tied"][None]
    moved = torch.cat([image, apply(image, torch.tensor([[3, 5]]))])
    np.save(tmp_path / "moved.npy", moved.numpy())
    np.save(tmp_path / "wanted.npy", restorer(moved).numpy())
    (tmp_path / "use.py").write_text(
        "import importlib.util, numpy as np, onnxruntime\n"
        "assert importlib.util.find_spec('torch') is None and importlib.util.find_spec('unshift') is None\n"
        "session = onnxruntime.InferenceSession('model.onnx')\n"
        "restored, shift = session.run(['restored', 'shift'], {'images': np.load('moved.npy')})\n"
        "assert restored.tobytes() == np.load('wanted.npy').tobytes()\n"
        "print(shift.tolist())\n"
    )
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    quiet = {"check": True, "cwd": tmp_path, "capture_output": True, "text": True}
    subprocess.run([python, "-m", "pip", "install", "-q", "onnxruntime", "numpy"], **quiet)
    clean = {"PATH": "", "HOME": str(tmp_path)}  # in particular no PYTHONPATH
    answer = subprocess.run([python, "-I", "use.py"], env=clean, **quiet).stdout
    assert json.loads(answer) == restorer.estimate(moved).shift.tolist()


# --- the same module, not exported: every preset, size and margin -----------------------------------


@pytest.mark.parametrize("pad", [0, 2])
@pytest.mark.parametrize("size", [(7,), (1, 1), (1, 7), (9, 13), (8, 8), (24, 16), (3, 4, 5)], ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_the_module_says_what_the_restorer_says(preset, size, pad):
    for channels in (1, 3):
        restorer = padded(preset, channels, size, pad, trained=channels == 3)
        images = torch.stack([*hard_images(channels, size).values()])
        assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


@pytest.mark.parametrize("name", KINDS)
def test_the_module_knows_every_kind_of_coordinates(name):
    restorer, channels, size = kind_of(name)
    images = moved_images(restorer, channels, size)
    wanted = in_pytorch(restorer, images)
    for count in (1, 3, 7, len(images)):
        for at in range(0, len(images), count):
            own = {key: value[at : at + count] for key, value in wanted.items()}
            assert differences(in_graph(restorer, images[at : at + count]), own) == []


@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize(("size", "angles", "polar_angles"), [(12, 8, None), (9, 28, None), (6, 4, 3)])
def test_the_module_rotates_as_the_restorer_does(refine, size, angles, polar_angles):
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
def test_rotations_of_the_largest_numbers_by_the_module(refine):
    restorer, images = overflowing(refine), enormous(12)
    assert restorer.coordinates.canvas(images).isinf().any()
    assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


@pytest.mark.parametrize("name", unshift.weights.pretrained())
def test_shipped_restorers_can_be_exported(name):
    """Their sums are below 2^24, so that a graph holds them."""
    restorer = unshift.load(name)
    channels, size = image_shape(restorer)
    images = torch.rand(2, channels, *size)
    images[1] = 0.5
    assert differences(in_graph(restorer, images), in_pytorch(restorer, images)) == []


# 1 / (30 * 34) is as far from a float32 as a number can be: in float32 the sums would be one off.
@pytest.mark.parametrize("size", [(31, 37), (30, 34), (32, 32), (64, 64)], ids=str)
def test_spectra_are_exact_just_below_the_limit(size):
    """All pixels and taps of one sign, and of random ones: rounded sums are those of int64."""
    estimator = ShiftEstimator(1, channels=(1,), kernel_size=size, size=size)
    layer = IntegerEstimator(estimator.describe(), size=size).local[0]
    room = (2**24 - 3) // 1023
    for weight in (torch.full(size, room // math.prod(size)), torch.randint(-2, 3, size)):
        if weight.abs().sum() * 1023 >= 2**24 - 1:
            weight = weight.sign() * (torch.rand(size) < 0.2)
        layer.weight.copy_(weight)
        assert waves_error_bound(size, 1, 2.0**24) < 0.5
        images = torch.stack([torch.full(size, 1023.0), torch.randint(-1023, 1024, size).float()])[:, None]
        task = Task(tuple(layer.weight.shape), size, layer.worst, traced=True)
        assert Waves64.holds(task)
        found = Waves64(layer.weight, task)(images.double(), margin=False)
        assert torch.equal(found, Direct64(layer.weight, task)(images.double(), margin=False))
        assert torch.equal(found.long(), layer(images, layer.ready(size, plain=True)))


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


def test_no_quotient_is_rounded_up():
    """Division in float32 and floor, against integers, where it is closest: sums just below a multiple."""
    powers = 2 ** torch.arange(25)
    divisors = torch.cat([torch.arange(1, 200), torch.randint(200, 2**24, (200,)), powers, powers[1:] - 1])
    multiples = (2**24 - 1) // divisors * divisors
    for sums in (multiples, multiples - 1, (multiples + 1).clamp(max=2**24 - 1), torch.tensor(2**24 - 1)):
        for sign in (1, -1):
            whole = floor_divide((sign * sums).float().expand(len(divisors)).clone(), divisors.float(), 2**24)
            assert torch.equal(whole.long(), torch.div(sign * sums, divisors, rounding_mode="floor"))


def test_a_graph_rotates_by_every_grain_as_python_does(monkeypatch):
    """Cosines out of a table against Python's own, for every 1/1024 of a degree all the way round."""
    grains = torch.arange(-2 * QUARTER, 2 * QUARTER + 1)
    images = torch.tensor([[[[1.0, 0.1], [0.3, 0.7]]]]).expand(len(grains), 1, 2, 2)
    wanted = rotate(images, grains.double() / GRAIN)
    monkeypatch.setattr("unshift.coordinates.rotation.is_traced", lambda: True)
    assert torch.equal(bits(rotate_grains(images, grains)), bits(wanted))


# --- torch.export and torch.compile ---------------------------------------------------------------


def test_torch_export_and_its_file(tmp_path):
    restorer = make_restorer("paper", 1, (8, 8), True)
    images = torch.stack([*hard_images(1, (8, 8)).values()])
    unshift.export(restorer, tmp_path / "x.pt2", size=(8, 8), scores=True)
    files = {"unshift.json": ""}
    loaded = torch.export.load(tmp_path / "x.pt2", extra_files=files).module()
    assert json.loads(files["unshift.json"])["promise"] == PROMISE
    for batch in (images, images[:1], images[-1:]):
        assert differences(loaded(batch), in_pytorch(restorer, batch)) == []
    assert isinstance(program(restorer, size=(8, 8)), torch.export.ExportedProgram)


def test_the_callers_settings_do_not_reach_the_graph():
    restorer, images = make_restorer("paper", 1, (8, 8), True), torch.rand(4, 1, 8, 8)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made = program(restorer, size=(8, 8)).module()
    finally:
        torch.set_default_dtype(torch.float32)
    assert differences(made(images), in_pytorch(restorer, images)) == []


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("dense", "eager"),  # what is captured, without the minutes of a C++ compiler
        *(pytest.param(name, "inductor", marks=pytest.mark.slow) for name in (*PRESETS, "rotation")),
    ],
)
def test_torch_compile(name, backend):
    restorer = turner(refine=True) if name == "rotation" else make_restorer(name, 1, (12, 12), True)
    images = torch.cat([turned(1, (12, 12)), torch.rand(5, 1, 12, 12)])
    compiled = torch.compile(restorer, backend=backend)
    assert torch.equal(bits(compiled(images)), bits(restorer(images)))
    assert torch.equal(bits(compiled(images[:3])), bits(restorer(images[:3])))


# --- classifiers ----------------------------------------------------------------------------------


def traced(net):
    return torch.jit.trace(net, torch.zeros(2, 1, 8, 8))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript's own
@pytest.mark.slow
@pytest.mark.parametrize("how", [torch.jit.script, traced])
def test_a_torchscript_classifier(how, tmp_path):
    restorer, classifier, _ = exported()
    net = copy.deepcopy(classifier).eval()
    unshift.export(restorer, tmp_path / "x.onnx", classifier=how(net), size=(8, 8), scores=True)
    images = torch.rand(5, 1, 8, 8)
    found = run(session(str(tmp_path / "x.onnx")), images)
    assert list(found) == ["restored", "shift", "confidence", "tied", "logits", "scores"]
    assert differences(found, in_pytorch(restorer, images)) == []
    with torch.no_grad():
        torch.testing.assert_close(found["logits"], net(restorer(images)))
    with pytest.raises(ValueError, match="cannot capture a TorchScript classifier"):
        unshift.export(restorer, tmp_path / "x.pt2", classifier=how(net), size=(8, 8))


class Branches(nn.Module):
    def forward(self, images):
        return images.flatten(1) if images.sum() > 0 else -images.flatten(1)


@pytest.mark.parametrize(
    ("classifier", "message"),
    [
        (nn.Linear(3, 3), r"cannot take images of shape \(3, 1, 8, 8\): mat1 and mat2"),
        (nn.Flatten(0), r"one row of logits per image, got \(192,\) for images \(3, 1, 8, 8\)"),
        (lambda images: [1], r"one row of logits per image, got list"),
        (Branches(), r"torch\.export cannot capture this classifier: "),
        (lambda images: images.reshape(3, -1), r"cannot capture this classifier: it takes one batch size only"),
    ],
)
def test_a_classifier_that_does_not_fit(classifier, message, tmp_path, capfd):
    with pytest.raises(ValueError, match=message):
        unshift.export(make_restorer("paper", 1, (8, 8)), tmp_path / "x.onnx", classifier=classifier, size=(8, 8))
    assert not any(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")  # the exporter would print all it had captured


class InPlace(nn.Module):
    def forward(self, images):
        return images.mul_(2).sub_(0.5).flatten(1)


def test_a_classifier_that_works_in_place_leaves_the_restored_images(tmp_path):
    restorer, images = make_restorer("paper", 1, (8, 8), True), torch.rand(4, 1, 8, 8)
    unshift.export(restorer, tmp_path / "x.PT2", classifier=InPlace(), size=(8, 8))  # in capitals, but no ONNX
    found = torch.export.load(tmp_path / "x.PT2").module()(images)
    assert differences(found, in_pytorch(restorer, images)) == []
    assert torch.equal(found["logits"], InPlace()(restorer(images)))


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("restorer", "options", "message"),
    [
        ("nonesuch", {}, r"no restorer 'nonesuch': neither a file nor one of cifar10"),
        (make_restorer("paper", 1, (8, 8)), {}, r"takes images of any size.* say which, as size=\(32, 32\)"),
        (make_restorer("paper", 1, (8, 8)), {"size": (4, 8)}, r"kernel \(8, 8\) is larger than the image \(4, 8\)"),
        (make_restorer("paper", 1, (8, 8)), {"size": (8,)}, r"wants 2 spatial axes, got 1"),
        (make_restorer("dense", 1, (8, 8)), {"size": (9, 8)}, r"made for images of size \(8, 8\), got \(9, 8\)"),
        (padded("dense", 1, (1, 1), 2), {"size": (0, 1)}, r"must have a positive size, got \(0, 1\)"),
        (turner(True), {"size": (13, 13)}, r"made for square images of size 12, got 13"),
        (Restorer(make_estimator("paper", 1, (8, 8))), {}, r"only restorers of quantised networks.*ShiftEstimator"),
        (
            Chain(make_restorer("paper", 1, (8, 8)), turner(True)),
            {"size": (8, 8)},
            r"made for square images of size 12",
        ),
        (kind_of("ring")[0], {}, r"takes images of any size.* say which, as size=\(32, 32\)"),
        (kind_of("quarter")[0], {"size": (6, 7)}, r"turns of group 'quarter' want square images"),
        (
            Restorer(quantise(make_estimator("dense", 1, (8, 8)), blobs(4, 1, (8, 8)), sum_bits=32)),
            {},
            r"sums reach \d+; they must stay below 2\^24, the most that a graph holds: quantise it with sum_bits=24",
        ),
    ],
)
def test_bad_restorers_and_sizes(restorer, options, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        unshift.export(restorer, tmp_path / "x.onnx", **options)
    assert "\n" not in str(caught.value)


def test_bad_paths(tmp_path, monkeypatch):
    restorer = make_restorer("dense", 1, (8, 8))
    with pytest.raises(ValueError, match="is a folder"):
        unshift.export(restorer, tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(unshift.exporting, "as_onnx", lambda *_: b"")
    with pytest.raises(ValueError, match=r"cannot write .*file/x\.onnx \((File exists|Not a directory)\)"):
        unshift.export(restorer, tmp_path / "file" / "x.onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_without_the_extra(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=r"pip install 'unshift\[onnx\]'"):
        unshift.export("mnist", tmp_path / "x.onnx")


# --- the command ----------------------------------------------------------------------------------


def command(*args):
    return CliRunner().invoke(app, ["export", *map(str, args)], prog_name="unshift")


def test_the_command(tmp_path):
    out = tmp_path / "digits.onnx"
    result = command("--restorer", "mnist-paper", "--classifier", "lenet5-mnist", "--out", out, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {
        "file": str(out),
        "bytes": out.stat().st_size,
        "restorer": "mnist-paper",
        "classifier": "lenet5-mnist",
        "opset": OPSET,
    }
    runtime = session(str(out))
    assert runtime.get_modelmeta().custom_metadata_map["restorer"] == "mnist-paper"
    digits = dataset("mnist-10k", "test")
    restorer = unshift.load("mnist-paper")
    images = to_float(prepare(digits.images[:64], restorer.trained_on["preparation"]))
    moved = apply(images, torch.randint(32, (64, 2)))
    found = run(runtime, moved)
    assert differences(found, in_pytorch(restorer, moved)) == []
    assert (found["logits"].argmax(1) == digits.labels[:64]).float().mean() > 0.95
    again = command("--restorer", "mnist-paper", "--out", out)
    assert (again.exit_code, again.stderr) == (2, f"unshift: error: {out} exists; --force overwrites it\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--restorer", "nonesuch"), "no restorer 'nonesuch'"),
        (("--restorer", "mnist", "--classifier", "nonesuch"), "no classifier 'nonesuch'"),
        (("--restorer", "cifar10", "--classifier", "lenet5-mnist"), "the classifier cannot take images of shape"),
        (("--restorer", "mnist", "--size", "40"), "made for images of size (32, 32), got (40, 40)"),
        (("--restorer", "mnist-rotation", "--pad", "4"), "pad is for circular shifts along all axes"),
    ],
)
def test_the_command_refuses(args, message, tmp_path):
    result = command(*args, "--out", tmp_path / "x.onnx")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not any(tmp_path.iterdir())


def test_the_command_refuses_what_it_cannot_write(tmp_path):
    (tmp_path / "file").write_text("")
    for out, message in ((tmp_path, "is a folder"), (tmp_path / "file" / "x.onnx", "cannot write to")):
        result = command("--restorer", "mnist", "--out", out)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert message in result.stderr


# --- all of a test set ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["mnist", "mnist-paper", "cifar10", "cifar10-seam"])
def test_ten_thousand_images_each_at_a_random_shift(name, tmp_path):
    restorer = unshift.load(name)
    data = name.split("-")[0]
    if data == "cifar10" and not next(row.present for row in status() if row.name == data):
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
