"""The content of an answer: known blocks, scrubbed, cut, and scanned before anybody reads it."""

import base64
import binascii
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.servers.calls.result import CallFailed, CallLimits, CallResult, Problem
from warehouse.sanitize.scrubber import Scrubber
from warehouse.sanitize.untrusted_text import drop_surrogates

if TYPE_CHECKING:
    from assets.contracts.result_findings import ResultFindings
    from assets.contracts.scan.rule_table import ScanFinding

_SLACK = 8192  # characters beyond a cut that are scrubbed with it, so that no half secret is left
_PIECE = 65_536
_KB, _MB = 1024, 1024 * 1024
_LINK = ("uri", "name", "title", "description", "mimeType")


@dataclass
class CallContent:
    """Content that may be handed on. text: what its text blocks say, for judging an error.
    cut: something is left out for its size."""

    content: list[dict[str, Any]] = field(default_factory=list)
    structured: dict[str, Any] | None = None
    is_error: bool = False
    problems: list[Problem] = field(default_factory=list)
    cut: bool = False

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")


def shape_result(raw: Mapping[str, Any], scrub: Scrubber, limits: CallLimits) -> CallContent:
    """The result of a `tools/call` within the limits. Raises CallFailed where it is no result."""
    kind = raw.get("resultType", "complete")
    if kind != "complete":
        detail = f"its result is {str(kind)[:40]!r}: it asks for what nobody here can answer"
        raise CallFailed("protocol_error", detail)
    blocks = raw.get("content", [])
    if not isinstance(blocks, list):
        detail = f"`content` is {type(blocks).__name__}, expected a list"
        raise CallFailed("protocol_error", detail)
    answer = CallContent(is_error=raw.get("isError") is True)
    reader = _ContentReader(scrub, limits, limits.total_mb * _MB)
    for place, block in enumerate(blocks):
        if place >= limits.blocks or reader.room <= 0:
            left = len(blocks) - place
            answer.content.append(
                _make_text_block(f"{left} of {len(blocks)} content blocks are left out here")
            )
            reader.cut = True
            break
        answer.content.append(reader.read_block(block))
    answer.cut = reader.cut
    answer.structured = _read_structured(raw, scrub, limits, answer)
    return answer


