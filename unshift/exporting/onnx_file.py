"""A captured program as the bytes of one ONNX file."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

OPSET = 18
"""The version of ONNX's operators that files are written in."""

LARGEST = 2**31 - 1
"""A file of ONNX holds no more bytes; beyond them weights would need files of their own."""


def check_onnx() -> None:
    """Raise a ``ValueError`` that names the extra, unless what writes ONNX is installed."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "to write ONNX takes the packages onnx and onnxscript, the extra 'onnx': pip install 'unshift[onnx]', "
            "or in a copy of the repository '.[onnx]'"
        ) from error


def as_onnx(
    captured: ExportedProgram, names: Sequence[str], about: Mapping[str, str], script: Any, shape: Sequence[int]
) -> bytes:
    """Write ``captured``, whose outputs are ``names``, and ``script``, a classifier of ``shape``, behind it."""
    given = [name for name in names if script is None or name != "logits"]
    with quiet():
        try:
            made = torch.onnx.export(
                captured, dynamo=True, opset_version=OPSET, verbose=False, input_names=["images"], output_names=given
            )
            assert made is not None
            proto = made.model_proto
            if script is not None:
                proto = _with_script(proto, script, names, shape)
        except Exception as error:  # the exporter raises what its many parts do
            raise ValueError(f"torch.onnx cannot write this as ONNX: {first_line(error)}") from error
    assert not proto.functions
    _strip(proto.graph, proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param)
    proto.producer_name, proto.doc_string = "unshift", about["promise"]
    del proto.metadata_props[:]
    for key, value in about.items():
        proto.metadata_props.add(key=key, value=value)
    if proto.ByteSize() > LARGEST:
        raise ValueError("with this classifier the file would exceed 2 GB, the most that one file of ONNX can hold")
    return bytes(proto.SerializeToString())


def _with_script(proto: Any, script: Any, names: Sequence[str], shape: Sequence[int]) -> Any:
    """Put a TorchScript classifier behind the graph: ``torch.export`` cannot see into one, the older exporter can."""
    import onnx
    from onnx import compose

    buffer = io.BytesIO()
    axes = {"restored": {0: "batch"}, "logits": {0: "batch"}}
    torch.onnx.export(
        script,
        (torch.zeros(3, *shape),),
        buffer,  # type: ignore[arg-type]  # any file will do for the older exporter
        dynamo=False,
        opset_version=OPSET,
        input_names=["restored"],
        output_names=["logits"],
        dynamic_axes=axes,
    )
    behind = onnx.load_from_string(buffer.getvalue())
    behind.ir_version = proto.ir_version
    behind = compose.add_prefix(behind, "classifier/", rename_outputs=False)
    merged = compose.merge_models(proto, behind, io_map=[("restored", "classifier/restored")], outputs=list(names))
    merged.graph.output.sort(key=lambda output: names.index(output.name))
    return merged


def _strip(graph: Any, batch: str) -> None:
    """Drop what the exporter notes at each node, such as the paths of whoever made it, and call the batch by name."""
    del graph.value_info[:]  # shapes along the way: any runtime infers them
    for part in (graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == batch:
                dim.dim_param = "batch"
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _strip(attribute.g, batch)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what the exporters say of themselves, for their own authors, from the user."""
    before, nowhere = logging.root.manager.disable, io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error goes back to: exporters wrap it in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
