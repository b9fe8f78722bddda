"""Memo: what a crawler remembers between runs, so that it asks for less (SQLite, WAL)."""

import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

_SCHEMA = """
PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;
CREATE TABLE IF NOT EXISTS memo (
  scope TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;
"""


class CrawlMemo:
    """Values by (scope, key). One object may serve many threads."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = self._open(path)

    def get(self, scope: str, key: str) -> Any:
        """The JSON value that was put last, or None."""
        with self._lock:
            row = self._db.execute(
                "SELECT value FROM memo WHERE scope = ? AND key = ?", (scope, key)
            ).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, scope: str, key: str, value: Any) -> None:
        with self._lock:
            self._db.execute(
                "INSERT OR REPLACE INTO memo VALUES (?, ?, ?, ?)",
                (scope, key, json.dumps(value), time.time()),
            )

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        for last in (False, True):
            db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            try:
                db.executescript(_SCHEMA)
                return db
            except sqlite3.DatabaseError:
                db.close()
                if last or path.stat().st_size == 0:
                    raise
                # A memo that cannot be read is a memo that was lost.
                path.replace(path.with_name(f"{path.name}.unreadable"))
        raise AssertionError("unreachable")
