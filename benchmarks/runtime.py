"""Time ONNX Runtime beside PyTorch on the same images: restored images, shifts and confidences of both.

    python benchmarks/runtime.py [--json FILE] [--threads N] [--repeats N]

``docs/export.md`` shows the table of ``results/benchmark-onnx.json``; ``--json`` with that name renders it anew.

Both take turns within one run, on the same number of threads; the best repeat counts, and the ratio of the two is
what to look at. ``constant`` is a batch of which every image ties at every position. The outputs are compared too.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor

import unshift

ROOT = Path(__file__).resolve().parent.parent
STORED, PAGE = ROOT / "results" / "benchmark-onnx.json", ROOT / "docs" / "export.md"
RESTORERS = ("mnist", "mnist-paper", "cifar10-seam")
BATCHES = (1, 64)


def best(run: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Milliseconds of the fastest of some runs, all kinds in turn."""
    least = dict.fromkeys(run, float("inf"))
    for _ in range(repeats):
        for name, call in run.items():
            start = time.perf_counter()
            call()
            least[name] = min(least[name], 1e3 * (time.perf_counter() - start))
    return least


def measure(name: str, threads: int, repeats: int) -> list[dict[str, object]]:
    restorer = unshift.load(name)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        unshift.export(restorer, path)
        size = path.stat().st_size
        session = onnxruntime.InferenceSession(str(path), options)
    outputs = ["restored", "shift", "confidence"]

    def in_torch(images: Tensor) -> tuple[Tensor, ...]:
        found = restorer.estimate(images)
        return restorer.coordinates.undo(images, found.shift), found.shift, found.confidence

    rows = []
    shape = (restorer.scorer.in_channels, *restorer.trained_on["size"])
    for batch in BATCHES:
        for kind, images in {"random": torch.rand(batch, *shape), "constant": torch.full((batch, *shape), 0.5)}.items():
            pixels = images.numpy()
            found = session.run(outputs, {"images": pixels})
            same = all(torch.equal(torch.from_numpy(a), b) for a, b in zip(found, in_torch(images), strict=True))
            run = {
                "onnx": lambda pixels=pixels: session.run(outputs, {"images": pixels}),
                "torch": lambda images=images: in_torch(images),
            }
            ms = best(run, repeats)
            row = {"restorer": name, "images": kind, "batch": batch, "same": same, "bytes": size}
            rows.append({**row, "onnx_ms": ms["onnx"], "torch_ms": ms["torch"], "ratio": ms["onnx"] / ms["torch"]})
    return rows


def markdown(result: dict) -> str:
    """The table of the page."""
    lines = ["| restorer | images | batch | ONNX Runtime | PyTorch | ratio |", "|---|---|---:|---:|---:|---:|"]
    for row in result["rows"]:
        cells = (row["restorer"], row["images"], row["batch"], f"{row['onnx_ms']:.2f} ms", f"{row['torch_ms']:.2f} ms")
        lines.append("| " + " | ".join(map(str, cells)) + f" | {row['ratio']:.2f} |")
    versions = result["versions"]
    lines += [
        "",
        f"<sub>Best of {result['repeats']}, {result['threads']} thread, both in turn; onnxruntime "
        f"{versions['onnxruntime']}, torch {versions['torch']}, {versions['machine']}.</sub>",
    ]
    return "\n".join(lines)


def rendered(page: str, result: dict) -> str:
    begin, end = "<!-- runtime:begin -->", "<!-- runtime:end -->"
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{markdown(result)}\n{end}", page, flags=re.S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--threads", type=int, default=1, help="threads for both")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = [row for name in RESTORERS for row in measure(name, options.threads, options.repeats)]
    print(f"{'restorer':14s}{'images':10s}{'batch':>5s}{'ONNX Runtime':>15s}{'PyTorch':>13s}{'ratio':>8s}  same")
    for row in rows:
        print(
            f"{row['restorer']:14s}{row['images']:10s}{row['batch']:5d}{row['onnx_ms']:12.2f} ms"
            f"{row['torch_ms']:10.2f} ms{row['ratio']:8.2f}  {row['same']}"
        )
    same = all(row["same"] for row in rows)
    if options.json:
        versions = {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__}
        versions |= {"python": platform.python_version(), "machine": platform.machine()}
        setting = {"threads": options.threads, "repeats": options.repeats, "versions": versions}
        result = {"same": same, "rows": rows, **setting}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
        if options.json.resolve() == STORED:
            PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
