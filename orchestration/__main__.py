"""`python -m orchestration` is `toolmill`."""

from orchestration.cli import main

main()