@dataclass
class _ContentReader:
    """Reads the blocks of one answer. room: bytes that are left of what it may have in all. cut:
    something was too large."""

    scrub: Scrubber
    limits: CallLimits
    room: int
    cut: bool = False

    def read_block(self, block: Any) -> dict[str, Any]:
        kind = block.get("type") if isinstance(block, dict) else None
        read = _READERS.get(kind) if isinstance(kind, str) else None
        content = read(self, block) if read else None
        if content is None:
            type_name = type(block).__name__
            if isinstance(block, dict):
                type_name = drop_surrogates(self.scrub.scrub_text(str(kind)[:40]))
            content = _make_text_block(
                f"a content block of type {type_name!r} that is none of MCP's is left out here"
            )
        self.room -= sum(len(text.encode()) for text in _iter_texts(content))
        return content

    def read_text(self, block: Mapping[str, Any]) -> dict[str, Any] | None:
        text = block.get("text")
        return {"type": "text", "text": self._cut_text(text)} if isinstance(text, str) else None

    def read_media(self, block: Mapping[str, Any]) -> dict[str, Any] | None:
        """An image or a sound: whole or not at all, and base64 that decodes."""
        kind, data = block["type"], block.get("data")
        mime = self._shorten(block.get("mimeType") or "application/octet-stream")
        if not isinstance(data, str) or not _is_base64(data):
            return _make_text_block(f"{kind} {mime} whose data is no base64 is left out here")
        if len(data) > self._most_media:
            self.cut = True
            detail = f"{kind} {mime} of {len(data):,} bytes is left out here"
            return _make_text_block(f"{detail}: {self._most_media:,} fit")
        return {"type": kind, "data": _redact_base64(data, self.scrub), "mimeType": mime}

    def read_link(self, block: Mapping[str, Any]) -> dict[str, Any] | None:
        if not isinstance(block.get("uri"), str):
            return None
        texts = {name: block[name] for name in _LINK if isinstance(block.get(name), str)}
        scrubbed = {name: self._shorten(text) for name, text in texts.items()}
        size = block.get("size")
        sized = {"size": size} if isinstance(size, int) and not isinstance(size, bool) else {}
        return {"type": "resource_link", "name": scrubbed["uri"], **scrubbed, **sized}

    def read_resource(self, block: Mapping[str, Any]) -> dict[str, Any] | None:
        resource = block.get("resource")
        if not isinstance(resource, dict) or not isinstance(resource.get("uri"), str):
            return None
        content: dict[str, Any] = {"uri": self._shorten(resource["uri"])}
        if isinstance(resource.get("mimeType"), str):
            content["mimeType"] = self._shorten(resource["mimeType"])
        text, blob = resource.get("text"), resource.get("blob")
        if isinstance(text, str):
            content["text"] = self._cut_text(text)
        elif isinstance(blob, str):
            size, most = len(blob), self._most_media
            if not _is_base64(blob) or size > most:
                self.cut = self.cut or size > most
                why = f"of {size:,} bytes: {most:,} fit" if size > most else "no base64"
                return _make_text_block(f"the resource {content['uri']} is left out here, {why}")
            content["blob"] = _redact_base64(blob, self.scrub)
        else:
            return None
        return {"type": "resource", "resource": content}

    @property
    def _most_media(self) -> int:
        return min(self.limits.media_mb * _MB, self.room)

    def _shorten(self, value: Any) -> str:
        return self.scrub.scrub_text(drop_surrogates(str(value)[:4096]))[:2048]

    def _cut_text(self, text: str) -> str:
        """At most so many bytes of the text, and how much of it is missing."""
        text, limit = drop_surrogates(text), min(self.limits.text_kb * _KB, self.room)
        whole = len(text.encode())
        if whole <= limit:
            return self.scrub.scrub_text(text)
        self.cut = True
        prefix = text.encode()[: limit + _SLACK].decode("utf-8", "ignore")
        scrubbed = self.scrub.scrub_text(prefix).encode()
        # A secret that the first cut halved is within what the second one takes off.
        prefix = scrubbed[: min(limit, max(0, len(scrubbed) - _SLACK))]
        missing = f"{whole - len(prefix):,} of {whole:,} bytes left out"
        return f"{prefix.decode('utf-8', 'ignore')}\n[cut here by toolmill: {missing}]"


_READERS: dict[str, Callable[[_ContentReader, Mapping[str, Any]], dict[str, Any] | None]] = {
    "text": _ContentReader.read_text,
    "image": _ContentReader.read_media,
    "audio": _ContentReader.read_media,
    "resource": _ContentReader.read_resource,
    "resource_link": _ContentReader.read_link,
}


def _read_structured(
    raw: Mapping[str, Any], scrub: Scrubber, limits: CallLimits, answer: CallContent
) -> dict[str, Any] | None:
    value = raw.get("structuredContent")
    if value is None:
        return None
    if not isinstance(value, dict):
        kind = type(value).__name__
        answer.problems.append(_make_problem(kind, "an object", "the server has to fix it"))
        return None
    size = len(json.dumps(value))
    if size > limits.structured_kb * _KB:
        allowed = f"at most {limits.structured_kb * _KB:,} bytes"
        fix = "it is left out; ask the tool for less, or read the content"
        answer.cut = True
        answer.problems.append(_make_problem(f"{size:,} bytes of structured content", allowed, fix))
        return None
    return json.loads(drop_surrogates(json.dumps(scrub(value), ensure_ascii=False)))


def _make_problem(detail: str, expected: str, fix: str) -> Problem:
    return {"path": "structuredContent", "found": detail, "expected": expected, "fix": fix}


def _make_text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{text} by toolmill]"}


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


def _iter_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _iter_texts(item)


Contract = tuple[str, str, str]  # server, tool, contract digest

log = logging.getLogger(__name__)
_MEDIA = ("data", "blob")  # base64 of a content block, which is looked at by nobody here


