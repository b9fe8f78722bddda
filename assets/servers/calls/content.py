"""The content of an answer: known blocks, scrubbed, cut, and scanned before anybody reads it."""

import base64
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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
    kind, blocks = raw.get("resultType", "complete"), raw.get("content", [])
    if kind != "complete":
        detail = f"its result is {str(kind)[:40]!r}: it asks for what nobody here can answer"
        raise CallFailed("protocol_error", detail)
    if not isinstance(blocks, list):
        detail = f"`content` is {type(blocks).__name__}, expected a list"
        raise CallFailed("protocol_error", detail)
    answer = CallContent(is_error=raw.get("isError") is True)
    reader = _ContentReader(scrub, limits, limits.total_mb * _MB)
    for place, block in enumerate(blocks):
        if place >= limits.blocks or reader.room <= 0:
            left = f"{len(blocks) - place} of {len(blocks)} content blocks are left out here"
            answer.content.append(_make_text_block(left))
            reader.cut = True
            break
        answer.content.append(reader.read_block(block))
    answer.cut = reader.cut
    structured = raw.get("structuredContent")
    problem: Problem = {"path": "structuredContent"}
    if structured is None:
        return answer
    if not isinstance(structured, dict):
        problem |= {"found": type(structured).__name__, "expected": "an object"}
        answer.problems.append(problem | {"fix": "the server has to fix it"})
    elif (size := len(json.dumps(structured))) > limits.structured_kb * _KB:
        answer.cut = True
        problem |= {"found": f"{size:,} bytes of structured content"}
        problem |= {"expected": f"at most {limits.structured_kb * _KB:,} bytes"}
        fix = "it is left out; ask the tool for less, or read the content"
        answer.problems.append(problem | {"fix": fix})
    else:
        scrubbed = json.dumps(scrub(structured), ensure_ascii=False)
        answer.structured = json.loads(drop_surrogates(scrubbed))
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
        type_name = type(block).__name__
        content = None
        if isinstance(block, dict):
            content = self._read_known(block)
            type_name = drop_surrogates(self.scrub.scrub_text(str(block.get("type"))[:40]))
        if content is None:
            content = _make_text_block(
                f"a content block of type {type_name!r} that is none of MCP's is left out here"
            )
        self.room -= sum(len(text.encode()) for text in _iter_texts(content))
        return content

    def _read_known(self, block: Mapping[str, Any]) -> dict[str, Any] | None:
        """The block as it may be handed on; None where it is none of MCP's."""
        kind, text, resource = block.get("type"), block.get("text"), block.get("resource")
        if kind == "text" and isinstance(text, str):
            return {"type": "text", "text": self._cut_text(text)}
        if kind in ("image", "audio"):
            mime = self._shorten(block.get("mimeType") or "application/octet-stream")
            media = self._read_base64(f"{kind} {mime}", block.get("data"))
            return (
                media
                if isinstance(media, dict)
                else {"type": kind, "data": media, "mimeType": mime}
            )
        if kind == "resource_link" and isinstance(block.get("uri"), str):
            texts = {name: block[name] for name in _LINK if isinstance(block.get(name), str)}
            scrubbed = {name: self._shorten(text) for name, text in texts.items()}
            size = block.get("size")
            sized = {"size": size} if isinstance(size, int) and not isinstance(size, bool) else {}
            return {"type": "resource_link", "name": scrubbed["uri"], **scrubbed, **sized}
        if kind != "resource" or not isinstance(resource, dict):
            return None
        uri, text, blob = resource.get("uri"), resource.get("text"), resource.get("blob")
        if not isinstance(uri, str):
            return None
        content: dict[str, Any] = {"uri": self._shorten(uri)}
        if isinstance(resource.get("mimeType"), str):
            content["mimeType"] = self._shorten(resource["mimeType"])
        if isinstance(text, str):
            content["text"] = self._cut_text(text)
        elif isinstance(blob, str):
            media = self._read_base64(f"the resource {content['uri']}", blob)
            if isinstance(media, dict):
                return media
            content["blob"] = media
        else:
            return None
        return {"type": "resource", "resource": content}

    def _read_base64(self, what: str, data: Any) -> str | dict[str, Any]:
        """Base64 that decodes, whole, without a secret in it; else a text block that says why not.
        Searched in pieces: 4 MB at once would hold up every other thread for 1.6 s."""
        try:
            if not isinstance(data, str):
                raise ValueError
            base64.b64decode(data, validate=True)
        except ValueError:
            return _make_text_block(f"{what} whose data is no base64 is left out here")
        most = min(self.limits.media_mb * _MB, self.room)
        if len(data) > most:
            self.cut = True
            return _make_text_block(f"{what} of {len(data):,} bytes is left out here: {most:,} fit")
        for start in range(0, len(data) if self.scrub else 0, _PIECE):
            piece = data[start : start + _PIECE + _SLACK]
            if self.scrub.scrub_text(piece) != piece:
                return base64.b64encode(b"[secret]").decode()
        return data

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


