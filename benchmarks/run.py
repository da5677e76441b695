"""Measure speed and memory, always as ratios within one run.

    python benchmarks/run.py [SECTION...] [--threads N] [--quick]

Writes ``results/benchmarks.json`` and renders it into ``docs/benchmarks.md``; sections that are not named stay as they
were. Contenders take turns, so that whatever else the machine does hits all alike; medians, with the quartiles beside
them. Peak memory is measured in a process of its own, above what its input and output take.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import unshift
from unshift.coordinates import Turns
from unshift.exact import integers
from unshift.experiments import architectures
from unshift.experiments.classifiers import shipped

ROOT = Path(__file__).resolve().parent.parent
STORED, PAGE = ROOT / "results" / "benchmarks.json", ROOT / "docs" / "benchmarks.md"
Step = Callable[[], object]
Rows = list[dict[str, Any]]


def take_turns(contenders: dict[str, Step], repeats: int) -> dict[str, list[float]]:
    """Return each contender's seconds: lower quartile, median, upper quartile."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for step in contenders.values():
        step()
        step()
    for _ in range(repeats):
        for name, step in contenders.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.quantiles(found, n=4) for name, found in times.items()}


def milliseconds(quartiles: list[float]) -> str:
    low, middle, high = (1000 * q for q in quartiles)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _seam(channels: int, size: tuple[int, ...]) -> unshift.Restorer:
    torch.manual_seed(0)
    net = unshift.ShiftEstimator.preset("seam", channels, size)
    return unshift.Restorer(unshift.quantise(net, torch.rand(4, channels, *size))).eval()


def _preset(preset: str, channels: int, size: tuple[int, ...], coordinates: Any = None) -> unshift.Restorer:
    torch.manual_seed(0)
    net = unshift.ShiftEstimator.preset(preset, channels, size)
    return unshift.Restorer(unshift.quantise(net, torch.rand(4, channels, *size)), coordinates=coordinates).eval()


def classifiers(quick: bool) -> Rows:
    """A restorer against the classifier it protects: the share of the classifier's own time that it adds."""
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 3, 8, 8), *architectures.ResNet18())  # CIFAR's form behind a stem of stride 8
    pairs: list[tuple[str, Any, str, Any, tuple[int, ...]]] = [
        ("mnist", unshift.load("mnist"), "LeNet-5", shipped()["lenet5-mnist"](), (1, 32, 32)),
        ("mnist-paper", unshift.load("mnist-paper"), "LeNet-5", shipped()["lenet5-mnist"](), (1, 32, 32)),
        ("cifar10-seam", unshift.load("cifar10-seam"), "ResNet-20", shipped()["resnet20-cifar10-plain"](), (3, 32, 32)),
        ("cifar10", unshift.load("cifar10"), "ResNet-18", architectures.ResNet18(), (3, 40, 40)),
        ("seam, untrained", _seam(3, (224, 224)), "ResNet-18 behind a stem of stride 8", stem, (3, 224, 224)),
    ]
    rows = []
    for name, restorer, called, net, shape in pairs:
        for batch in (1, 8) if quick else (1, 64, 256):
            if batch * math.prod(shape) > 64 * 3 * 224 * 224:
                continue
            images = torch.rand(batch, *shape)
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


def turns(quick: bool) -> Rows:
    """``Turns`` against ``Canvas`` with the same network: it may cost as many times more as there are copies."""
    rows = []
    for group, copies, shape in (("mirror", 2, (1, 32, 32)), ("quarter", 4, (1, 32, 32)), ("flips", 8, (1, 32, 32))):
        for preset in ("paper", "dense"):
            turned, plain = (_preset(preset, 1, (32, 32), c) for c in (Turns(group), None))
            images = torch.rand(64, *shape)
            found = take_turns({"turns": lambda: turned(images), "canvas": lambda: plain(images)}, 3 if quick else 15)  # noqa: B023
            ratio = found["turns"][1] / found["canvas"][1]
            rows.append({"group": group, "preset": preset, "copies": copies, "Turns / Canvas": f"{ratio:.2f}"})
    return rows


def onnx(quick: bool) -> Rows:
    """PyTorch against ONNX Runtime, the same restorer on the same images, the same number of threads."""
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


