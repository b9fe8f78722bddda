"""An answer's content as it may be handed on: known blocks, known fields, scrubbed, cut."""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assets.servers.calls.result import CallFailed, CallLimits, Problem
from warehouse.sanitize.escape import drop_surrogates
from warehouse.sanitize.scrubber import Scrubber

_SLACK = 8192  # characters beyond a cut that are scrubbed with it, so that no half secret is left
_PIECE = 65_536
_KB, _MB = 1024, 1024 * 1024
_LINK = ("uri", "name", "title", "description", "mimeType")


@dataclass
class Shaped:
    """Content that may be handed on. text: what its text blocks say, for judging an error."""

    content: list[dict[str, Any]] = field(default_factory=list)
    structured: dict[str, Any] | None = None
    is_error: bool = False
    problems: list[Problem] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(one["text"] for one in self.content if one["type"] == "text")


def shape_result(raw: Mapping[str, Any], scrub: Scrubber, limits: CallLimits) -> Shaped:
    """The result of a `tools/call` within the limits. Raises CallFailed where it is no result."""
    blocks = raw.get("content", [])
    if not isinstance(blocks, list):
        found = f"`content` is {type(blocks).__name__}, expected a list"
        raise CallFailed("protocol_error", found)
    made = Shaped(is_error=raw.get("isError") is True)
    room = limits.total_mb * _MB
    for place, block in enumerate(blocks):
        if place >= limits.blocks or room <= 0:
            left = len(blocks) - place
            made.content.append(
                _make_text_block(f"{left} of {len(blocks)} content blocks are left out here")
            )
            break
        shaped = _read_block(block, scrub, limits, room)
        room -= _measure_block(shaped)
        made.content.append(shaped)
    made.structured = _read_structured(raw, scrub, limits, made.problems)
    return made


def _read_block(block: Any, scrub: Scrubber, limits: CallLimits, room: int) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, dict) else None
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    made = reader(block, scrub, limits, room) if reader else None
    if made is not None:
        return made
    shown = (
        drop_surrogates(scrub.scrub_text(str(kind)[:40]))
        if isinstance(block, dict)
        else type(block).__name__
    )
    return _make_text_block(
        f"a content block of type {shown!r} that is none of MCP's is left out here"
    )


def _read_text_block(
    block: Mapping[str, Any], scrub: Scrubber, limits: CallLimits, room: int
) -> dict[str, Any] | None:
    text = block.get("text")
    if not isinstance(text, str):
        return None
    return {"type": "text", "text": _cut_text(text, min(limits.text_kb * _KB, room), scrub)}


def _read_media_block(
    block: Mapping[str, Any], scrub: Scrubber, limits: CallLimits, room: int
) -> dict[str, Any] | None:
    """An image or a sound: whole or not at all, and base64 that decodes."""
    kind, data = block["type"], block.get("data")
    mime = _shorten_value(block.get("mimeType") or "application/octet-stream", scrub)
    if not isinstance(data, str) or not _is_base64(data):
        return _make_text_block(f"{kind} {mime} whose data is no base64 is left out here")
    allowed = min(limits.media_mb * _MB, room)
    if len(data) > allowed:
        return _make_text_block(
            f"{kind} {mime} of {len(data):,} bytes is left out here: {allowed:,} fit"
        )
    return {"type": kind, "data": _redact_base64(data, scrub), "mimeType": mime}


def _read_link_block(
    block: Mapping[str, Any], scrub: Scrubber, _: CallLimits, __: int
) -> dict[str, Any] | None:
    if not isinstance(block.get("uri"), str):
        return None
    kept = {
        name: _shorten_value(block[name], scrub)
        for name in _LINK
        if isinstance(block.get(name), str)
    }
    size = block.get("size")
    sized = {"size": size} if isinstance(size, int) and not isinstance(size, bool) else {}
    return {"type": "resource_link", "name": kept["uri"], **kept, **sized}