def _make_text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": f"[{text} by toolmill]"}


def _iter_texts(value: Any) -> Iterator[str]:
    """Every text of a JSON value, the names of members too."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            stack += [*item, *item.values()]
        elif isinstance(item, list | tuple):
            stack += item


Contract = tuple[str, str, str]  # server, tool, contract digest

log = logging.getLogger(__name__)
_MEDIA = ("data", "blob")  # base64 of a content block, which is looked at by nobody here


class ResultInspector:
    """Inspects results of calls; what they show is recorded under a home, by contract."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._record: ResultFindings | None = None

    def __call__(
        self, of: Contract, result: CallResult, arguments: Any, *, own_words: bool
    ) -> CallResult:
        """The result as it may be handed on. A full disk takes no answer away."""
        from assets.contracts.result_findings import ResultFindings

        checked, laid = check_result(result, of[1], arguments, own_words=own_words)
        if laid:
            try:
                self._record = self._record or ResultFindings(self._home)
                self._record.add(of, laid)
            except OSError as error:
                log.error("findings in a result of %s could not be kept: %s", of[0], error)
        return checked


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

    fields = {  # what is a third party's, without media
        "content": [_drop_media(block) for block in result.content],
        "structured": result.structured,
        "hint": result.hint,
        # Problems of arguments are ours, those of an answer quote it.
        "problems": result.problems if result.status == "ok" else [],
    }
    fields = {name: value for name, value in fields.items() if value}
    clean = {name: redact_issued_keys(value) for name, value in fields.items()}
    texts = [text for block in clean.get("content", []) if (text := _read_text(block))]
    joined = {"joined": "\n".join(texts)} if len(texts) > 1 else {}  # as a prompt holds them
    scan = scan_result(tool, clean | joined)

    def is_joined(finding: "ScanFinding") -> bool:
        return finding.field.startswith("/joined")

    # Of the joined texts only what no block shows by itself.
    in_blocks = {(each.rule, each.severity) for each, _ in scan.found if not is_joined(each)}
    scanned = [
        (finding, words)
        for finding, words in scan.found
        if not is_joined(finding) or (finding.rule, finding.severity) not in in_blocks
    ]
    leaks = [f"/{name}" for name, value in fields.items() if clean[name] != value]
    if "content" in clean:
        clean["content"] = list(map(_restore_media, clean["content"], result.content))
    if redact_issued_keys(_cut_seams(texts)) != _cut_seams(texts):
        # A key that blocks share: their texts become one, without it.
        whole = redact_issued_keys("".join(texts))
        leaks.append("/content")
        media = [block for block in clean["content"] if not _read_text(block)]
        clean["content"] = [{"type": "text", "text": whole}, *media]
    keys = [build_finding(tool, place, "", build_hit("issued_key", 0, 0)) for place in leaks]
    sent = "\n".join(_iter_texts(arguments))
    laid = [*keys, *(finding for finding, words in scanned if words not in sent)]
    if not own_words:
        laid = [
            replace(finding, severity=MEDIUM) if finding.severity == HIGH else finding
            for finding in laid
        ]
    findings = (*keys, *(finding for finding, _ in scanned))
    return replace(result, **clean, findings=findings, unread=scan.unread), laid


def _cut_seams(texts: list[str]) -> list[str]:
    """What lies around each place where two texts meet: 8 MB at once would hold up every other
    thread for a third of a second."""
    whole, seams, at = "".join(texts), list[str](), 0
    for text in texts[:-1]:
        at += len(text)
        seams.append(whole[max(0, at - _SLACK) : at + _SLACK])
    return seams


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
