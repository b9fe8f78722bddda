"""Record: saves what a live marketplace served, redacted, so that a guess can become a fixture."""

import json
import uuid
from pathlib import Path
from urllib.parse import urlsplit

from warehouse.sanitize.markdown import (
    Markdown,
    fill_markdown,
    join_markdown,
    make_markdown_table,
    quote_text,
)
from warehouse.sanitize.redact import redact, redact_json
from warehouse.storage.files import write_atomically

_URL = 2000  # characters
_EACH = 3  # pages of one kind are enough to see a shape
_ENDINGS = {"json": "json", "html": "html", "xml": "xml", "yaml": "yaml", "javascript": "js"}


class PayloadRecorder:
    """Keeps the first pages of every kind under `folder`."""

    def __init__(self, folder: Path, marketplace: str, today: str) -> None:
        self.folder, self.marketplace, self.today = folder, marketplace, today
        self.id = uuid.uuid4().hex  # in page keys: stored pages are requested again
        self.saved: list[tuple[str, str, str]] = []  # (file, URL, content type)
        self._counts: dict[str, int] = {}

    def save(self, how: str, url: str, content_type: str, body: bytes) -> None:
        """Keeps one page, unless enough of its kind are kept already."""
        path = urlsplit(url).path.strip("/").split("/")
        kind = "-".join([how, *path[:2]]) if len(path) > 1 else f"{how}-{path[0] or 'home'}"
        kind = "".join(char if char.isalnum() or char in "-_." else "_" for char in kind)[:60]
        number = self._counts[kind] = self._counts.get(kind, 0) + 1
        if number > _EACH:
            return
        ending = next((end for word, end in _ENDINGS.items() if word in content_type), "txt")
        name = f"{kind.removesuffix('.' + ending)}.{number}.{ending}"
        write_atomically(self.folder / name, _redact_body(body, ending))
        self.saved.append((name, redact(url), content_type))

    def finish(self) -> None:
        """Writes where each file came from."""
        rows = [
            (quote_text(name), quote_text(url, _URL), quote_text(kind))
            for name, url, kind in self.saved
        ]
        parts = [
            fill_markdown("# Pages of {}, recorded {}", self.marketplace, self.today),
            Markdown("Secrets are redacted; everything else is as served."),
            make_markdown_table(["file", "from", "content type"], rows),
        ]
        text = join_markdown("\n\n", parts)
        write_atomically(self.folder / "PROVENANCE.md", f"{text}\n".encode())


def _redact_body(body: bytes, ending: str) -> bytes:
    text = body.decode("utf-8", errors="replace")
    if ending == "json":
        try:
            return json.dumps(redact_json(json.loads(text)), ensure_ascii=False, indent=1).encode()
        except (ValueError, RecursionError):
            return redact(text).encode()  # what is broken is worth keeping, too
    return redact(text).encode()
