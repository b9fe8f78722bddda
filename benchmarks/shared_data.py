"""Where development data lies that is not part of this repository."""

import os
import sys
from pathlib import Path

SHARED = Path(os.environ.get("TOOLMILL_SHARED", "../shared")) / "data"


def require_paths(*paths: Path) -> None:
    """Ends the program, as done, where one of the files or folders is absent."""
    absent = next((path for path in paths if not path.exists()), None)
    if absent is not None:
        print(f"skipped: {absent} is not there; TOOLMILL_SHARED names the folder that holds `data`")
        sys.exit(0)
