"""Pieces of work that the tests hand to a fleet."""

import os
import time
from pathlib import Path


def double(number: int) -> bytes:
    return str(2 * number).encode()


def refuse(what: str) -> bytes:
    raise ValueError(f"no {what}")


def tell_process(folder: str) -> bytes:
    time.sleep(0.2)
    (Path(folder) / str(os.getpid())).touch()
    return str(os.getpid()).encode()


def die_first(folder: str, deaths: int) -> bytes:
    """Ends its process without a word as often as `deaths` says, then answers."""
    before = len(list(Path(folder).iterdir()))
    (Path(folder) / f"try-{before}").touch()
    if before < deaths:
        os._exit(9)
    return b"done"


def wait_long() -> bytes:
    time.sleep(60)
    return b"late"
