"""The ``unshift`` command.

Exit codes: 0 done, 1 a check failed (``verify`` found a mismatch), 2 bad input or usage, 130 Ctrl-C.
Errors are one line on stderr; results go to stdout, as text or (``--json``) as JSON and nothing else.
PyTorch is imported inside the commands: ``--help`` must not wait for it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from unshift import __version__
from unshift.cli import calibrate, data, demo, evaluate, export, fit, models, reproduce, restore, verify
from unshift.cli.errors import Group

__all__ = ["app", "main"]

app = typer.Typer(
    cls=Group,
    name="unshift",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def unshift(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="UNSHIFT_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Undo the pose of an image (its shift, turn or rotation) before any frozen classifier sees it.

    \b
    See it work, on digits that come with the package, in about a minute:
      unshift reproduce
    Make a restorer for your own images, and use it:
      unshift fit photos/ --preset seam --size 64 --out photos.safetensors
      unshift restore shifted/ --restorer photos.safetensors --out restored/
    Measure what your own classifier gains, and check the promise of exactness:
      unshift evaluate --data mnist --restorer mnist --classifier lenet5-mnist
      unshift verify --data mnist --restorer mnist

    Every command has its own --help with examples.
    """
    if version:
        print(f"unshift {__version__}")
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help())


# In the order in which --help lists them, each with its docstring; its own --help is the docstring of its module.
for module in (reproduce, fit, evaluate, calibrate, restore, verify, models, export, demo):
    name = module.__name__.rpartition(".")[2]
    command = getattr(module, name)
    app.command(name, help=module.__doc__, short_help=command.__doc__)(command)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command line: the entry point ``unshift``."""
    app(prog_name="unshift")
