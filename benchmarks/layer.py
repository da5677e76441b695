"""Time the circular-filter layer: FFT against nn.Conv2d, and both of its methods over many shapes.

    python benchmarks/layer.py [--json FILE] [--threads N] [--repeats N]

Claim: on 256 images of 1x32x32 with kernel 9, the layer is at least 10 times faster, forward and
backward together, than ``nn.Conv2d(padding_mode="circular")``. The contenders take turns within one
run and the best repeat of each counts, so that whatever else the machine does hits both alike.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from unshift.circular import CircularFilter, circular_correlation, faster_method

METHODS = ("fft", "direct")
CLAIM = 10.0

SHAPES = [  # (batch, in, out, spatial size, kernel)
    (256, 1, 1, (32, 32), (9, 9)),
    (256, 1, 1, (32, 32), (3, 3)),
    (64, 1, 8, (32, 32), (32, 32)),
    (64, 8, 1, (32, 32), (32, 32)),
    (64, 3, 16, (32, 32), (5, 5)),
    (64, 16, 16, (32, 32), (5, 5)),
    (4, 3, 16, (224, 224), (5, 5)),
    (4, 1, 1, (224, 224), (9, 9)),
    (256, 32, 32, (32,), (9,)),
    (64, 32, 32, (224,), (9,)),
    (16, 1, 1, (16, 16, 16), (5, 5, 5)),
]

Step = Callable[[], object]


def best_of(contenders: dict[str, Step], repeats: int) -> dict[str, float]:
    """Return the best time of each in seconds; in each repeat every contender has its turn."""
    best = dict.fromkeys(contenders, float("inf"))
    for step in contenders.values():
        step()
    for _ in range(repeats):
        for name, step in contenders.items():
            start = time.perf_counter()
            step()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def backward_of(run: Callable[[Tensor], Tensor], images: Tensor, upstream: Tensor) -> Step:
    return lambda: run(images).backward(upstream)


def against_conv2d(repeats: int) -> dict[str, float]:
    """Time the paper's layer, 256 images of 1x32x32 and kernel 9, in milliseconds."""
    images = torch.randn(256, 1, 32, 32, requires_grad=True)
    upstream = torch.randn(256, 1, 32, 32)
    layer = CircularFilter(1, 1, (9, 9))
    assert faster_method(layer.weight.shape, (32, 32)) == "fft"
    conv = nn.Conv2d(1, 1, 9, padding=4, padding_mode="circular")
    conv.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(images), conv(images), rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        forward = best_of({"layer": lambda: layer(images), "conv2d": lambda: conv(images)}, repeats)
    steps = {"layer": backward_of(layer, images, upstream), "conv2d": backward_of(conv, images, upstream)}
    both = best_of(steps, repeats)
    return {
        "forward_layer_ms": 1e3 * forward["layer"],
        "forward_conv2d_ms": 1e3 * forward["conv2d"],
        "forward_ratio": forward["conv2d"] / forward["layer"],
        "forward_backward_layer_ms": 1e3 * both["layer"],
        "forward_backward_conv2d_ms": 1e3 * both["conv2d"],
        "forward_backward_ratio": both["conv2d"] / both["layer"],
    }


def over_shapes(repeats: int) -> list[dict[str, object]]:
    """Time both methods, forward and backward, and say which one the layer picks."""
    rows = []
    for batch, inputs, outputs, size, kernel in SHAPES:
        images = torch.randn(batch, inputs, *size, requires_grad=True)
        weight = torch.randn(outputs, inputs, *kernel, requires_grad=True)
        upstream = torch.randn(batch, outputs, *size)

        def step(method, images=images, weight=weight, upstream=upstream):
            return lambda: circular_correlation(images, weight, method).backward(upstream)

        start = time.perf_counter()
        step("direct")()
        turns = max(1, min(repeats, int(1.0 / (time.perf_counter() - start))))  # slow shapes get fewer turns
        times = best_of({method: step(method) for method in METHODS}, turns)
        rows.append(
            {
                "batch": batch,
                "in": inputs,
                "out": outputs,
                "size": list(size),
                "kernel": list(kernel),
                "fft_ms": 1e3 * times["fft"],
                "direct_ms": 1e3 * times["direct"],
                "faster": min(times, key=lambda method: times[method]),
                "picked": faster_method(weight.shape, size),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--threads", type=int, help="threads for torch (default: its own choice)")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    paper = against_conv2d(options.repeats)
    print("256 images of 1x32x32, kernel 9        layer   nn.Conv2d   ratio")
    for what in ("forward", "forward_backward"):
        layer, conv, ratio = (paper[f"{what}_{part}"] for part in ("layer_ms", "conv2d_ms", "ratio"))
        print(f"{what.replace('_', ' + '):30s} {layer:10.2f} ms {conv:8.2f} ms {ratio:6.1f}x")
    held = paper["forward_backward_ratio"] >= CLAIM
    print(f"at least {CLAIM:.0f}x forward + backward: {'yes' if held else 'NO'}\n")

    rows = over_shapes(options.repeats)
    print(f"{'batch':>5s} {'in':>3s} {'out':>3s} {'size':>14s} {'kernel':>12s} {'fft':>10s} {'direct':>10s}  picked")
    for row in rows:
        size, kernel = ("x".join(map(str, row[key])) for key in ("size", "kernel"))
        note = "" if row["picked"] == row["faster"] else "  (the other is faster here)"
        print(
            f"{row['batch']:5d} {row['in']:3d} {row['out']:3d} {size:>14s} {kernel:>12s} "
            f"{row['fft_ms']:7.2f} ms {row['direct_ms']:7.2f} ms  {row['picked']}{note}"
        )

    if options.json:
        versions = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()}
        setting = {"threads": torch.get_num_threads(), "repeats": options.repeats, "versions": versions}
        found = {"claim": CLAIM, "held": held, "layer": paper, "methods": rows, **setting}
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    raise SystemExit(0 if held else 1)


if __name__ == "__main__":
    main()
