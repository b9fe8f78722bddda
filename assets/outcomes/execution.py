"""Execution: one call that really runs, with the state of its world before and after it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from assets.outcomes.outcome import (
    USEFUL,
    CallOutcome,
    classify_outcome,
    digest_answer,
    holds_media,
    read_text,
)
from assets.servers.calls.attribution import judge_error
from assets.servers.calls.result import CallResult, Status, find_kind
from warehouse.sanitize.redact import redact, redact_json
from warehouse.storage.digest import digest

if TYPE_CHECKING:
    from assets.outcomes.worlds.session import OpenWorld
    from assets.servers.calls.caller import ToolCaller

_KEPT = 65_536  # characters of an answer's text that are kept; the rest is told by its digest
_KEYS = 50  # facts of a world that are named as changed


@dataclass(frozen=True)
class JudgementGrounds:
    """What a call is judged by besides its words. code: of a JSON-RPC error. refused: hosts that it
    asked for and was not granted. problem: of structured content against its schema, path and what
    was found. media: more was answered than texts. The others: as in `CallResult`."""

    code: int | None = None
    refused: tuple[str, ...] = ()
    cut: bool = False
    problem: tuple[str, str] | None = None
    media: bool = False
    offline: bool = False
    local: bool = True
    reached: tuple[str, ...] = ()


@dataclass(frozen=True)
class CallExecution:
    """What one executed call did, as it is kept: redacted, capped, scanned.

    text: what it answered, "" where `withheld` names the rules that keep it from being read. size:
    its characters before it was cut. answer: digest of the whole. before, after: digests of the
    world's state; changed: its facts that differ, at most 50. repeated: digest of the answer to the
    same call made again, None where it was not. seconds: of the first call, with a launch.
    grounds: None where what is kept is too little to judge it again.
    """

    outcome: str
    blame: str | None
    evidence: str
    status: Status
    error_kind: str | None
    hint: str | None
    answer: str
    text: str
    structured: Any
    size: int
    seconds: float
    before: str
    after: str
    changed: list[str] = field(default_factory=list)
    repeated: str | None = None
    withheld: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    grounds: JudgementGrounds | None = None

    @property
    def changes_state(self) -> bool:
        return self.before != self.after

    @property
    def differs(self) -> bool | None:
        """Whether the same call made twice was answered in two ways; None: not tried."""
        return None if self.repeated is None else self.repeated != self.answer

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def load(cls, held: Mapping[str, Any], arguments: Any) -> "CallExecution":
        """What `dump` made of a call with these arguments, judged by the rules of today."""
        found = held.get("grounds")
        made = cls(**{**held, "grounds": None if found is None else _load_grounds(found)})
        return judge_again(made, arguments)


def keep_execution(
    result: CallResult,
    arguments: Any,
    before: str,
    after: str,
    changed: list[str],
    repeated: str | None = None,
) -> CallExecution:
    """What is kept of a result that was inspected: without secrets, and without its text where
    that is not to be read. It is judged by what is kept, so that judging it again by the same rules
    changes nothing."""
    text, found = read_text(result), _classify(result, arguments)
    withheld = result.alarming or (["not_read_whole"] if result.unread else [])
    structured = None if withheld else redact_json(result.structured)
    kept = "" if withheld else redact(text[:_KEPT])
    small = len(json.dumps(structured)) <= _KEPT
    rules = ", ".join(result.alarming)
    call_execution = CallExecution(
        outcome=found.kind,
        blame=found.blame,
        evidence=f"its words break {rules}" if rules else redact(found.evidence),
        status=result.status,
        error_kind=result.error_kind,
        hint=redact(result.hint) if result.hint and not rules else None,
        answer=digest_answer(result),
        text=kept,
        structured=structured if small else None,
        size=len(text) + (len(json.dumps(result.structured)) if result.structured else 0),
        seconds=result.seconds,
        before=before,
        after=after,
        changed=changed[:_KEYS],
        repeated=repeated,
        withheld=list(withheld),
        findings=sorted({f"{finding.severity} {finding.rule}" for finding in result.findings}),
        grounds=None if withheld or len(text) > _KEPT or not small else _read_grounds(result),
    )
    return judge_again(call_execution, arguments)


def judge_again(kept: CallExecution, arguments: Any) -> CallExecution:
    """The execution with outcome, blame and evidence by the rules of today; as it is where too
    little is kept of it."""
    grounds = kept.grounds
    if grounds is None:
        return kept
    kind, hint = kept.error_kind, kept.hint
    if kept.status == "tool_error":
        error = judge_error(
            kept.text,
            grounds.code,
            refused=grounds.refused,
            offline=grounds.offline,
            local=grounds.local,
            reached=grounds.reached,
            arguments=arguments,
        )
        if error.kind != kind:
            kind, hint = error.kind, redact(error.hint)
    problem = grounds.problem
    result = CallResult(
        kept.status,
        [{"type": "text", "text": kept.text}, *([{"data": "-"}] if grounds.media else [])],
        kept.structured,
        error_kind=kind,
        hint=hint,
        blame=find_kind(kind).blame if kind else None,
        cut=grounds.cut,
        problems=[{"path": problem[0], "found": problem[1]}] if problem else [],
        offline=grounds.offline,
        local=grounds.local,
        reached=grounds.reached,
    )
    found = _classify(result, arguments)
    judged = {"outcome": found.kind, "blame": found.blame, "evidence": redact(found.evidence)}
    return replace(kept, **judged, error_kind=kind, hint=hint)


def _classify(result: CallResult, arguments: Any) -> CallOutcome:
    launch = {"offline": result.offline, "local": result.local}
    return classify_outcome(result, arguments, **launch)


def _read_grounds(result: CallResult) -> JudgementGrounds:
    first = result.problems[0] if result.status == "ok" and result.problems else None
    return JudgementGrounds(
        code=result.code,
        refused=result.refused,
        cut=result.cut,
        problem=(redact(str(first.get("path"))), redact(str(first.get("found"))[:300]))
        if first
        else None,
        media=any(map(holds_media, result.content)),
        offline=result.offline,
        local=result.local,
        reached=result.reached,
    )


def _load_grounds(held: Mapping[str, Any]) -> JudgementGrounds:
    lists = {name: tuple(one) for name, one in held.items() if isinstance(one, list)}
    return JudgementGrounds(**{**held, **lists})


# Of what is sent and kept of a call: another one is another effect. What a kept call is judged to
# be is read again by each run, so a change of those rules sends nothing.
EXECUTION_VERSION = 4


@dataclass(frozen=True)
class ToolCall:
    """One call of one tool by the contract that is current."""

    server_id: str
    tool: str
    contract: Mapping[str, Any] = field(repr=False)
    contract_digest: str
    arguments: Mapping[str, Any]

    @property
    def only_reads(self) -> bool:
        """Whether the contract says that the tool changes nothing."""
        return is_read_only(self.contract)

    def make_key(self, world_digest: str) -> str:
        """Names what was asked of whom in which state: `x1:` and 64 hex digits."""
        return make_call_key(self.contract_digest, self.arguments, world_digest)


@dataclass(frozen=True)
class WatchedCall:
    """A call that was made, and the facts of the world before and after it."""

    execution: CallExecution
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def make_call_key(contract_digest: str, arguments: Any, world_digest: str) -> str:
    """The key of a result: of the contract, the canonical arguments and the state of the world."""
    return "x1:" + digest([contract_digest, arguments, world_digest])


def is_read_only(contract: Mapping[str, Any]) -> bool:
    """Whether a tool says that it only reads, and nothing in its annotations says otherwise. A
    hint, and not trusted: the state of the world tells."""
    hints = contract.get("annotations")
    if not isinstance(hints, Mapping):
        return False
    return hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True


async def execute_call(
    caller: "ToolCaller",
    call: ToolCall,
    world: "OpenWorld",
    *,
    timeout_s: float = 10.0,
    owner: str = "",
    repeat: bool = False,
) -> CallExecution:
    """Makes one call and looks at the world before and after it; the caller resets it. repeat: a
    call that changed nothing is made once more. Raises what the world raises."""
    given: dict[str, Any] = {"timeout_s": timeout_s, "owner": owner, "repeat": repeat}
    return (await watch_call(caller, call, world, **given)).execution


async def watch_call(
    caller: "ToolCaller",
    call: ToolCall,
    world: "OpenWorld",
    *,
    before: Mapping[str, Any] | None = None,
    timeout_s: float = 10.0,
    owner: str = "",
    repeat: bool = False,
) -> WatchedCall:
    """`execute_call` with the states that it read. before: the world's facts where they were read
    just now."""
    # Each state is read once: of a database a reading takes longer than most calls.
    if before is None:
        before = await asyncio.to_thread(world.read_facts)
    result = await _send(caller, call, timeout_s, owner)
    after = await asyncio.to_thread(world.read_facts)
    start, end = digest(before), digest(after)
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    kept = keep_execution(result, call.arguments, start, end, changed)
    if repeat and start == end and kept.outcome == USEFUL:
        again = digest_answer(await _send(caller, call, timeout_s, owner))
        kept = replace(kept, repeated=again)
    return WatchedCall(kept, before, after)


async def _send(caller: "ToolCaller", call: ToolCall, timeout_s: float, owner: str) -> CallResult:
    return await caller.call(
        call.server_id,
        call.tool,
        call.contract,
        dict(call.arguments),
        timeout_s=timeout_s,
        owner=owner,
    )
