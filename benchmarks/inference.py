"""The cost of restoring: next to classifiers, in ONNX Runtime, by image size, and for tied positions."""

from __future__ import annotations

import math
import sys
import tempfile
from typing import Any

import torch
from timing import Rows, Step, made, milliseconds, peak_memory, take_turns
from torch import nn

import unshift
from reproduction.networks import ResNet18
from unshift.classifiers import load as load_classifier
from unshift.data import dataset, resize, to_float


def classifiers(quick: bool) -> Rows:
    """The time of a restorer as a share of the time of the classifier behind it."""
    torch.manual_seed(0)
    resnet20 = load_classifier("resnet20-cifar10-plain")
    stem = nn.Sequential(nn.Conv2d(3, 3, 8, 8), *ResNet18())  # the network for CIFAR behind a stem of stride 8
    pairs: list[tuple[str, Any, str, Any, tuple[int, ...]]] = [
        ("mnist", unshift.load("mnist"), "LeNet-5", load_classifier("lenet5-mnist"), (1, 32, 32)),
        ("mnist-paper", unshift.load("mnist-paper"), "LeNet-5", load_classifier("lenet5-mnist"), (1, 32, 32)),
        ("cifar10-seam", unshift.load("cifar10-seam"), "ResNet-20", resnet20, (3, 32, 32)),
        ("cifar10", unshift.load("cifar10"), "ResNet-18", ResNet18(), (3, 40, 40)),
        ("cifar10-paper", unshift.load("cifar10-paper"), "ResNet-18", ResNet18(), (3, 40, 40)),
        ("seam, untrained", made("seam", 3, (224, 224)), "ResNet-18 behind a stem of stride 8", stem, (3, 224, 224)),
    ]
    digits = resize(to_float(dataset("mnist-10k", "test").images[:256]), (32, 32))
    rows = []
    for name, restorer, called, net, shape in pairs:
        for batch in (1, 8) if quick else (1, 64, 256):
            if batch * math.prod(shape) > 64 * 3 * 224 * 224:
                continue
            # Noise ties in networks of lines, so restorers of digits get digits.
            images = digits[:batch] if shape[0] == 1 else torch.rand(batch, *shape)
            with torch.no_grad():
                heavy = batch * math.prod(shape) > 10**5
                found = take_turns(
                    {"restore": lambda: restorer(images), "classify": lambda: net.eval()(images)},  # noqa: B023
                    3 if quick else 7 if heavy else 31,
                )
            share = found["restore"][1] / found["classify"][1]
            rows.append(
                {
                    "restorer": name,
                    "classifier": called,
                    "images": f"{batch} x {'x'.join(map(str, shape))}",
                    "restore, ms": milliseconds(found["restore"]),
                    "classify, ms": milliseconds(found["classify"]),
                    "restore / classify": f"{100 * share:.1f}%",
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def onnx(quick: bool) -> Rows:
    """PyTorch and ONNX Runtime: the same restorer, images and number of threads."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    rows = []
    for name in ("mnist", "mnist-paper", "cifar10", "cifar10-seam"):
        restorer = unshift.load(name)
        with tempfile.TemporaryDirectory() as folder:
            unshift.export(restorer, f"{folder}/x.onnx")
            session = ort.InferenceSession(f"{folder}/x.onnx", options)
        shape = session.get_inputs()[0].shape[1:]
        for batch in (1,) if quick else (1, 64):
            images = torch.rand(batch, *shape)
            feed = {"images": images.numpy()}
            same = (restorer(images).numpy() == session.run(["restored"], feed)[0]).all()
            found = take_turns(
                {"torch": lambda: restorer(images), "onnx": lambda: session.run(None, feed)},  # noqa: B023
                3 if quick else 15,
            )
            rows.append(
                {
                    "restorer": name,
                    "batch": batch,
                    "PyTorch, ms": milliseconds(found["torch"]),
                    "ONNX Runtime, ms": milliseconds(found["onnx"]),
                    "ONNX Runtime / PyTorch": f"{found['onnx'][1] / found['torch'][1]:.2f}",
                    "same bits": "yes" if same else "NO",
                }
            )
    return rows


def sizes(quick: bool) -> Rows:
    """Time per pixel and peak memory by image size."""
    cases: list[tuple[str, tuple[int, ...]]] = [
        *(("paper", (3, n, n)) for n in (32, 64, 128, 256, 512, 1024)),
        *(("seam", (3, n, n)) for n in (32, 64, 128, 256, 512, 1024)),
        *(("paper", (1, n, n, n)) for n in (16, 32, 64)),
        *(("paper", (4, 10**k)) for k in (3, 4, 5, 6, 7)),
    ]
    if quick:
        cases = [("seam", (3, 64, 64)), ("paper", (4, 1000))]
    rows = []
    for preset, shape in cases:
        restorer = made(preset, shape[0], shape[1:])
        pixels = math.prod(shape[1:])
        batch = max(1, 2**18 // pixels)
        images = torch.rand(batch, *shape)
        repeats = 3 if pixels > 10**6 else 7
        found = take_turns({"restore": lambda: restorer(images)}, repeats)["restore"]  # noqa: B023
        rows.append(
            {
                "preset": preset,
                "image": "x".join(map(str, shape)),
                "batch": batch,
                "ns a pixel": f"{1e9 * found[1] / (batch * pixels):.0f}",
                "peak of estimating above the input, MB": f"{peak_memory(*expressions(preset, batch, shape)):.0f}",
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    if not quick:
        for output in (False, True):
            peak = f"{peak_memory(*expressions('seam', 1024, (3, 224, 224)), output):.0f}"
            row = {"preset": "seam", "image": "3x224x224", "batch": 1024, "ns a pixel": "-"}
            what = "peak of restoring above input and output" if output else "peak of estimating above the input"
            rows.append({**row, f"{what}, MB": peak})
    return rows


def expressions(preset: str, batch: int, shape: tuple[int, ...]) -> tuple[str, str]:
    return f"made({preset!r}, {shape[0]}, {shape[1:]!r})", f"torch.rand({batch}, *{shape!r})"


def pages(quick: bool) -> Rows:
    """Scanned pages, 8 bits grey, one at a time, with `pages`: time, and peak memory above the page."""
    sizes = ((1100, 850), (1649, 1166), (3508, 2480), (7016, 4961))
    restorer = unshift.load("pages")
    images = {size: torch.randint(0, 256, (1, 1, *size), dtype=torch.uint8) for size in sizes[: 1 if quick else None]}
    rows = []
    for size, image in images.items():
        found = take_turns({"estimate": lambda: restorer.estimate(image)}, 3 if quick else 31)  # noqa: B023
        peak = peak_memory("unshift.load('pages')", f"torch.randint(0, 256, (1, 1, *{size}), dtype=torch.uint8)")
        rows.append(
            {
                "page": "x".join(map(str, size)),
                "page, MB": f"{image.nbytes / 2**20:.0f}",
                "estimate, ms": milliseconds(found["estimate"]),
                "peak of estimating above the page, MB": f"{peak:.0f}",
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def ties(quick: bool) -> Rows:
    """Images whose positions all tie, compared with ordinary ones: the tie rule takes O(N log N)."""
    rows = []
    for preset in ("paper", "seam"):
        restorer = made(preset, 1, (224, 224))
        kinds = {
            "ordinary": torch.rand(1, 1, 224, 224),
            "constant": torch.full((1, 1, 224, 224), 0.5),
            "noise below the first step": torch.rand(1, 1, 224, 224) * 1e-6,
        }
        steps: dict[str, Step] = {kind: (lambda x=x: restorer(x)) for kind, x in kinds.items()}  # noqa: B023
        found = take_turns(steps, 3 if quick else 7)
        for kind, times in found.items():
            rows.append(
                {
                    "preset": preset,
                    "image, 224x224": kind,
                    "ms": milliseconds(times),
                    "against ordinary": f"{times[1] / found['ordinary'][1]:.2f}",
                }
            )
    return rows
