"""What became alarming in a tool from one version to the next: a few plain rules.

Belongs here: text that turned into orders, hidden characters that were added, a tool that newly
asks for a credential, for the conversation, or to send something to an address, and hints that no
longer promise harmlessness. Pure functions.
Does not belong here: a scan of one version for poisoned text.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from assets.contracts.schema_diff import Finding, step

_ORDERS = re.compile(
    r"<\s*/?\s*(?:important|system|secret|instructions?)\s*>"
    r"|\b(?:ignore|disregard|forget|override)\b.{0,40}?\b(?:previous|prior|above|other|all|earlier)"
    r"\b.{0,30}?\binstruction"
    r"|\b(?:do not|don't|never) (?:tell|mention|inform|reveal|notify|show)\b"
    r"|\bwithout (?:telling|informing|notifying|mentioning)\b"
    r"|~/\.ssh|\bid_rsa\b|/etc/(?:passwd|shadow)|\.aws/credentials|\bmcp\.json\b"
    r"|\bbefore (?:using|calling|invoking) (?:this|any|other)\b.{0,60}?"
    r"\b(?:read|send|call|pass|include)\b"
    r"|\b(?:instead of|rather than) (?:using|calling) (?:the )?(?:other|any)\b",
    re.IGNORECASE | re.DOTALL,
)
_SENDING = re.compile(
    r"\b(?:send|post|upload|forward|submit|report|transmit|copy|deliver)\b[^.\n]{0,80}?"
    r"(?:https?://[^\s\"'<>)]{1,200}|\b[\w.+-]{1,64}@[\w-]{1,63}\.[\w.]{2,63})",
    re.IGNORECASE,
)
_CREDENTIAL = re.compile(
    r"\b(?:provide|include|send|pass|paste|enter|supply|attach|give|read)\b[^.\n]{0,40}?"
    r"\b(?:api[ _-]?keys?|access[ _-]?tokens?|auth(?:entication)? tokens?|passwords?|secrets?"
    r"|credentials?|private[ _-]?keys?|ssh[ _-]?keys?|seed phrase|session cookies?)\b",
    re.IGNORECASE,
)
_ASKED_NAME = re.compile(
    r"(?:^|_)(?:api_?key|access_?key|access_?token|auth_?token|password|passwd|secret|credentials?"
    r"|private_?key|ssh_?key|seed_?phrase|system_?prompt|conversation(?:_?history)?|chat_?history"
    r"|all_?messages|environment_?variables?)(?:$|_)",
    re.IGNORECASE,
)
# Zero-width, bidirectional, tag and filler characters; joiners only after Latin text, because
# emoji and Indic, Arabic and Persian scripts need them.
_HIDDEN = re.compile(
    "[\u00ad\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\u3164\ufeff\uffa0"
    "\U000e0000-\U000e0fff\x1b]|(?<![^\x00-\u024f])[\u200c\u200d]"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]+")
_HARMLESS = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
_PRESUMED = {  # what the protocol says a client must assume
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}


def alarms(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> list[Finding]:
    """Texts of the contract `new` that are alarming and were not in `old` (None: a new tool)."""
    before = Counter(kind for _, text in texts(old or {}) for kind in _kinds(text))
    found = []
    for path, text in texts(new):
        fresh = []
        for kind in _kinds(text):
            before[kind] -= 1
            if before[kind] < 0 and kind[0] not in fresh:
                fresh.append(kind[0])
        if fresh:
            found.append(Finding(path, "suspicious", "; ".join(fresh)))
    asked = _asked(new) - _asked(old) if old else set()
    for name in sorted(asked):
        where = f"inputSchema.properties{step(name)}"
        found.append(Finding(where, "suspicious", "it newly asks for what a tool need not know"))
    return found


def annotation_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Finding]:
    """The class of each hint that differs.

    A promise of harmlessness that is withdrawn is suspicious, as clients let such tools run
    unasked; so is one made against the tool's own word. Repeating a call may do harm once
    `idempotentHint` is withdrawn: breaking. A first promise, or a default spelt out, is compatible.
    """
    found = []
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        if key in old and key in new and was is now:
            continue
        if json.dumps(was, sort_keys=True) != json.dumps(now, sort_keys=True):
            cls, why = _hint(key, was, now)
            found.append(Finding(f"annotations{step(key)}", cls, why))
    return found


def _hint(key: str, was: Any, now: Any) -> tuple[str, str]:
    told = f"{json.dumps(was)} became {json.dumps(now)}"[:200].replace("null", "nothing")
    if key not in _PRESUMED:
        return "wording", told
    before = was if isinstance(was, bool) else _PRESUMED[key]
    after = now if isinstance(now, bool) else _PRESUMED[key]
    if before == after:
        return "compatible", f"{told}: the same, spelt out or left to the default"
    if key == "idempotentHint":
        return ("breaking", f"{told}: a call may no longer be repeated") if before else (
            "compatible", told)  # fmt: skip
    if before == _HARMLESS[key]:
        return "suspicious", f"{told}: it no longer promises to be harmless"
    if isinstance(was, bool) and key != "openWorldHint":
        return "suspicious", f"{told}: it calls itself harmless against its own word"
    return "compatible", told


def texts(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(path, text) of every string in a contract, names of keys included, sorted by path."""
    stack: list[tuple[str, Any]] = [(str(key), body[key]) for key in sorted(body, reverse=True)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, Mapping):
            for key in sorted(value, reverse=True):
                below = f"{path}{step(key)}"
                stack.append((below, value[key]))
                stack.append((below, key))
        elif isinstance(value, list):
            stack.extend((f"{path}[{i}]", part) for i, part in reversed(list(enumerate(value))))


def _kinds(text: str) -> Iterator[tuple[str, str]]:
    """(what is wrong, the text that says so), once for each place."""
    if not text.isascii() or "\x1b" in text:
        for hit in _HIDDEN.finditer(text):
            yield "hidden characters were added", f"U+{ord(hit.group()[0]):04X}"
    if len(text) < 5:
        return
    for hit in _ORDERS.finditer(text):
        yield "it turned into orders to the model", hit.group().lower()[:80]
    for hit in _SENDING.finditer(text):
        yield "it newly asks to send something to an address", hit.group().lower()[:200]
    for hit in _CREDENTIAL.finditer(text):
        yield "it newly asks for a credential", hit.group().lower()[:80]


def _asked(body: Mapping[str, Any]) -> set[str]:
    properties = body["inputSchema"].get("properties")
    if not isinstance(properties, Mapping):
        return set()
    return {name for name in properties if _ASKED_NAME.search(_CAMEL.sub("_", name[:200]))}
