"""The command ``unshift``, also run as ``python -m unshift``, and by ``torchrun -m``."""

import os
import signal


def main() -> None:
    """Run the command line. While it starts, Ctrl-C ends the process at once.

    An exception would print a traceback, or be swallowed by one of PyTorch's optional imports.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    from unshift.cli import main as run

    run()


def _stop(*_: object) -> None:
    os.write(2, b"unshift: error: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