def _measure_memory(preset: str, count: int, shape: tuple[int, ...]) -> float:
    """Return the peak in MB above the input and output of restoring ``count`` images in one call."""
    code = (
        'import resource, torch, json, sys; sys.path.insert(0, "benchmarks"); from run import _preset;'
        f"torch.set_num_threads({torch.get_num_threads()}); r = _preset({preset!r}, {shape[0]}, {shape[1:]!r});"
        f"r(torch.rand(1, *{shape!r}));"
        f"x = torch.rand({count}, *{shape!r}); y = torch.empty_like(x).fill_(1.0); del y;"
        "a = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; y = r(x);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - a)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def sizes(quick: bool) -> Rows:
    """Time a pixel and peak memory as images grow."""
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
        restorer = _preset(preset, shape[0], shape[1:])
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
                "peak above input and output, MB": f"{_measure_memory(preset, batch, shape):.0f}",
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    if not quick:
        peak = _measure_memory("seam", 1024, (3, 224, 224))
        row = {"preset": "seam", "image": "3x224x224", "batch": 1024, "ns a pixel": "-"}
        rows.append({**row, "peak above input and output, MB": f"{peak:.0f}"})
    return rows


class _Naive(nn.Sequential):
    """The paper's network as one would write it: six circular convolutions of kernel 9."""

    def __init__(self) -> None:
        layers = [nn.Conv2d(1, 1, 9, padding=4, padding_mode="circular", bias=False) for _ in range(6)]
        super().__init__(*[part for layer in layers[:-1] for part in (layer, nn.ReLU())], layers[-1])


def epoch(quick: bool) -> Rows:
    """One epoch of the paper's network on MNIST, batch 256: ours against ``nn.Conv2d(padding_mode="circular")``."""
    images = torch.rand(256 * (2 if quick else 8), 1, 32, 32)

    def train(net: nn.Module) -> Step:
        optimizer = torch.optim.Adam(net.parameters())

        def step() -> None:
            for batch in images.split(256):
                loss = F.cross_entropy(net(batch).flatten(1), torch.zeros(len(batch), dtype=torch.int64))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        return step

    torch.manual_seed(0)
    ours = unshift.ShiftEstimator.preset("paper", 1, (32, 32))
    found = take_turns({"ours": train(ours), "naive": train(_Naive())}, 2 if quick else 5)
    before = resource.getrusage(resource.RUSAGE_SELF)
    step = train(ours)
    for _ in range(3):
        step()
    after = resource.getrusage(resource.RUSAGE_SELF)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return [
        {
            "images": len(images),
            "ours, ms": milliseconds(found["ours"]),
            "nn.Conv2d, ms": milliseconds(found["naive"]),
            "nn.Conv2d / ours": f"{found['naive'][1] / found['ours'][1]:.1f}",
            "system time / user time": f"{system / user:.2f}",
        }
    ]


def limit(quick: bool) -> Rows:
    """Useful multiply-adds a second, as a share of what a large float32 matrix product reaches on these threads."""
    n = 512 if quick else 1536
    a, b = torch.rand(n, n), torch.rand(n, n)
    rows = []
    for name, batch in (("mnist-paper", 256), ("cifar10", 64), ("cifar10-seam", 64)):
        restorer: Any = unshift.load(name)
        shape = (restorer.scorer.in_channels, *restorer.trained_on["size"])
        images = torch.rand(batch, *shape)
        local = [layer.weight[0].numel() * len(layer.weight) for layer in restorer.scorer.local]
        lines = [sum(layer.weight.numel() for layer in line) for line in restorer.scorer.lines]
        work = sum(local) * math.prod(shape[1:]) + sum(w * n for w, n in zip(lines, shape[1:], strict=False))
        found = take_turns({"restore": lambda: restorer(images), "matrix": lambda: a @ b}, 3 if quick else 15)  # noqa: B023
        ours, most = batch * work / found["restore"][1], n**3 / found["matrix"][1]
        rows.append(
            {
                "restorer": name,
                "batch": batch,
                "multiply-adds an image": f"{work:,}",
                "billion a second": f"{ours / 1e9:.2f}",
                "matrix product, billion a second": f"{most / 1e9:.1f}",
                "share": f"{100 * ours / most:.0f}%",
            }
        )
    return rows


def ties(quick: bool) -> Rows:
    """Images all of whose positions tie, against ordinary ones: the tie rule is O(N log N)."""
    rows = []
    for preset in ("paper", "seam"):
        restorer = _preset(preset, 1, (224, 224))
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


def blocks(quick: bool) -> Rows:
    """Time to restore by how many bytes of a map are worked on at a time (``unshift.exact.integers.BLOCK``)."""
    cases = {"mnist": (256, 1, 32, 32), "mnist-paper": (256, 1, 32, 32), "cifar10-seam": (64, 3, 32, 32)}
    rows, usual = [], integers.BLOCK
    for power in (18, 20) if quick else (17, 18, 19, 20, 21, 22, 24):
        integers.BLOCK = 2**power
        row: dict[str, Any] = {"bytes": f"2^{power}{' (used)' if 2**power == usual else ''}"}
        for name, shape in cases.items():
            restorer, images = unshift.load(name), torch.rand(*shape)
            found = take_turns({"restore": lambda: restorer(images)}, 3 if quick else 9)  # noqa: B023
            row[f"{name}, batch {shape[0]}, ms"] = milliseconds(found["restore"])
        rows.append(row)
    integers.BLOCK = usual
    return rows


def kernels(quick: bool) -> Rows:
    """Measured nanoseconds a pixel of every kernel beside the estimate that chooses among them; one thread."""
    from unshift.exact.kernels import KERNELS, Task

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    shapes = [
        ((1, 1, 9, 9), (32, 32), 32),
        ((1, 3, 9, 9), (40, 40), 16),
        ((1, 1, 9, 9), (512, 512), 1),
        ((24, 3, 3, 3), (32, 32), 8),
        ((8, 1, 32, 32), (32, 32), 8),
        ((1, 8, 32, 32), (32, 32), 8),
        ((64, 64, 9), (32,), 64),
    ]
    rows = []
    for shape, size, batch in shapes[: 2 if quick else None]:
        weight = torch.randint(-9, 10, shape)
        task = Task(shape, size, worst=1000.0 * float(weight.abs().flatten(1).sum(1).max()))
        row: dict[str, Any] = {"filters": "x".join(map(str, shape)), "image": "x".join(map(str, size))}
        for kernel in KERNELS:
            if kernel.holds(task):
                made = kernel(weight, task)
                images = torch.randint(0, 1000, (batch, shape[1], *size)).to(kernel.dtype)
                found = take_turns({"run": lambda: made(images, False)}, 3 if quick else 9)["run"]  # noqa: B023
                measured = 1e9 * found[1] / (batch * math.prod(size))
                row[f"{kernel.__name__}, ns (estimate)"] = f"{measured:.0f} ({kernel.cost(task):.0f})"
        rows.append(row)
    torch.set_num_threads(threads)
    return rows


SECTIONS = (classifiers, turns, onnx, sizes, epoch, limit, ties, blocks, kernels)


def table(rows: Rows) -> str:
    heads = list(dict.fromkeys(key for row in rows for key in row))
    lines = [heads, ["---"] * len(heads), *([str(row.get(head, "-")) for head in heads] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def render(stored: dict[str, Any]) -> str:
    parts = [
        "# Benchmarks\n\nRendered from `results/benchmarks.json` by `python benchmarks/run.py`. Contenders take turns "
        "within one run, so the ratios hold where the milliseconds do not: medians, with the quartiles in brackets.\n"
    ]
    for section in SECTIONS:
        if found := stored.get(section.__name__):
            about = f"{found['threads']} threads, torch {found['torch']}, {found['machine']}, {found['seconds']:.0f} s"
            parts.append(
                f"## {section.__name__}\n\n{section.__doc__}\n\n{table(found['rows'])}\n\n<sub>{about}</sub>\n"
            )
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [section.__name__ for section in SECTIONS]
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="a look, not a result: nothing is written")
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - set(names):
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(names)}")
    torch.set_num_threads(arguments.threads)
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    for section in SECTIONS:
        if arguments.sections and section.__name__ not in arguments.sections:
            continue
        start = time.monotonic()
        rows = section(arguments.quick)
        print(f"\n{section.__name__}: {section.__doc__}\n\n{table(rows)}\n", flush=True)
        stored[section.__name__] = {
            "rows": rows,
            "threads": arguments.threads,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "seconds": time.monotonic() - start,
        }
        if not arguments.quick:
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
            PAGE.write_text(render(stored))


if __name__ == "__main__":
    main()
