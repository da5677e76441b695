"""Facts about the running PyTorch: whether a graph is being captured, and whether float32 is plain.

A graph is captured without values, so nothing in it may depend on values or on this machine. A function that needs a
different implementation there names it with :func:`in_graphs`; all other code serves both.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])


# --- captured graphs ----------------------------------------------------------------------------------------------


_dispatch_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
_reset_code: Callable[[types.CodeType], None] = getattr(torch._C._dynamo.eval_frame, "reset_code", lambda code: None)


def is_traced() -> bool:
    """Return whether this thread is capturing a graph.

    PyTorch's own flag is set in all threads while one of them captures. ``torch.compile`` and strict export read this
    code without running it; ``torch.export`` runs it under the dispatch modes of its thread.
    """
    if not torch.compiler.is_compiling():
        return False
    return torch.compiler.is_dynamo_compiling() or _dispatch_modes() > 0


def is_exporting() -> bool:
    """Return whether ``torch.export``, rather than ``torch.compile``, is capturing this graph."""
    if hasattr(torch.compiler, "is_exporting"):
        return torch.compiler.is_exporting()
    return is_traced() and not torch.compiler.is_dynamo_compiling()


def in_graphs(graph_version: Callable[..., Any]) -> Callable[[Function], Function]:
    """Decorate a function so that ``graph_version`` runs in its place while a graph is captured."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def dispatch(*args: Any, **options: Any) -> Any:
            return (graph_version if is_traced() else function)(*args, **options)

        return dispatch  # type: ignore[return-value]

    return decorate


def while_loop(more: Callable[..., Tensor], body: Callable[..., tuple[Tensor, ...]], state: Any) -> Any:
    """Run ``state = body(*state)`` while ``more(*state)`` holds, as one operation of the graph."""
    from torch._higher_order_ops.while_loop import while_loop as loop

    if not torch.compiler.is_dynamo_compiling():
        # PyTorch compiles the loop before it captures it, and limits the number of compilations per process. So clear
        # its cache of this loop; the rest of the cache belongs to the user's functions.
        for inner in loop.__code__.co_consts:
            if isinstance(inner, types.CodeType):
                _reset_code(inner)
    return loop(more, body, tuple(state))


# --- float32 ------------------------------------------------------------------------------------------------------

_ONEDNN: Any = torch.backends.mkldnn
_PLAIN = ("none", "ieee")


def float32_is_plain(device: torch.device) -> bool:
    """Return whether float32 convolutions on ``device`` multiply and add in full precision.

    False where TF32 or bfloat16 may replace it (GPUs, a user's setting, an environment variable that oneDNN reads when
    it is first used), and where oneDNN is off: PyTorch may then choose kernels that are not plain sums of products.
    """
    mode = os.environ.get("ONEDNN_DEFAULT_FPMATH_MODE", "").upper()
    return device.type == "cpu" and _ONEDNN.is_available() and mode in ("", "STRICT") and float32_settings_are_plain()


def float32_settings_are_plain() -> bool:
    """Return the same for the settings alone, which may change at any time. Settings that cannot be read are not plain.

    Before PyTorch 2.9 there is no ``fp32_precision``: then the precision of matrix products is the only setting.
    """
    try:
        parts = (_ONEDNN, getattr(_ONEDNN, "conv", None), getattr(_ONEDNN, "matmul", None))
        return (
            torch._C._get_mkldnn_enabled()
            and all(getattr(part, "fp32_precision", "none") in _PLAIN for part in parts)
            and torch.get_float32_matmul_precision() == "highest"  # last: it raises if one of the others is set
        )
    except (AttributeError, RuntimeError):
        return False
