"""Extras: what a server says of itself besides its tools, read as its tools are."""

from collections.abc import Iterator, Set
from dataclasses import replace
from typing import Any

from assets.contracts.scan.engine import keep_findings, scan_contents
from assets.contracts.scan.finding import Finding, build_finding, build_hit
from assets.contracts.scan.text.fields import TOTAL_CAP, read_fields
from warehouse.json_types import JsonObject


def scan_extras(extras: JsonObject, own: Set[str] = frozenset()) -> list[Finding]:
    """The findings of a server's instructions and of each entry of its lists of prompts, resources
    and templates; TOTAL_CAP characters in all. own: the names of its tools."""
    return keep_findings(_scan_entries(extras, own))


def _scan_entries(extras: JsonObject, own: Set[str]) -> Iterator[Finding]:
    read = 0
    for field, entry in _list_entries(extras):
        if read > TOTAL_CAP:
            what = "more text than is read of one server"
            yield build_finding("", field, what, build_hit("not_read_whole", 0, len(what)))
            break
        texts = read_fields(entry)
        read += sum(len(text.text) for text in texts.texts)
        for one in scan_contents("", texts, own):
            yield replace(one, field=field + one.field)


def _list_entries(extras: JsonObject) -> Iterator[tuple[str, Any]]:
    for name, value in extras.items():
        if isinstance(value, list):
            yield from ((f"/{name}/{place}", entry) for place, entry in enumerate(value))
        else:
            yield f"/{name}", value
