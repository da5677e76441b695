"""The ``unshift`` command.

Exit codes: 0 success, 1 a check failed (``verify`` found a mismatch), 2 bad input or usage, 130 Ctrl-C.
An error is one line on stderr. Results go to stdout, as text or, with ``--json``, as JSON only.
PyTorch is imported inside the commands, so that ``--help`` is fast.
"""

from __future__ import annotations

import io
import signal
import sys
from typing import Annotated

import typer

from unshift import __version__
from unshift.cli import calibrate, data, demo, evaluate, export, fit, models, orient, restore, verify
from unshift.cli.errors import Group, report_error
from unshift.cli.options import Command

__all__ = ["app", "main"]

app = typer.Typer(
    cls=Group,
    name="unshift",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def unshift(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar="UNSHIFT_DEBUG", help="Show tracebacks.")] = False,
) -> None:
    """Undo the pose of an image (its shift, turn or rotation) before a frozen classifier sees it.

    \b
    Try it on the digits that come with the package (about a minute):
      unshift evaluate
    Measure the gain for your own classifier and images:
      unshift evaluate photos/ --restorer photos.safetensors --classifier resnet.pt2 --report report/
    Train a restorer on your own images, and use it:
      unshift fit photos/ --preset seam --size 64 --out photos.safetensors
      unshift restore shifted/ --restorer photos.safetensors --out restored/
    Check that it is exact:
      unshift verify mnist-10k --restorer mnist

    Every command has its own --help with examples.
    """
    if version:
        print(f"unshift {__version__}")
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help())


# In the order of --help, which shows the functions' docstrings; each command's own --help is its module's docstring.
for module in (evaluate, fit, restore, orient, verify, calibrate, models, export, demo):
    name = module.__name__.rpartition(".")[2]
    command = getattr(module, name)
    app.command(name, cls=Command, help=module.__doc__, short_help=command.__doc__)(command)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names need not be text
    try:
        app(prog_name="unshift")
    except KeyboardInterrupt as error:  # outside Group.main
        sys.exit(report_error(error, debug=False))
    finally:
        # From here on, Ctrl-C would end the process by signal, without the exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
