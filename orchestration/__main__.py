"""`python -m orchestration` is `toolmill`."""

from orchestration.cli.app import main

main()
