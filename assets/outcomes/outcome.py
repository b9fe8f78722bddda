"""The outcome of one executed call: what it did, whose fault it is, and by what evidence."""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from assets.servers.calls.attribution import CallFault, find_fault
from assets.servers.calls.result import CallResult, find_kind
from assets.servers.probe.failure_kinds import Blame
from warehouse.patterns import compile_pattern
from warehouse.storage.digest import sha256

_SAYS_FAILED = re.compile(
    r"\W{0,4}(?:error\b(?! rate| code| log)|an? (?:\w+ ){0,2}error (?:occurred|has occurred)"
    r"|failed to\b|failure:|exception:|traceback \(|unable to\b|could not\b|cannot\b|[45]\d\d:)",
    re.IGNORECASE,
)
_FAILED_FLAGS = {"success": False, "ok": False, "isError": True, "is_error": True}
_READ = 1000  # characters of what says that it failed
_LINES = 5  # of a text in which a status may stand
_INNER = 20  # members of an answer that are looked into

_PHRASES = {status.value: status.phrase.casefold() for status in HTTPStatus if status.value >= 400}
_STATUS = re.compile(r"([45]\d\d)(?:\s+([A-Za-z][\w '-]{0,60}))?")
_STATUS_LINE = re.compile(
    r"\W{0,4}(?:HTTP/\d(?:\.\d)?\s+|(?:(?:http|response)\W{0,2})?status(?:[ _-]?code)?\W{1,5})"
    r"([45]\d\d)\b\W{0,4}([^\n]{0,60})",
    re.IGNORECASE,
)
_TITLE = compile_pattern(r"(?i)<(?:title|h1)[^>]*>\s*([45]\d\d)\b\W{0,4}([^<\n]{0,60})")
_HTML = re.compile(r"\s*<(?:!doctype html|html|head|title)\b", re.IGNORECASE)
# Members by their letters alone: what holds a status, and what shows that it is one of HTTP.
_HOLDERS = (
    *("status", "statuscode", "httpstatus", "httpcode", "httpstatuscode", "responsecode"),
    *("responsestatus", "code"),
)
_SHOWS = {"headers", "responseheaders", "body", "statustext", "statusmessage", "reasonphrase"}
_MESSAGES = {"message", "error", "detail", "title"}  # of RFC 9457 and of frameworks' own errors
# RFC 9110 and 6585: the caller's to prove who it is; the service's load and time; else by class.
_SECRET, _LATER = (401, 403, 407), (408, 425, 429)


@dataclass(frozen=True)
class StatedFailure:
    """words: what it says. status: of HTTP, None where it tells none."""

    words: str
    status: int | None = None

    def find_fault(self, arguments: Any, **launch: Any) -> CallFault:
        """Whose it is: of a status by its class, where a client error is the caller's if the call
        says what is asked for; of words as `find_fault` reads them."""
        if self.status in _SECRET:
            return CallFault("needs_secret", self.words[:200])
        if self.status in _LATER or (self.status or 0) >= 500:
            return CallFault("upstream_error", self.words[:200])
        if self.status and any(map(_is_address, _iter_texts(arguments))):
            return CallFault("invalid_arguments", self.words[:200])
        return find_fault(self.words, arguments=arguments, **launch)


def find_stated_failure(text: str, structured: Any) -> StatedFailure | None:
    """What an answer that claims success says of its failure, None where it says none."""
    answer: Any = structured if not text else None
    if text.lstrip()[:1] == "{":
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
    if not isinstance(answer, Mapping):
        failure = _read_status(text)
        says = failure is None and _SAYS_FAILED.match(text)
        return StatedFailure(text.strip()[:_READ]) if says else failure
    if (failure := _find_status_member(answer)) is not None:
        return failure
    flagged = any(answer.get(name) is value for name, value in _FAILED_FLAGS.items())
    if not (error := answer.get("error")) and not flagged:
        return None
    words = error or answer.get("message") or answer
    return StatedFailure((words if isinstance(words, str) else json.dumps(words))[:_READ])


def _find_status_member(answer: Mapping[str, Any]) -> StatedFailure | None:
    """The failure of an HTTP response or of a framework's error: all of an answer, or a member."""
    inner = [item for item in list(answer.values())[:_INNER] if isinstance(item, Mapping)]
    for candidate in (answer, *inner):
        items = list(candidate.items())[:200]
        members = {re.sub(r"[^a-z]", "", str(name).lower()): value for name, value in items}
        for name in _HOLDERS:
            status = _parse_status(members.get(name))
            if status and (_SHOWS & members.keys() or _has_phrase(members, status)):
                return StatedFailure(_join_words(status, members), status)
    return None


def _has_phrase(members: Mapping[str, Any], status: int) -> bool:
    """Whether a response's other members tell a failure, in words or the status's own phrase."""
    texts = {name: value for name, value in members.items() if isinstance(value, str)}
    phrases = {item.strip().casefold() for item in texts.values()}
    return bool(_MESSAGES & texts.keys()) or _PHRASES.get(status, "") in phrases


