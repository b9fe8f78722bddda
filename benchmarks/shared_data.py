"""Development data that is not part of this repository: where it lies, and the labelled corpus."""

import json
import os
import sys
from pathlib import Path
from typing import Any

SHARED = Path(os.environ.get("TOOLMILL_SHARED", "../shared")) / "data"


def require_paths(*paths: Path) -> None:
    """Ends the program, as done, where one of the files or folders is absent."""
    absent = next((path for path in paths if not path.exists()), None)
    if absent is not None:
        print(f"skipped: {absent} is not there; TOOLMILL_SHARED names the folder that holds `data`")
        sys.exit(0)


def read_corpus(shared: Path = SHARED) -> list[dict[str, Any]]:
    """The good rows of the corpus: written by a language model, not by people."""
    return [
        row
        for path in sorted((shared / "corpus").glob("pairs_A*.jsonl"))
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if row["kind"] != "flawed"
    ]
