"""The lines of the log of calls as columns. A line that is cut short or of another shape is passed
over, and costs no other."""

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from assets.servers.calls.log import CallLog, parse_line

LINES: dict[str, Any] = {
    "at": pl.Float64,
    "id": pl.String,
    "token": pl.String,
    "tool_id": pl.String,
    "contract_digest": pl.String,
    "status": pl.String,
    "error_kind": pl.String,
    "blame": pl.String,
    "query": pl.String,
    "call_id": pl.String,
    "reported": pl.String,
    "search_id": pl.String,
    "client": pl.String,
    "words": pl.String,
    "seconds": pl.Float64,
    "rank": pl.Int64,
}


def read_lines(place: Path, columns: Mapping[str, Any] = LINES) -> pl.DataFrame:
    """All lines under one place, columns of LINES unless told otherwise (`at` and `status` among
    them): null where a line has none."""
    schema = dict(columns)
    found = [_read_day(path, schema) for path in CallLog(place).list_files()]
    frame = pl.concat(found) if found else pl.DataFrame(schema=schema)
    return frame.filter(pl.col("at").is_finite() & pl.col("status").is_not_null())


def _read_day(path: Path, schema: dict[str, Any]) -> pl.DataFrame:
    try:
        data = path.read_bytes()
    except FileNotFoundError:  # deleted since: the log keeps so many days
        return pl.DataFrame(schema=schema)
    whole = data[: data.rfind(b"\n") + 1]  # what follows is being written, or was cut short
    try:
        if not whole.strip():
            return _make_lines([], schema)
        return pl.read_ndjson(io.BytesIO(whole), schema=schema)
    except (pl.exceptions.PolarsError, OverflowError):  # one line is enough
        texts = whole.decode("utf-8", "replace").split("\n")
        return _make_lines([one for text in texts if (one := parse_line(text)) is not None], schema)


def _make_lines(lines: list[dict[str, Any]], schema: dict[str, Any]) -> pl.DataFrame:
    columns = {
        name: [_read_value(line.get(name), kind) for line in lines] for name, kind in schema.items()
    }
    return pl.DataFrame(columns, schema=schema)


def _read_value(value: Any, kind: Any) -> Any:
    """A value of a column's kind; None for another one."""
    if kind == pl.String:
        return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    number = float(min(max(value, -1e300), 1e300))
    return int(number) if kind == pl.Int64 and abs(number) < 1e15 else number