def _read_resource_block(
    block: Mapping[str, Any], scrub: Scrubber, limits: CallLimits, room: int
) -> dict[str, Any] | None:
    held = block.get("resource")
    if not isinstance(held, dict) or not isinstance(held.get("uri"), str):
        return None
    kept: dict[str, Any] = {"uri": _shorten_value(held["uri"], scrub)}
    if isinstance(held.get("mimeType"), str):
        kept["mimeType"] = _shorten_value(held["mimeType"], scrub)
    if isinstance(held.get("text"), str):
        kept["text"] = _cut_text(held["text"], min(limits.text_kb * _KB, room), scrub)
    elif isinstance(held.get("blob"), str):
        blob, allowed = held["blob"], min(limits.media_mb * _MB, room)
        if not _is_base64(blob) or len(blob) > allowed:
            why = f"of {len(blob):,} bytes: {allowed:,} fit" if len(blob) > allowed else "no base64"
            return _make_text_block(f"the resource {kept['uri']} is left out here, {why}")
        kept["blob"] = _redact_base64(blob, scrub)
    else:
        return None
    return {"type": "resource", "resource": kept}


_Reader = Callable[[Mapping[str, Any], Scrubber, CallLimits, int], dict[str, Any] | None]
_READERS: dict[str, _Reader] = {
    "text": _read_text_block,
    "image": _read_media_block,
    "audio": _read_media_block,
    "resource": _read_resource_block,
    "resource_link": _read_link_block,
}


def _read_structured(
    raw: Mapping[str, Any], scrub: Scrubber, limits: CallLimits, problems: list[Problem]
) -> dict[str, Any] | None:
    value = raw.get("structuredContent")
    if value is None:
        return None
    if not isinstance(value, dict):
        kind = type(value).__name__
        problems.append(_make_problem(kind, "an object", "the server has to fix it"))
        return None
    size = len(json.dumps(value))
    if size > limits.structured_kb * _KB:
        allowed = f"at most {limits.structured_kb * _KB:,} bytes"
        fix = "it is left out; ask the tool for less, or read the content"
        problems.append(_make_problem(f"{size:,} bytes of structured content", allowed, fix))
        return None
    return json.loads(drop_surrogates(json.dumps(scrub(value), ensure_ascii=False)))


def _make_problem(found: str, expected: str, fix: str) -> Problem:
    return {"path": "structuredContent", "found": found, "expected": expected, "fix": fix}


def _cut_text(text: str, limit: int, scrub: Scrubber) -> str:
    """At most `limit` bytes of the text, and how much of it is missing."""
    text = drop_surrogates(text)
    whole = len(text.encode())
    if whole <= limit:
        return scrub.scrub_text(text)
    kept = text.encode()[: limit + _SLACK].decode("utf-8", "ignore")
    scrubbed = scrub.scrub_text(kept)
    # A secret that the first cut halved is within what the second one takes off.
    kept = scrubbed.encode()[: min(limit, max(0, len(scrubbed.encode()) - _SLACK))]
    shown = kept.decode("utf-8", "ignore")
    return f"{shown}\n[cut here by toolmill: {whole - len(kept):,} of {whole:,} bytes left out]"


def _make_text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{text} by toolmill]"}


def _shorten_value(value: Any, scrub: Scrubber) -> str:
    return scrub.scrub_text(drop_surrogates(str(value)[:4096]))[:2048]


def _is_base64(data: str) -> bool:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _redact_base64(data: str, scrub: Scrubber) -> str:
    """Base64 without a secret in it: where one is, all of it is replaced. Read in pieces: a search
    of 4 MB at once would hold up every other thread for 1.6 s."""
    for start in range(0, len(data) if scrub else 0, _PIECE):
        piece = data[start : start + _PIECE + _SLACK]
        if scrub.scrub_text(piece) != piece:
            return base64.b64encode(b"[secret]").decode()
    return data


def _measure_block(block: Mapping[str, Any]) -> int:
    return sum(len(text.encode()) for text in _iter_texts(block))


def _iter_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _iter_texts(one)
