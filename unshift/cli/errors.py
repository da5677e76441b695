"""Turn an exception or a warning into one line on stderr and an exit code."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import traceback
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from unshift.cli.processes import joined_ranks, rank_prefix


class Group(TyperGroup):
    """A group of commands that prints an exception as one line and exits with a code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run and exit, without Typer's own printing of errors (``standalone_mode``)."""
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except (Exception, KeyboardInterrupt) as error:
            code = report_error(error, debug=False)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the command and report its errors. Here, unlike in :meth:`main`, the value of ``--debug`` is known."""
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: warn(str(message))
            warnings.simplefilter("ignore", DeprecationWarning)  # those of PyTorch are for developers
            try:
                with joined_ranks():
                    result = super().invoke(ctx)
                    if sys.stdout is not None:  # None if the command was started without a stdout
                        sys.stdout.flush()  # a closed pipe raises here, not when the interpreter exits
                    return result
            except (Exception, KeyboardInterrupt) as error:
                raise typer.Exit(report_error(error, ctx.params["debug"])) from error


def report_error(error: BaseException, debug: bool) -> int:
    """Print ``error`` in one line and return the exit code. Raise it again if it is a bug."""
    code, message = 2, str(error)
    if isinstance(error, BrokenPipeError):  # the reader has closed the pipe, as in `unshift models | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        code, message = 130, "interrupted"
    elif hasattr(error, "format_message"):  # a usage error of the parser
        message = error.format_message()
    elif not isinstance(error, ValueError | OSError):
        raise error
    elif getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        message = f"the disk is full: cannot write {getattr(error, 'filename', None) or 'the output'}"
    if debug:
        traceback.print_exception(error)
    _print_line("error", message)
    return code


def raise_interrupts() -> None:
    """Let Ctrl-C raise ``KeyboardInterrupt`` from now on, unless it is ignored; see :mod:`unshift.__main__`."""
    if callable(signal.getsignal(signal.SIGINT)):
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, signal.default_int_handler)


def warn(message: str) -> None:
    """Print a warning, if this is the first process of the run."""
    if not rank_prefix():
        _print_line("warning", message)


def first_line(error: BaseException) -> str:
    """Return the line of an error that names its cause: for TorchScript the last, after its traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("RuntimeError: ")]
    return (causes or lines or [type(error).__name__])[0].removeprefix("RuntimeError: ")


def _print_line(kind: str, message: str) -> None:
    print(f"unshift: {kind}: {rank_prefix()}{' '.join(message.split())}", file=sys.stderr)
