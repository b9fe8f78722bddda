"""Attribution: who has to fix an error, read from the server's own words."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assets.servers.calls.result import find_kind
from assets.servers.probe.failure_kinds import find_words
from warehouse.patterns import Match, compile_pattern

INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601
_READ = 4000  # characters of an answer that are judged

_ARGUMENTS = compile_pattern(
    r"(?i)input validation error|invalid arguments?\b|invalid (params|parameters|input)\b"
    r"|\d+ validation errors? for|is a required property|is not of type '"
    r"|missing (?:\d+ )?required (?:positional |keyword-only )?(?:argument|parameter|propert|field)"
    r"|unexpected keyword argument|field required|\"code\": ?\"invalid_type\""
    r"|-32602|must have required property|additional propert(?:y|ies)\b.{0,40}not allowed"
    r"|unrecognized key|required parameter|parameter '?\w+'? is required|expected \w+, received"
)
_SECRET = compile_pattern(
    r"(?i)\b401\b|\b403 forbidden|\b(?:status|code|error|http)\W{0,3}(?:\w+\W{1,3}){0,2}403\b"
    r"|unauthori[sz]ed|unauthenticated|not authenticated|not_authed|\bNOAUTH\b"
    r"|invalid[ _](?:auth\w*|grant|login|client|(?:api|access|bearer|bot)[ _-]?(?:key|token)s?)\b"
    r"|authenti\w+ (?:\w+ )?(?:failed|required|error)|bad credentials|(?:login|log ?in) failed"
    r"|(?:logged|log|sign) ?in\b.{0,20}(?:first|required|to)|access denied for user|publickey"
    r"|(?:api|access|auth\w*|security|bearer|bot|jwt|oauth|session|refresh|personal)[ _-]?"
    r"(?:key|token|grant)?s?\b.{0,40}"
    r"(?:is required|missing|invalid|not set|expired|revoked|not provided|incorrect)"
    r"|(?:missing|no|not provide|without|incorrect|need|set)\b.{0,12}\b"
    r"(?:api|access|auth\w*|bearer)[ _-]?(?:key|token)"
    r"|(?:locate|determine|find|load|no|missing|invalid|wrong|expired) (?:\w+ )?credentials?\b"
    r"|personal access token|(?:secret |)access key\b|wrong password"
    r"|\b[A-Z][A-Z0-9]*_(?:[A-Z0-9]+_)*(?:KEY|TOKEN|SECRET|PASSWORD)\b.{0,40}"
    r"(?:required|missing|not set|must|undefined)"
)
_NETWORK = re.compile(
    r"\b(?:ENETUNREACH|EHOSTUNREACH|EAI_AGAIN|ENOTFOUND|ECONNREFUSED)\b|getaddrinfo"
    r"|name resolution|connection refused"
    r"|name or service not known|network is unreachable|fetch failed|failed to fetch"
    r"|no route to host|could not resolve host|all connection attempts failed|ERR_INTERNET_"
    r"|ERR_NAME_NOT_RESOLVED|failed to establish a new connection",
    re.IGNORECASE,
)
_STATUS = re.compile(r"\b(?:429|50[0234])\b")
# Of SDKs and of the specification, for a plain call of a tool that runs as a task.
_TASK = compile_pattern(
    r"(?i)(?:requires?|needs|only|must be)\b.{0,60}\btask[- ](?:augment|based)"
    r"|task[- ]augment\w* (?:is )?required|taskSupport\W{1,4}required"
)
# Of the tool itself: SDKs put "Error executing tool NAME: " before whatever else was not found.
_UNKNOWN_TOOL = compile_pattern(
    r"(?i)unknown tool|no such tool|\btool (?:(?:named|called) )?['\"`]?[\w./:-]*\w['\"`]?"
    r" (?:(?:was|is|could) )?not (?:be )?found|\btool not found"
)
# An answer of a service: what was asked for is not there.
_MISSING = compile_pattern(
    r"(?i)\b(?:http|status|code|error)\b\W{0,3}(?:\w+\W{1,3}){0,2}(?:404|410)\b"
    r"|\b(?:404|410)\b\W{0,3}(?:not found|gone)"
)
_LIMITS = ("out_of_memory", "too_many_processes", "disk_full", "read_only")  # of the sandbox
_PROGRAM = compile_pattern(
    r"(?i)executable doesn't exist|command not found|spawn \S+ ENOENT|cannot open shared object"
    r"|no such file or directory: '(?:/\S+/)?(?:docker|git|java|uv|npx|chrom\w+|ffmpeg|kubectl"
    r"|psql|libreoffice|soffice|pandoc|convert|tesseract)'"
    r"|(?:chrom\w+|browser|docker|ffmpeg|libreoffice|java|git)\b.{0,60}"
    r"(?:is not (?:found|installed)|not found at|not installed)"
)
_UPSTREAM = compile_pattern(
    r"(?i)\b(?:http|status|code|error|returned|responded|response)\b\W{0,3}(?:\w+\W{1,3}){0,2}"
    r"(?:429|5\d\d)\b"
    r"|\b(?:429|50[0234])\b.{0,20}(?:too many|bad gateway|unavailable|time-?out|server error)"
    r"|rate[ _-]?limit|too many requests|bad gateway|service (?:is )?(?:temporarily )?unavailable"
    r"|gateway time-?out|internal server error|quota (?:was |has been )?exceeded"
    r"|exceeded .{0,30}quota|rate exceeded|throttl|socket hang up|ECONNRESET|ETIMEDOUT"
    r"|(?:read|request|operation|connection) (?:\w+ )?(?:timed out|timeout)|idle timeout"
    r"|connection reset|closed connection|overloaded|currently unavailable"
    r"|upstream (?:\w+ )?(?:error|failed|did not|timed)|(?:backend|gateway) (?:\w+ )?failed"
    r"|\brobots\.txt\b.{0,120}(?:not allowed|disallow|forbid|prohibit)"
)
# What only a program that went wrong says, whatever values it names beside it.
_BUG = re.compile(
    r"Traceback \(most recent|\b(?:Type|Attribute|Key|Index|Name|ZeroDivision|Recursion|Reference"
    r"|UnboundLocal|NotImplemented|Assertion)Error\b|cannot read propert|NullPointer"
    r"|is not a function|undefined is not|'NoneType'|panic:|segmentation fault"
    r"|unhandled exception",
    re.IGNORECASE,
)
_REJECTS = compile_pattern(
    r"(?i)not found|no such|does ?n[o']t exist|do(?:es)? not (?:exist|match)|unknown|invalid"
    r"|not (?:a )?valid|outside|not allowed|not permitted|denied|unsupported|not supported"
    r"|unrecogni[sz]ed|must (?:be|point|contain|have|start|end|match|not)|expected"
    r"|cannot contain|out of range|too (?:long|large|short|many)|already exists"
    r"|(?:could|can)(?: ?no|')t (?:be )?(?:find|found|pars|read|open|resolve)|is missing|malformed"
    r"|no (?:\w+ ){1,3}(?:was |were )?found|is required|did not match|there is no"
    r"|nothing matches|not in\b|should be|(?:is|was) not one of"
    r"|ENOENT|EEXIST|EISDIR|ENOTDIR"
)
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
    if match := _TASK.search(head):
        return CallFault("needs_task", _quote_line(head, match))
    if code == METHOD_NOT_FOUND:
        return CallFault("tool_gone")
    if match := _UNKNOWN_TOOL.search(head):
        return CallFault("tool_gone", _quote_line(head, match))
    # An answer with a status came from somewhere: the network was there.
    missing = _MISSING.search(head)
    if (network := _NETWORK.search(head)) and not (missing or _STATUS.search(head)):
        ours = offline and not _holds_host(head, arguments, reached)
        return CallFault("needs_network" if ours else "upstream_error", _quote_line(head, network))
    if code == INVALID_PARAMS:
        return CallFault("invalid_arguments")
    if match := _ARGUMENTS.search(head):
        return CallFault("invalid_arguments", _quote_line(head, match))
    if match := _SECRET.search(head):  # before limits: "permission denied (publickey)"
        return CallFault("needs_secret", _quote_line(head, match))
    if local and (limit := find_words(head, _LIMITS)):
        return CallFault(limit.kind, limit.detail.removeprefix("said "))
    for kind, words in (
        *((("needs_software", _PROGRAM),) if local else ()),
        ("upstream_error", _UPSTREAM),
        ("tool_error", _BUG),
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
        rejected = whole or _REJECTS.search(line) or _MISSING.search(line)
        if rejected and (whole or any(_holds_word(folded, word) for word in words)):
            return line.strip()[:_EVIDENCE]
    return ""


def _holds_host(text: str, arguments: Any, hosts: Collection[str]) -> bool:
    """Whether an error or the call's arguments name one of these hosts."""
    texts = [text, *_iter_words(arguments)] if hosts else []
    return any(host in word.casefold() for host in hosts for word in texts)


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
