"""How an exception or a warning becomes one line on stderr, and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from unshift.cli.processes import label, together


class Group(TyperGroup):
    """The commands, and the one place where an exception becomes one line and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run and exit; ``standalone_mode`` would print usage errors as a box."""
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except Exception as error:
            code = report(error, debug=False)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; here ``--debug`` is known."""
        from unshift.progress import never_silent

        # A server runs until it is stopped: it is not at work.
        name = lambda: None if ctx.invoked_subcommand == "demo" else ctx.invoked_subcommand  # noqa: E731
        with never_silent(name), warnings.catch_warnings():
            warnings.showwarning = _show
            warnings.simplefilter("ignore", DeprecationWarning)  # of PyTorch's parts, for us to act on
            try:
                with together():
                    result = super().invoke(ctx)
                    if sys.stdout is not None:  # it is where the command was started without one
                        sys.stdout.flush()  # a closed pipe shows here, not in the interpreter's last moments
                    return result
            except (Exception, KeyboardInterrupt) as error:
                raise typer.Exit(report(error, ctx.params["debug"])) from error


def report(error: BaseException, debug: bool) -> int:
    """Print ``error`` in one line and return the exit code; raise what is a bug, with its traceback."""
    code, message = 2, str(error)
    if isinstance(error, BrokenPipeError):  # `unshift models | head -1`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        code, message = 130, "interrupted"
    elif hasattr(error, "format_message"):  # a usage error of the parser
        message = error.format_message()
    elif not isinstance(error, ValueError | OSError):
        raise error
    if debug:
        traceback.print_exception(error)
    _line("error", message)
    return code


def warn(message: str) -> None:
    """Print a warning, if this is the process that tells."""
    if not label():
        _line("warning", message)


def first_line(error: BaseException) -> str:
    """Return the line of an error that tells most: TorchScript's comes last, after its traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("RuntimeError: ")]
    return (told or lines or [type(error).__name__])[0].removeprefix("RuntimeError: ")


def _show(message: Warning | str, *_: Any, **__: Any) -> None:
    """Stand in for ``warnings.showwarning``."""
    warn(str(message))


def _line(kind: str, message: str) -> None:
    print(f"unshift: {kind}: {label()}{' '.join(message.split())}", file=sys.stderr)
