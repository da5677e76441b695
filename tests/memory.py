"""The peak memory of a new process."""

from __future__ import annotations

import subprocess
import sys

from fits import ENVIRONMENT

WATCH = (
    "import resource, subprocess, sys; run = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE);"
    "sys.stdout.buffer.write(run.stdout); sys.stdout.flush();"
    "print('\\n', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024); sys.exit(run.returncode)"
)


def peak(*arguments: object) -> tuple[int, str]:
    """Run Python with these arguments; return its peak memory in MB and its output.

    A small process starts it, because Linux counts the memory of the starting process towards the peak, and a process
    that runs tests holds gigabytes.
    """
    command = [sys.executable, "-c", WATCH, sys.executable, *map(str, arguments)]
    run = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    output, megabytes = run.stdout.rsplit("\n", 2)[0], run.stdout.split()[-1]
    return int(megabytes), output
