"""``python -m unshift`` is ``unshift``: what ``torchrun -m`` wants."""

from unshift.cli import main

main()
