"""``python -m unshift.cli`` is ``unshift``."""

from unshift.cli import main

main()
