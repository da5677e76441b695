"""Write a restorer, and a classifier behind it, to one self-contained file.

An .onnx file runs with onnxruntime alone, in Python, C++, Java or a browser. It takes any number of images (batch,
channel, height, width), float32 in 0..1. It returns restored, shift, confidence and tied, and where the restorer reads
them turn and angle: the same bits as PyTorch, tied images included. With --classifier it also returns logits; with
--min-confidence also doubtful, which marks the images that pass unchanged. --size is for restorers that take any
size: a file is for images of one size, by default that of the training images. What is printed at the end names it.

\b
Examples:
  unshift export --restorer mnist --classifier lenet5-mnist --out digits.onnx
  unshift export --restorer cifar10 --pad 4 --classifier resnet.pt2 --out photos.onnx
  unshift export --restorer mnist --out mnist.pt2
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unshift.cli.classifiers import load_classifier
from unshift.cli.options import Classifier, Force, Json, MinConfidence, Model, Pad, read_size
from unshift.cli.outputs import check_folder
from unshift.cli.printing import file_size, image_size, print_json


def export(
    restorer: Model,
    out: Annotated[Path, typer.Option("--out", help="File to write: .onnx, or .pt2 for torch.export.")],
    classifier: Classifier = None,
    size: Annotated[
        Any, typer.Option(parser=read_size, metavar="N|HxW", help="Size of the images, where the restorer takes any.")
    ] = None,
    pad: Pad = None,
    min_confidence: MinConfidence = 0.0,
    scores: Annotated[bool, typer.Option("--scores", help="Return the map of scores as well.")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a restorer as one ONNX or torch.export file."""
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; give the name of a file in it")
    if out.exists() and not force:
        raise ValueError(f"{out} exists; --force overwrites it")
    check_folder(out.parent)
    from unshift.exporting import OPSET
    from unshift.exporting import export as write
    from unshift.weights import image_shape, load

    model = load(restorer, pad=pad, min_confidence=min_confidence)
    net = load_classifier(classifier) if classifier else None
    write(model, out, classifier=net, size=size, scores=scores, name=Path(restorer).stem)
    channels, shown = image_shape(model, size)
    assert shown is not None  # else it could not be written
    size_in_bytes, opset = out.stat().st_size, None if out.suffix.lower() == ".pt2" else OPSET
    if as_json:
        about = {"file": str(out), "bytes": size_in_bytes, "restorer": restorer, "classifier": classifier}
        print_json({**about, "channels": channels, "size": list(shown), "opset": opset})
    else:
        kind = f"ONNX, opset {opset}" if opset else "a torch.export program"
        any_size = not any(stage.scorer.size for stage in model.stages)
        other = " (--size for another)" if any_size and size is None else ""
        what = f"{restorer}{f' and {classifier}' if classifier else ''}, {kind}, {file_size(size_in_bytes)}"
        print(f"{out}: {what}; takes images of {image_size(shown)}{other}, {channels} channel(s)")