def _join_words(status: int, members: Mapping[str, Any]) -> str:
    texts = [text for name in sorted(_MESSAGES) if isinstance(text := members.get(name), str)]
    words = [f"HTTP {status} {_PHRASES.get(status, '')}".strip(), *texts]
    return ": ".join(words)[:_READ]


def _parse_status(value: Any) -> int | None:
    if isinstance(value, str) and (match := _STATUS.fullmatch(value.strip())):
        return int(match[1])
    return value if isinstance(value, int) and 400 <= value < 600 else None


def _read_status(text: str) -> StatedFailure | None:
    """The failure that a text's first lines, or an HTML page's title, tell by a status."""
    if _HTML.match(text):
        match = _TITLE.search(text[:_READ])
        return _tell_status(match[1], match[2], text) if match else None
    lines = [line for line in text[: 4 * _READ].splitlines() if line.strip()][:_LINES]
    for at, line in enumerate(lines):
        match = _STATUS_LINE.fullmatch(line)
        if match and (failure := _tell_status(match[1], match[2], text)):
            return failure
        bare = _STATUS.fullmatch(line.strip()) if at == 0 else None
        if bare and bare[2]:
            return _tell_status(bare[1], bare[2], text)
    alone = text.strip().rstrip(".").casefold()
    status = next((code for code, phrase in _PHRASES.items() if phrase == alone), None)
    return StatedFailure(text.strip(), status) if status else None


def _tell_status(number: str, words_after: str, text: str) -> StatedFailure | None:
    """None where other words than the status's own follow it: 450 rows are no failure."""
    status, phrase = int(number), words_after.strip(" \t.*_`)]").casefold()
    expected_phrase = _PHRASES.get(status, "")
    if phrase and not (expected_phrase and phrase.startswith(expected_phrase)):
        return None
    return StatedFailure(text.strip()[:_READ], status)


def _is_address(text: str) -> bool:
    """Whether a text says where a request goes: a URL, or the path of one."""
    return bool(re.match(r"https?://|/[\w.~%-]", text, re.IGNORECASE))


def _iter_texts(arguments: Any) -> Iterator[str]:
    stack, left = [arguments], 200
    while stack and left:
        item, left = stack.pop(), left - 1
        if isinstance(item, Mapping):
            stack += item.values()
        elif isinstance(item, list | tuple):
            stack += item
        elif isinstance(item, str):
            yield item.strip()


USEFUL = "useful"
EMPTY = "empty"  # answered, and nothing in it
TRUNCATED = "truncated"  # more than our limits let through
CANNED = "canned"  # one text for inputs that differ
REFUSED = "refused"  # not sent, or answered with what nobody may be handed
TOOL_ERROR = "tool_error"  # the tool says that it failed
TIMEOUT = "timeout"
PROTOCOL_ERROR = "protocol_error"  # no answer of MCP, or one against the tool's own contract
OUTCOMES = (*(USEFUL, EMPTY, TRUNCATED, CANNED), *(REFUSED, TOOL_ERROR, TIMEOUT, PROTOCOL_ERROR))

_TIMEOUTS = ("timeout_call", "timeout_host", "timeout_start", "timeout_list")
_BROKE = (  # while the call was made; every other failure kept it from being sent
    *("crashed", "protocol_error", "remote_down", "out_of_memory", "too_many_processes"),
    *("disk_full", "no_tools"),
)
_NOTHING = re.compile(
    r"\W*(?:none|null|undefined|n/?a|nothing(?: found)?|empty"
    r"|no (?:\w+ ){0,4}(?:found|available|yet)(?: (?:in|for|with|at) [^\n\d.:]{1,60})?"
    r"|(?:found )?(?:0|zero) (?:\w+ )?(?:results?|matches|items|rows|files|entries|records)"
    r"|no (?:results?|matches|items|rows|entries|records))\W*",
    re.IGNORECASE,
)
_WENT_WELL = (("success", True), ("ok", True), ("status", "ok"), ("status", "success"))
# Lists that are empty where all is well.
_PROBLEMS = {"errors", "warnings", "problems", "issues"}
_ALIKE = 40  # characters from which one text for two inputs is no coincidence
_OFTEN = 3  # inputs from which a short one is none either


@dataclass(frozen=True)
class CallOutcome:
    """kind: of OUTCOMES. blame: None where nothing went wrong. evidence: what both rest on."""

    kind: str
    blame: Blame | None = None
    evidence: str = ""


