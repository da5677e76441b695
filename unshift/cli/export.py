"""Write a restorer, and a classifier behind it, to one self-contained file.

An .onnx file runs with onnxruntime alone, in Python, C++, Java or a browser. It takes any number of images (batch,
channel, height, width), float32 in 0..1, of one size: that of the training images, or --image-size if the restorer
takes any size.

Its outputs are "restored", "shift", "confidence", "tied" and, if the restorer estimates them, "turn" and "angle", with
the same bits as in PyTorch. --classifier adds "logits", --min-confidence adds "rejected" (true for images that stay
unchanged), and --scores adds "scores".

\b
Examples:
  unshift export --restorer mnist --classifier lenet5-mnist --out digits.onnx
  unshift export --restorer cifar10 --pad 4 --classifier resnet.pt2 --out photos.onnx
  unshift export --restorer mnist --out mnist.pt2
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from unshift.cli import options
from unshift.cli.classifiers import load_classifier
from unshift.cli.outputs import check_output, file_size, print_json
from unshift.cli.prepared_data import takes_any_size


def export(
    restorer: options.Model,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .onnx, or .pt2 for torch.export.")],
    classifier: options.Classifier = None,
    image_shape: Annotated[
        Any, typer.Option("--image-size", parser=options.read_size, metavar="N|HxW", help="Size of the images.")
    ] = None,
    pad: options.Pad = None,
    min_confidence: options.MinConfidence = None,
    scores: Annotated[bool, typer.Option("--scores", help="Return the score of every pose as well.")] = False,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a restorer as one ONNX or torch.export file."""
    check_output(out, force)
    from unshift.exporting import OPSET
    from unshift.exporting import export as write
    from unshift.files import load
    from unshift.shifts import format_size

    model = load(restorer, pad=pad, min_confidence=min_confidence)
    network = load_classifier(classifier) if classifier else None
    # PyTorch's exporters log, warn and print graphs. The command silences them; the library does not.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stderr(io.StringIO()):
        write(model, out, classifier=network, size=image_shape, scores=scores, name=Path(restorer).stem)
    channels, size = model.image_shape(image_shape)
    assert size is not None  # else the file could not be written
    length, opset = out.stat().st_size, None if out.suffix.lower() == ".pt2" else OPSET
    if as_json:
        about = {"file": str(out), "bytes": length, "restorer": restorer, "classifier": classifier}
        print_json({**about, "channels": channels, "size": list(size), "opset": opset})
        return
    kind = f"ONNX, opset {opset}" if opset else "a torch.export program"
    models = f"{restorer} and {classifier}" if classifier else restorer
    hint = " (--image-size for another)" if takes_any_size(model) and image_shape is None else ""
    takes = f"takes images of {format_size(size)}{hint}, {channels} channel(s)"
    print(f"{out}: {models}, {kind}, {file_size(length)}; {takes}")
