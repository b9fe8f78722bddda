"""Opening a router, and following what is served while queries run."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING

from assets.outcomes.reliability.overlay import OVERLAY
from serving.index.folder import load_index, read_served_version
from serving.index.model import Index
from serving.ranking.eligible import read_blocked
from serving.ranking.overlay import Overlay, OverlayBroken, read_overlay
from serving.ranking.router import Router

if TYPE_CHECKING:
    from assets.vectors.embed import Embedder

Opened = Callable[[Path, str | None], Router]

_log = logging.getLogger(__name__)
# Word pieces of a query that are encoded, half of them from its end: a conversation asks there. 9%
# of the corpus's queries are longer; reading them whole found the right tool first as often as
# reading their beginning (.309 against .308, n = 1,224; difference -.004 to .003) and took twice as
# long.
QUERY_TOKENS = 64
_AGAIN = 30.0  # seconds until a version that could not be loaded is tried again


def open_router(place: Path, version: str | None = None) -> Router:
    """Loads a version (the served one by default) with its encoder and the quarantine's decisions.
    Raises IndexMissing or IndexBroken with the fix."""
    index = load_index(place, version or read_served_version(place))
    encoder = _open_encoder(place, index.embedder, index.adapter)
    return Router(index, encoder, read_blocked(place), _read_overlay(place, index, None))


class ServedRouter:
    """The router of whatever version is served now. A new one is loaded beside the old one, which
    answers meanwhile; one that cannot be loaded is told of once and the old one stays.

    `opened`: how a version (None: the served one) of the place becomes a router.
    """

    def __init__(self, place: Path, opened: "Opened | None" = None) -> None:
        self._place, self._lock = place, Lock()
        self._opened = opened or open_router
        self._router: Router | None = None
        self._seen: tuple[object, ...] = ()
        self._failed: tuple[object, ...] = ()
        self._failed_at = 0.0
        self._last_error: str | None = None
        self._loading: Thread | None = None
        self._listeners: list[Callable[[str], None]] = []

    def current(self) -> Router:
        """The router to ask now. Raises IndexMissing or IndexBroken with the fix while there is
        none at all."""
        router = self._router
        if router is None:
            with self._lock:
                if self._router is None:
                    seen = self._read_marks()
                    self._router, self._seen = self._opened(self._place, None), seen
                return self._router
        marks = self._read_marks()
        if marks != self._seen and self._is_due(marks):
            self._start(marks)
        return self._router or router

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Calls `callback(version)` after each swap, in the loading thread."""
        self._listeners.append(callback)

    def settle(self, timeout: float | None = None) -> Router:
        """Waits until what is published now is loaded, or has failed to; for orderly shutdowns and
        tests. The router that then answers."""
        self.current()
        loading = self._loading
        if loading is not None:
            loading.join(timeout)
        return self.current()

    def _is_due(self, marks: tuple[object, ...]) -> bool:
        """What failed is tried again after a while; what was published since (a fix, a rollback)
        at once."""
        return marks != self._failed or time.monotonic() - self._failed_at > _AGAIN

    def _start(self, marks: tuple[object, ...]) -> None:
        with self._lock:
            if self._loading is None or not self._loading.is_alive():
                self._loading = Thread(target=self._load, args=(marks,), daemon=True)
                self._loading.start()

    def _load(self, marks: tuple[object, ...]) -> None:
        old = self._router
        try:
            new = self._renew_router(old)
        except Exception as error:  # whatever it is, the old version goes on answering
            self._failed, self._failed_at = marks, time.monotonic()
            if str(error) != self._last_error:
                self._last_error = str(error)
                kept = old.index.version[:12] if old else "nothing"
                _log.error("new router index not served, %s stays: %s", kept, error)
            return
        self._router, self._seen, self._last_error = new, marks, None
        self._failed = ()
        if old is None or new.index.version != old.index.version:
            for callback in list(self._listeners):
                callback(new.index.version)

    def _renew_router(self, old: Router | None) -> Router:
        """The old router under new decisions and outcomes, or a new one where the version moved."""
        version, blocked = read_served_version(self._place), read_blocked(self._place)
        if old is not None and old.index.version == version:
            return old.renew(blocked, _read_overlay(self._place, old.index, old.overlay))
        return self._opened(self._place, version)

    def _read_marks(self) -> tuple[object, ...]:
        """What changes when HEAD.json, BLOCKED.json or the overlay is written anew."""
        names = ("HEAD.json", "BLOCKED.json", OVERLAY)
        return tuple(_read_mark(self._place / "router" / name) for name in names)


def _read_mark(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _read_overlay(place: Path, index: Index, old: Overlay | None) -> Overlay | None:
    """The overlay of the place. One that cannot be read is told of and leaves the old one: it must
    hold back neither searches nor the quarantine's decisions."""
    try:
        return read_overlay(place, index)
    except OverlayBroken as error:
        _log.error("reliability not told anew: %s", error)
        return old


def _open_encoder(place: Path, embedder: str, adapter: str | None) -> "Embedder":
    """The exported encoder of the place, else the model itself with the adapter it merges."""
    from assets.vectors.embed import MiniLM, open_encoder

    if (place / "encoders").is_dir():
        return open_encoder(place, embedder, most_tokens=QUERY_TOKENS)
    made = MiniLM(place / "models" / adapter if adapter else None)
    if made.id != embedder:
        return open_encoder(place, embedder)  # which says what is missing
    made.open()  # before the first question comes
    return made
