"""Pictures that were drawn are read again while what they show, and the code, stay as they are."""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from warehouse.sanitize.markdown import shrink_png
from warehouse.storage.digest import digest_sources, sha256
from warehouse.storage.files import write_atomically

_ROOT = Path(__file__).resolve().parents[1]
_ALWAYS = ("warehouse/pictures.py", "warehouse/sanitize", "warehouse/statistics.py")


class PictureStore:
    """The latest picture of each name under `<home>/cache/pictures`. sources: files and folders of
    the repository whose code draws; any change there redraws."""

    def __init__(self, home: Path, *sources: str) -> None:
        self._folder = home / "cache" / "pictures"
        self._code = _digest_code(*sources)

    def draw(self, name: str, shown: Any, draw: Callable[[], bytes]) -> bytes:
        """The PNG, in few colours; `draw` makes it where this one was not kept. name: of a file.
        shown: what it is drawn from, as JSON. One that cannot be kept costs its drawing alone."""
        content = json.dumps([shown, self._code], sort_keys=True, default=str)
        path = self._folder / name / f"{sha256(content.encode())[:32]}.png"
        if (stored := _read_kept(path)) is not None:
            return stored
        png = shrink_png(draw())
        with suppress(OSError):
            for old in path.parent.glob("*.png"):
                old.unlink(missing_ok=True)
            write_atomically(path, f"{sha256(png)}\n".encode() + png)
        return png


def _read_kept(path: Path) -> bytes | None:
    """The picture of a file that is whole; None of any other."""
    try:
        name, _, png = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return png if name == sha256(png).encode() else None


@cache
def _digest_code(*sources: str) -> str:
    return f"{digest_sources(_ROOT, *_ALWAYS, *sources)} matplotlib {version('matplotlib')}"
