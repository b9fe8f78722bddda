"""Privatefiles: the user's own files of a setting, found and read within bounds."""

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from assets.marketplaces.markup.js_literal import NotALiteral, read_all
from warehouse.storage.untrusted_files import read_file

_SUFFIXES = (".json", ".jsonc")
_MOST_FILES, _DEEPEST, _LARGEST = 1000, 8, 4 * 1024 * 1024
_SKIPPED = {".git", "node_modules", "__pycache__", ".venv"}


def find_files(paths: Collection[Path]) -> Iterator[tuple[Path, str, bool]]:
    """(file, its name within the setting, whether the setting names it) of every file; links to
    folders are not followed."""
    seen: set[str] = set()  # a file may be named itself and lie in a folder that is
    left = _MOST_FILES
    for path in paths:
        if not path.is_dir():
            if (real := os.path.realpath(path)) not in seen:
                seen.add(real)
                yield path, path.name, True
            continue
        for folder, folders, names in os.walk(path, followlinks=False):
            below = Path(folder).relative_to(path)
            deep = len(below.parts) >= _DEEPEST
            folders[:] = [] if deep else sorted(set(folders) - _SKIPPED)
            for file in sorted(names):
                real = os.path.realpath(Path(folder, file))
                if file.lower().endswith(_SUFFIXES) and left > 0 and real not in seen:
                    left -= 1
                    seen.add(real)
                    yield Path(folder, file), (below / file).as_posix(), False


def load(path: Path, *, named: bool) -> Any:
    """The value of one file; one that the setting names may be a link, one that lies in a folder
    may not: who filled the folder would choose what is read. Raises OSError or ValueError."""
    real = Path(os.path.realpath(path if named else path.parent))
    folder, name = (real.parent, real.name) if named else (real, path.name)
    return parse_data(read_file(folder, name, _LARGEST))


def parse_data(data: bytes) -> Any:
    """JSON, with comments and trailing commas allowed. Raises ValueError."""
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from error
    try:
        return read_all(text)
    except NotALiteral as error:
        # The error's own text quotes the file, which may hold a secret there.
        at = re.search(r"\d+", str(error))
        line = f" at line {text.count(chr(10), 0, int(at[0])) + 1}" if at else ""
        raise ValueError(f"not JSON{line}") from error
