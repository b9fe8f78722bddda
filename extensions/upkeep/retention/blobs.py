"""Blobs that no kept table version, no effect of the ledger and no memo names."""

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import polars as pl

from extensions.upkeep.retention.garbage import Garbage
from warehouse.ledger.database import LedgerUnavailable, find_url
from warehouse.ledger.inspection import list_effect_blobs
from warehouse.storage.blobs import Blobs

_SHA = r"[0-9a-f]{64}"


class ReferencesUnknown(RuntimeError):
    """What refers to blobs cannot be read, so that none may be removed."""


def collect_references(versions: Iterable[Path], state: Path) -> set[str]:
    """Every SHA-256 that a version's texts, the ledger or the memo name. Raises
    ReferencesUnknown."""
    try:
        named = set().union(*map(_read_names, versions), _read_memo_names(state / "memo.db"))
        path, url = state / "ledger.db", find_url()
        if not url and not path.exists():
            raise LedgerUnavailable(f"no ledger in {state}; TOOLMILL_STATE says where it lies")
        return named | list_effect_blobs(path, url)
    except (OSError, pl.exceptions.PolarsError, sqlite3.Error, LedgerUnavailable) as error:
        reason = " ".join(str(error).split())[:200]
        raise ReferencesUnknown(
            f"blobs: what refers to them cannot be read ({reason}), so none is removed;"
            " `toolmill doctor` says what to do"
        ) from error


def _read_names(version: Path) -> set[str]:
    """What stands in any text of a version: which columns name blobs is not for this to know."""
    frame = pl.read_parquet(version)
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    return set().union(
        *(frame[name].drop_nulls().str.extract_all(_SHA).explode().drop_nulls() for name in texts)
    )


def _read_memo_names(path: Path) -> set[str]:
    if not path.exists():
        return set()
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as db:
        return {sha for (text,) in db.execute("SELECT value FROM memo") for sha in _find_shas(text)}


def _find_shas(text: str) -> list[str]:
    return re.findall(_SHA, json.dumps(text))


def list_unnamed_blobs(blobs: Blobs, named: set[str], before: float) -> Iterator[Garbage]:
    """Blobs that nothing names and nobody has put since `before`."""
    for path in blobs.list_files():
        if path.name not in named and (found := path.stat()).st_mtime < before:
            remove = partial(blobs.remove, path.name, before)
            yield Garbage("blobs", path.name, found.st_size, remove)
