"""A provider's own account of what was used: OpenAI's exports of usage and of costs, CSV or JSON.

CSV: a header of start_time (epoch seconds) or start_time_iso, model, input_tokens, output_tokens,
num_model_requests; or amount_value, amount_currency, line_item. JSON: pages of the usage and cost
endpoints, `{"data": [{"start_time": …, "results": [{…}]}]}`. Other columns are passed over.
"""

import csv
import io
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warehouse.errors import UnusableInput

_MOST_BYTES = 64 << 20
_TOKENS = (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"))
_EXPECTED = (
    "expected start_time or start_time_iso, and model, input_tokens, output_tokens or amount_value,"
    " line_item; export the usage or the costs again, grouped by model or line item"
)


@dataclass(frozen=True)
class Usage:
    """What a provider counted of one model on one UTC day ("2026-01-31"). model "": of all; tokens
    and dollars are None where the file does not say them."""

    day: str
    model: str
    requests: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usd: float | None = None


def read_usage(path: Path) -> list[Usage]:
    """The rows of one file in its order, empty buckets left out. Raises UnusableInput."""
    try:
        with path.open("rb") as file:  # a pipe has no size to ask for
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UnusableInput(f"{path}: more than {_MOST_BYTES:,} bytes, the most that is read")
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableInput(f"{path}: cannot be read as text: {error}") from error
    rows = _read_json(path, text) if text.lstrip()[:1] in ("{", "[") else _read_csv(path, text)
    found = []
    for place, row in enumerate(rows, 1):
        try:
            usage = _parse_row(row)
        except (ValueError, OverflowError, OSError) as error:
            raise UnusableInput(f"{path}: row {place}: {error}; {_EXPECTED}") from error
        found += [usage] if usage else []
    if not found:
        raise UnusableInput(f"{path}: no usage in it; {_EXPECTED}")
    return found


def _read_csv(path: Path, text: str) -> list[dict[str, Any]]:
    tabs = "\t" in text.partition("\n")[0]
    try:
        return list(csv.DictReader(io.StringIO(text), delimiter="\t" if tabs else ","))
    except csv.Error as error:
        raise UnusableInput(f"{path}: not CSV: {error}; {_EXPECTED}") from error


def _read_json(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        return list(_iterate_buckets(json.loads(text)))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UnusableInput(f"{path}: not pages of usage: {error}; {_EXPECTED}") from error


def _iterate_buckets(found: Any) -> Iterator[dict[str, Any]]:
    """The results of pages, buckets, or lists of either, each with its bucket's start."""
    for one in found if isinstance(found, list) else [found]:
        if "data" in one:
            yield from _iterate_buckets(one["data"])
            continue
        for result in one.get("results", [one]):
            amount = result.get("amount") or {}
            money = {"amount_value": amount.get("value"), "amount_currency": amount.get("currency")}
            start = {"start_time": one.get("start_time")}
            yield {**start, **result, **({} if not amount else money)}


def _parse_row(row: Mapping[str, Any]) -> Usage | None:
    """One row; None for a bucket that holds nothing. Raises ValueError."""
    tokens = [_find_number(row, names) for names in _TOKENS]
    usd = _find_number(row, ("amount_value",))
    if usd is None and all(token is None for token in tokens):
        if any(name in row for names in (*_TOKENS, ("amount_value",)) for name in names):
            return None
        raise ValueError(f"found columns {', '.join(map(str, row))[:200]}")
    currency = str(row.get("amount_currency") or "usd").lower()
    if currency != "usd":
        raise ValueError(f"amounts in {currency[:10]!r}, expected usd")
    # A line item is "<model>, input", "<model>, output"; costs that are no model's have no comma.
    named = row.get("model") or str(row.get("line_item") or "").partition(",")[0]
    requests = _find_number(row, ("num_model_requests",))
    whole = [None if one is None else int(one) for one in (requests, *tokens)]
    return Usage(_read_day(row), str(named).strip(), *whole, usd=usd)


def _read_day(row: Mapping[str, Any]) -> str:
    start = row.get("start_time")
    if start not in (None, ""):
        return time.strftime("%Y-%m-%d", time.gmtime(float(str(start))))
    day = str(row.get("start_time_iso") or row.get("date") or "")[:10]
    time.strptime(day, "%Y-%m-%d")
    return day


def _find_number(row: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    found = next((row[name] for name in names if row.get(name) not in (None, "")), None)
    if found is None:
        return None
    number = float(str(found))
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{names[0]} is {str(found)[:30]!r}, expected a number from 0")
    return number
