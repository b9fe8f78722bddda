"""The outcome of one executed call: what it did, whose fault it is, and by what evidence."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assets.outcomes.stated_failure import find_stated_failure
from assets.servers.calls.result import CallResult, find_kind
from assets.servers.probe.failure_kinds import Blame
from warehouse.storage.digest import sha256

USEFUL = "useful"
EMPTY = "empty"  # answered, and nothing in it
TRUNCATED = "truncated"  # more than our limits let through
CANNED = "canned"  # one text for inputs that differ
STALE = "stale"  # the answer of a state that is gone
REFUSED = "refused"  # not sent, or answered with what nobody may be handed
TOOL_ERROR = "tool_error"  # the tool says that it failed
TIMEOUT = "timeout"
PROTOCOL_ERROR = "protocol_error"  # no answer of MCP, or one against the tool's own contract
OUTCOMES = (
    *(USEFUL, EMPTY, TRUNCATED, CANNED, STALE),
    *(REFUSED, TOOL_ERROR, TIMEOUT, PROTOCOL_ERROR),
)

_TIMEOUTS = ("timeout_call", "timeout_host", "timeout_start", "timeout_list")
_BROKE = (  # while the call was made; every other failure kept it from being sent
    *("crashed", "protocol_error", "remote_down", "out_of_memory", "too_many_processes"),
    *("disk_full", "no_tools"),
)
_NOTHING = re.compile(
    r"\W*(?:none|null|undefined|n/?a|nothing(?: found)?|empty"
    r"|no (?:\w+ ){0,4}(?:found|available|yet)(?: (?:in|for|with|at) [^\n\d.:]{1,60})?"
    r"|0 (?:results?|matches|items|rows))\W*",
    re.IGNORECASE,
)
_ALIKE = 40  # characters from which one text for two inputs is no coincidence
_OFTEN = 3  # inputs from which a short one is none either


@dataclass(frozen=True)
class Outcome:
    """kind: of OUTCOMES. blame: None where nothing went wrong. evidence: what both rest on."""

    kind: str
    blame: Blame | None = None
    evidence: str = ""

    @property
    def counts_against_tool(self) -> bool:
        """Nothing but a fault of the tool's own does."""
        return self.blame == "tool"


def classify_outcome(
    result: CallResult, arguments: Any = None, *, offline: bool = False, local: bool = True
) -> Outcome:
    """The outcome of one call, as far as its own result shows it.

    offline, local: as in `find_fault`. What only other calls show is found by `find_canned` and
    `is_stale`.
    """
    hint = " ".join((result.hint or "").split())[:300]
    if result.status in ("failed", "invalid_arguments"):
        return Outcome(_classify_failure(str(result.error_kind)), result.blame, hint)
    if result.status == "tool_error":
        return Outcome(TOOL_ERROR, result.blame, hint)
    if result.alarming:
        source: Blame = "tool" if offline and not result.reached else "upstream"
        return Outcome(REFUSED, source, f"its words break {', '.join(result.alarming)}")
    if result.problems:
        problem = result.problems[0]
        found = f"{problem.get('path')}: found {problem.get('found')}"
        blame: Blame = "policy" if result.cut else "tool"
        return Outcome(TRUNCATED if result.cut else PROTOCOL_ERROR, blame, found[:300])
    if result.cut or result.unread:
        return Outcome(TRUNCATED, "policy", "the answer is longer than what is kept or scanned")
    text = read_text(result)
    if failure := find_stated_failure(text, result.structured):
        launch = {"offline": offline, "local": local, "reached": result.reached}
        fault = failure.find_fault(arguments, **launch)
        evidence = fault.evidence or failure.words
        return Outcome(TOOL_ERROR, find_kind(fault.kind).blame, f"without isError: {evidence}")
    if is_empty(result):
        return Outcome(EMPTY, None, f"it answered {text.strip()[:60]!r}")
    return Outcome(USEFUL)


def _classify_failure(kind: str) -> str:
    if kind in _TIMEOUTS:
        return TIMEOUT
    if kind == "oversize":
        return TRUNCATED
    return PROTOCOL_ERROR if kind in _BROKE else REFUSED


def read_text(result: CallResult) -> str:
    """What the text blocks of a result say, those of resources too."""
    held = (block.get("resource") or block for block in result.content)
    return "\n".join(one["text"] for one in held if isinstance(one.get("text"), str))


def is_empty(result: CallResult) -> bool:
    """Whether an answer says nothing: no content, JSON without a value in it, or a word for it."""
    if any(map(holds_media, result.content)) or _holds_value(result.structured):
        return False
    text = read_text(result).strip()
    try:
        return not _holds_value(json.loads(text)) if text else True
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
        held.get("data") or held.get("blob")
        for block in result.content
        for held in (block, block.get("resource") or {})
        if held.get("data") or held.get("blob")
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
        for answer, asked in inputs.items()
        if len(asked) >= (2 if sizes[answer] >= _ALIKE else _OFTEN)
    }


def is_stale(before: str, warm: str, fresh: Sequence[str | None]) -> bool:
    """Whether a running server answered by a state that is gone. Digests of its answer before the
    world changed and after it, and of fresh servers' after it: None where one gave no answer."""
    return warm == before and None not in fresh and len({*fresh}) == 1 and warm not in fresh


def _holds_value(value: Any) -> bool:
    """Whether any leaf of a JSON value says something; zero and false do."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            stack += item.values()
        elif isinstance(item, list):
            stack += item
        elif item is not None and item != "":
            return True
    return False