class ResultInspector:
    """Inspects results of calls; what they show is recorded under a home, by contract."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def __call__(
        self, of: Contract, result: CallResult, arguments: Any, *, own_words: bool
    ) -> CallResult:
        """The result as it may be handed on. A full disk takes no answer away."""
        checked, laid = check_result(result, of[1], arguments, own_words=own_words)
        if laid:
            try:
                self._record.add(of, laid)
            except OSError as error:
                log.error("findings in a result of %s could not be kept: %s", of[0], error)
        return checked

    @cached_property
    def _record(self) -> "ResultFindings":
        from assets.contracts.result_findings import ResultFindings

        return ResultFindings(self._home)


def check_result(
    result: CallResult, tool: str, arguments: Any, *, own_words: bool
) -> tuple[CallResult, list["ScanFinding"]]:
    """(the result with its findings and without issued keys, the findings to lay to the server).

    own_words: nothing but the server can have said it, since it reaches no network; of other
    servers a finding is medium at most, for they hand on pages and files of others. What stands in
    the arguments is an echo of the caller's and laid to nobody. Bounded: `assets/contracts/scan/
    results.py` has the limits.
    """
    from assets.contracts.scan.engine import scan_result
    from assets.contracts.scan.rule_table import HIGH, MEDIUM, build_finding, build_hit
    from warehouse.sanitize.redact import redact_issued_keys

    fields = {name: part for name, part in _list_parts(result).items() if part}
    clean = {name: redact_issued_keys(part) for name, part in fields.items()}
    texts = [text for block in clean.get("content", []) if (text := _read_text(block))]
    joined = {"joined": "\n".join(texts)} if len(texts) > 1 else {}  # as a prompt holds them
    scan = scan_result(tool, clean | joined)
    scan.found = _drop_repeated(scan.found)
    keys = [
        build_finding(tool, f"/{name}", "", build_hit("issued_key", 0, 0))
        for name, part in fields.items()
        if clean[name] != part
    ]
    if "content" in clean:
        clean["content"] = list(map(_restore_media, clean["content"], result.content))
    if (whole := redact_issued_keys("".join(texts))) != "".join(texts):
        # A key that blocks share: their texts become one, without it.
        keys.append(build_finding(tool, "/content", "", build_hit("issued_key", 0, 0)))
        media = [block for block in clean["content"] if not _read_text(block)]
        clean["content"] = [{"type": "text", "text": whole}, *media]
    sent = "\n".join(_iter_texts_inspection(arguments))
    laid = [*keys, *(findings for findings, words in scan.found if words not in sent)]
    if not own_words:
        laid = [
            replace(finding, severity=MEDIUM) if finding.severity == HIGH else finding
            for finding in laid
        ]
    findings = (*keys, *(finding for finding, _ in scan.found))
    checked = replace(result, **clean, findings=findings, unread=scan.unread)
    return checked, laid


def _list_parts(result: CallResult) -> dict[str, Any]:
    """What of a result is a third party's, without media: names of its fields with their values.
    Problems of arguments are ours, those of an answer quote it."""
    return {
        "content": list(map(_drop_media, result.content)),
        "structured": result.structured,
        "hint": result.hint,
        "problems": result.problems if result.status == "ok" else [],
    }


def _drop_repeated(findings: list[tuple["ScanFinding", str]]) -> list[tuple["ScanFinding", str]]:
    """Findings without those of the joined texts that a block shows on its own."""
    in_blocks = {
        (finding.rule, finding.severity)
        for finding, _ in findings
        if not finding.field.startswith("/joined")
    }
    return [
        (finding, words)
        for finding, words in findings
        if not finding.field.startswith("/joined")
        or (finding.rule, finding.severity) not in in_blocks
    ]


def _read_text(block: dict[str, Any]) -> str:
    """The text of a content block or of the resource in it, "" for others."""
    resource = block.get("resource")
    text = resource.get("text") if isinstance(resource, dict) else block.get("text")
    return text if isinstance(text, str) else ""


def _drop_media(block: dict[str, Any]) -> dict[str, Any]:
    """A content block without its base64."""
    resource = block.get("resource")
    inner = {"resource": _drop_media(resource)} if isinstance(resource, dict) else {}
    return {name: value for name, value in block.items() if name not in _MEDIA} | inner


def _restore_media(clean: dict[str, Any], block: dict[str, Any]) -> dict[str, Any]:
    resource = block.get("resource")
    inner = (
        {"resource": _restore_media(clean["resource"], resource)}
        if isinstance(resource, dict)
        else {}
    )
    return {**clean, **{name: block[name] for name in _MEDIA if name in block}, **inner}


def _iter_texts_inspection(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            stack += [*item, *item.values()]
        elif isinstance(item, list | tuple):
            stack += item
