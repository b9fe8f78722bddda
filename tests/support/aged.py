"""Files of another time."""

import os
from pathlib import Path


def make_old(path: Path, at: float) -> None:
    """As if the file was last written then (epoch seconds)."""
    os.utime(path, (at, at))
