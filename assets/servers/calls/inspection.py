"""Inspection: what a server answered, scanned and freed of keys before anybody is handed it.

The one place for all who call: whatever a result is shown to later has been through here.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.servers.calls.result import CallResult

if TYPE_CHECKING:
    from assets.contracts.quarantine.results import ResultFindings
    from assets.contracts.scan.finding import Finding

Contract = tuple[str, str, str]  # server, tool, contract digest

log = logging.getLogger(__name__)
_MEDIA = ("data", "blob")  # base64 of a content block, which is looked at by nobody here


class Inspector:
    """Inspects results of calls; what they show is recorded under a home, by contract."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def __call__(
        self, of: Contract, result: CallResult, arguments: Any, *, own_words: bool
    ) -> CallResult:
        """The result as it may be handed on. A full disk takes no answer away."""
        made, laid = check_result(result, of[1], arguments, own_words=own_words)
        if laid:
            try:
                self._record.add(of, laid)
            except OSError as error:
                log.error("findings in a result of %s could not be kept: %s", of[0], error)
        return made

    @cached_property
    def _record(self) -> "ResultFindings":
        from assets.contracts.quarantine.results import ResultFindings

        return ResultFindings(self._home)


def check_result(
    result: CallResult, tool: str, arguments: Any, *, own_words: bool
) -> tuple[CallResult, list["Finding"]]:
    """(the result with its findings and without issued keys, the findings to lay to the server).

    own_words: nothing but the server can have said it, since it reaches no network; of other
    servers a finding is medium at most, for they hand on pages and files of others. What stands in
    the arguments is an echo of the caller's and laid to nobody. Bounded: `assets/contracts/scan/
    results.py` has the limits.
    """
    from assets.contracts.scan.documents import scan_result
    from assets.contracts.scan.finding import HIGH, MEDIUM, build_finding, build_hit
    from warehouse.sanitize.redact import redact_issued_keys

    parts = {name: part for name, part in _list_parts(result).items() if part}
    clean = {name: redact_issued_keys(part) for name, part in parts.items()}
    texts = [text for block in clean.get("content", []) if (text := _read_text(block))]
    joined = {"joined": "\n".join(texts)} if len(texts) > 1 else {}  # as a prompt holds them
    scan = scan_result(tool, clean | joined)
    scan.found = _drop_repeated(scan.found)
    keys = [
        build_finding(tool, f"/{name}", "", build_hit("issued_key", 0, 0))
        for name, part in parts.items()
        if clean[name] != part
    ]
    if "content" in clean:
        clean["content"] = list(map(_restore_media, clean["content"], result.content))
    if (whole := redact_issued_keys("".join(texts))) != "".join(texts):
        # A key that blocks share: their texts become one, without it.
        keys.append(build_finding(tool, "/content", "", build_hit("issued_key", 0, 0)))
        media = [block for block in clean["content"] if not _read_text(block)]
        clean["content"] = [{"type": "text", "text": whole}, *media]
    sent = "\n".join(_iter_texts(arguments))
    laid = [*keys, *(found for found, words in scan.found if words not in sent)]
    if not own_words:
        laid = [replace(one, severity=MEDIUM) if one.severity == HIGH else one for one in laid]
    found = (*keys, *(one for one, _ in scan.found))
    made = replace(result, **clean, findings=found, unread=scan.unread)
    return made, laid


def _list_parts(result: CallResult) -> dict[str, Any]:
    """What of a result is a third party's, without media: names of its fields with their values.
    Problems of arguments are ours, those of an answer quote it."""
    return {
        "content": list(map(_drop_media, result.content)),
        "structured": result.structured,
        "hint": result.hint,
        "problems": result.problems if result.status == "ok" else [],
    }


def _drop_repeated(found: list[tuple["Finding", str]]) -> list[tuple["Finding", str]]:
    """Findings without those of the joined texts that a block shows on its own."""
    seen = {(one.rule, one.severity) for one, _ in found if not one.field.startswith("/joined")}
    return [
        (one, words)
        for one, words in found
        if not one.field.startswith("/joined") or (one.rule, one.severity) not in seen
    ]


def _read_text(block: dict[str, Any]) -> str:
    """The text of a content block or of the resource in it, "" for others."""
    held = block.get("resource")
    text = held.get("text") if isinstance(held, dict) else block.get("text")
    return text if isinstance(text, str) else ""


def _drop_media(block: dict[str, Any]) -> dict[str, Any]:
    """A content block without its base64."""
    held = block.get("resource")
    inner = {"resource": _drop_media(held)} if isinstance(held, dict) else {}
    return {name: one for name, one in block.items() if name not in _MEDIA} | inner


def _restore_media(clean: dict[str, Any], block: dict[str, Any]) -> dict[str, Any]:
    held = block.get("resource")
    inner = {"resource": _restore_media(clean["resource"], held)} if isinstance(held, dict) else {}
    return {**clean, **{name: block[name] for name in _MEDIA if name in block}, **inner}


def _iter_texts(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            stack += [*item, *item.values()]
        elif isinstance(item, list | tuple):
            stack += item
