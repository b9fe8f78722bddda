"""Attribution: who has to fix an error, read from the server's own words."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assets.servers.calls.result import find_kind
from assets.servers.probe.failure_kinds import find_words
from warehouse.patterns import Match, compile_pattern
from warehouse.storage.files import read_data

INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601
_READ = 4000  # characters of an answer that are judged

_PHRASES = {
    name: compile_pattern(f"(?i){'|'.join(forms)}")
    for name, forms in read_data(__file__, "attribution.toml").items()
}
_STATUS = re.compile(r"\b(?:429|50[0234])\b")
_LIMITS = ("out_of_memory", "too_many_processes", "disk_full", "read_only")  # of the sandbox
_LEAST = 3  # characters of a value that is found again in an answer
_VALUES = 200  # of a call's arguments that are looked for
_EVIDENCE = 200  # characters of evidence


@dataclass(frozen=True)
class CallFault:
    """kind: of KINDS or CALL_KINDS; `find_kind` says whose it is. evidence: the line it rests on,
    "" where that is the failure itself or its code."""

    kind: str
    evidence: str = ""


@dataclass(frozen=True)
class JudgedError:
    """What a tool's error comes from (kind, of KINDS or CALL_KINDS), and what to do."""

    kind: str
    hint: str


def judge_error(
    message: str,
    code: int | None = None,
    *,
    refused: Sequence[str] = (),
    offline: bool = False,
    local: bool = True,
    reached: Collection[str] = (),
    arguments: Any = None,
) -> JudgedError:
    """Whose an error is, by `find_fault` and by the hosts that the server asked for meanwhile and
    was refused."""
    launch = {"offline": offline, "local": local, "reached": reached}
    fault = find_fault(message, code, arguments=arguments, **launch)
    kind = find_network_kind(fault.kind, refused)
    line, about = fault.evidence or " ".join(message.split())[:200], find_kind(kind)
    hint = f"{line}: {about.hint}" if line else about.hint
    if kind == "needs_network":
        hint = f"{line}: the server does not reach it"
    return JudgedError(kind, hint)


def find_network_kind(kind: str, refused: Sequence[str]) -> str:
    """The kind of a failure: a host that was refused explains what has no other reason."""
    unexplained = kind in ("tool_error", "upstream_error", "timeout_call")
    return "needs_network" if refused and unexplained else kind


def find_fault(
    text: str,
    code: int | None = None,
    *,
    offline: bool = False,
    local: bool = True,
    reached: Collection[str] = (),
    arguments: Any = None,
) -> CallFault:
    """What a tool's error comes from, by its words; the strongest evidence first, and the tool
    itself only where nothing else is named.

    code: of a JSON-RPC error, None where the tool itself says that it failed. offline: the server
    runs without a network, by our settings; reached: names of the hosts that it was granted all
    the same. local: it runs in our sandbox, whose limits it may meet. arguments: of the call, so
    that an error which names one of them is laid to it.
    """
    head = text[:_READ]
    if match := _PHRASES["task"].search(head):
        return CallFault("needs_task", _quote_line(head, match))
    if code == METHOD_NOT_FOUND:
        return CallFault("tool_gone")
    if match := _PHRASES["unknown_tool"].search(head):
        return CallFault("tool_gone", _quote_line(head, match))
    # An answer with a status came from somewhere: the network was there.
    missing = _PHRASES["missing"].search(head)
    if (network := _PHRASES["network"].search(head)) and not (missing or _STATUS.search(head)):
        texts = [head, *_iter_words(arguments)] if reached else []
        ours = offline and not any(host in word.casefold() for host in reached for word in texts)
        return CallFault("needs_network" if ours else "upstream_error", _quote_line(head, network))
    if code == INVALID_PARAMS:
        return CallFault("invalid_arguments")
    if match := _PHRASES["arguments"].search(head):
        return CallFault("invalid_arguments", _quote_line(head, match))
    if match := _PHRASES["secret"].search(head):  # before limits: "permission denied (publickey)"
        return CallFault("needs_secret", _quote_line(head, match))
    if local and (limit := find_words(head, _LIMITS)):
        return CallFault(limit.kind, limit.detail.removeprefix("said "))
    for kind, words in (
        *((("needs_software", _PHRASES["program"]),) if local else ()),
        ("upstream_error", _PHRASES["upstream"]),
        ("tool_error", _PHRASES["bug"]),
    ):
        if match := words.search(head):
            return CallFault(kind, _quote_line(head, match))
    if rejected_line := _find_named_argument(head, arguments):
        return CallFault("invalid_arguments", rejected_line)
    return (
        CallFault("upstream_error", _quote_line(head, missing))
        if missing
        else CallFault("tool_error")
    )


def _find_named_argument(text: str, arguments: Any) -> str:
    """The first line that rejects a value or a parameter of the call; "" where none does."""
    words = {word.casefold() for word in _iter_words(arguments)}
    for line in text.splitlines() if words else ():
        folded = line.casefold()
        # Nothing but a value of the call, as GitPython says it, or a word of it that is rejected.
        whole = folded.rpartition(": ")[2].strip() in words
        rejected = whole or _PHRASES["rejects"].search(line) or _PHRASES["missing"].search(line)
        if rejected and (whole or any(_holds_word(folded, word) for word in words)):
            return line.strip()[:_EVIDENCE]
    return ""


def _holds_word(line: str, word: str) -> bool:
    at = line.find(word)
    while at >= 0:
        end = at + len(word)
        joints = (line[max(0, at - 1) : at + 1], line[end - 1 : end + 1])
        if not any(len(joint) > 1 and joint.isalnum() for joint in joints):
            return True
        at = line.find(word, at + 1)
    return False


def _iter_words(arguments: Any) -> Iterator[str]:
    """Values of a call's arguments, the last part of paths, and the names of its parameters."""
    stack, left = [arguments], _VALUES
    while stack and left:
        item, left = stack.pop(), left - 1
        if isinstance(item, dict):
            for name, value in item.items():
                yield from (part for part in re.split(r"[^a-zA-Z]+", name) if len(part) >= _LEAST)
                stack.append(value)
        elif isinstance(item, list | tuple):
            stack += item
        elif isinstance(item, str) and len(item.strip()) >= _LEAST:
            yield item.strip()
            last = item.rstrip("/").rpartition("/")[2]
            if len(last) >= _LEAST:
                yield last
        elif isinstance(item, int | float) and not isinstance(item, bool) and len(str(item)) > 1:
            yield str(item)


def _quote_line(text: str, match: Match | re.Match[str]) -> str:
    """The line in which words were found."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    line = text[start : end if end >= 0 else len(text)]
    return " ".join(line.split())[:_EVIDENCE]