def classify_outcome(
    result: CallResult, arguments: Any = None, *, offline: bool = False, local: bool = True
) -> CallOutcome:
    """The outcome of one call by its own result. offline, local: as in `find_fault`."""
    hint = " ".join((result.hint or "").split())[:300]
    if result.status in ("failed", "invalid_arguments"):
        error = str(result.error_kind)
        kind = TIMEOUT if error in _TIMEOUTS else PROTOCOL_ERROR if error in _BROKE else REFUSED
        kind = TRUNCATED if error == "oversize" else kind
        return CallOutcome(kind, result.blame, hint)
    if result.status == "tool_error":
        return CallOutcome(TOOL_ERROR, result.blame, hint)
    if result.alarming:
        source: Blame = "tool" if offline and not result.reached else "upstream"
        return CallOutcome(REFUSED, source, f"its words break {', '.join(result.alarming)}")
    if result.problems:
        problem = result.problems[0]
        mismatch = f"{problem.get('path')}: found {problem.get('found')}"
        blame: Blame = "policy" if result.cut else "tool"
        return CallOutcome(TRUNCATED if result.cut else PROTOCOL_ERROR, blame, mismatch[:300])
    if result.cut or result.unread:
        return CallOutcome(TRUNCATED, "policy", "the answer is longer than what is kept or scanned")
    text = read_text(result)
    if failure := find_stated_failure(text, result.structured):
        launch = {"offline": offline, "local": local, "reached": result.reached}
        fault = failure.find_fault(arguments, **launch)
        evidence = fault.evidence or failure.words
        return CallOutcome(TOOL_ERROR, find_kind(fault.kind).blame, f"without isError: {evidence}")
    if is_empty(result, arguments):
        return CallOutcome(EMPTY, None, f"it answered {text.strip()[:60]!r}")
    return CallOutcome(USEFUL)


def read_text(result: CallResult) -> str:
    """What the text blocks of a result say, those of resources too."""
    blocks = (block.get("resource") or block for block in result.content)
    return "\n".join(item["text"] for item in blocks if isinstance(item.get("text"), str))


def is_empty(result: CallResult, arguments: Any = None) -> bool:
    """Whether an answer says nothing: no content, JSON without a value in it, or a word for it."""
    echoes = {*_iter_texts(arguments)} - {""}
    if any(map(holds_media, result.content)) or _holds_value(result.structured, echoes):
        return False
    text = read_text(result).strip()
    try:
        return not _holds_value(json.loads(text), echoes) if text else True
    except (ValueError, RecursionError):
        return bool(_NOTHING.fullmatch(text))


def holds_media(block: Mapping[str, Any]) -> bool:
    """Whether a content block is more than text: bytes, or a link to something."""
    inner = block.get("resource") or {}
    return bool(block.get("data") or block.get("type") == "resource_link" or inner.get("blob"))


def digest_answer(result: CallResult) -> str:
    """Digest of what a result says, however its JSON is laid out: two that are alike are one."""
    text = read_text(result)
    try:
        answer: Any = json.loads(text) if text else ""
    except (ValueError, RecursionError):
        answer = text.strip()
    media = [
        part.get("data") or part.get("blob")
        for block in result.content
        for part in (block, block.get("resource") or {})
        if part.get("data") or part.get("blob")
    ]
    structured = None if text else result.structured  # they say the same, where both are there
    facts = [result.status, answer, media, structured]
    # Not the canonical form: an integer beyond 2**53 has none.
    return sha256(json.dumps(facts, sort_keys=True).encode())


def find_canned(calls: Iterable[tuple[str, str, int]]) -> set[str]:
    """The answers that a tool gives whatever it is asked, by digest; calls: (canonical arguments,
    digest of the answer, its characters) of one tool's useful calls in one state of the world."""
    inputs: dict[str, set[str]] = defaultdict(set)
    sizes: dict[str, int] = {}
    for arguments, answer, size in calls:
        inputs[answer].add(arguments)
        sizes[answer] = size
    if len(inputs) != 1:  # a tool that once answers otherwise reads its input
        return set()
    return {
        answer
        for answer, argument_sets in inputs.items()
        if len(argument_sets) >= (2 if sizes[answer] >= _ALIKE else _OFTEN)
    }


def _holds_value(value: Any, echoes: Collection[str]) -> bool:
    """Whether any leaf of a JSON value says something. Zero and false do, but for a zero beside an
    empty list and both beside words for nothing; there an echo of an argument says nothing, nor
    does that the call went well."""
    words = lists = count = denial = False
    stack = [("", value)]
    while stack:
        name, item = stack.pop()
        if isinstance(item, Mapping):
            stack += item.items()
        elif isinstance(item, list):
            lists |= not item and str(name).lower() not in _PROBLEMS
            stack += [(name, member) for member in item]
        elif isinstance(item, str) and len(item) <= _READ and _NOTHING.fullmatch(item):
            words = True
        elif item is False and name not in _FAILED_FLAGS:
            denial = True
        elif item in (0, *echoes) or (name, item) in _WENT_WELL:
            count = True
        elif item is not None and item != "":
            return True
    return (count and not (words or lists)) or (denial and not words)
