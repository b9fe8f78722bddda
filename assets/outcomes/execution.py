"""Execution: one call that really runs, with the state of its world before and after it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from assets.outcomes.outcome import USEFUL, classify_outcome, digest_answer, read_text
from assets.servers.calls.result import CallResult, Status
from warehouse.sanitize.redact import redact, redact_json
from warehouse.storage.digest import digest

if TYPE_CHECKING:
    from assets.outcomes.worlds.session import OpenWorld
    from assets.servers.calls.caller import ToolCaller

_KEPT = 65_536  # characters of an answer's text that are kept; the rest is told by its digest
_KEYS = 50  # facts of a world that are named as changed


@dataclass(frozen=True)
class CallExecution:
    """What one executed call did, as it is kept: redacted, capped, scanned.

    text: what it answered, "" where `withheld` names the rules that keep it from being read. size:
    its characters before it was cut. answer: digest of the whole. before, after: digests of the
    world's state; changed: its facts that differ, at most 50. repeated: digest of the answer to the
    same call made again, None where it was not. seconds: of the first call, with a launch.
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
    def load(cls, stored: Mapping[str, Any]) -> "CallExecution":
        """What `dump` made of it."""
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__ if name in stored})


def keep_execution(
    result: CallResult, arguments: Any, before: str, after: str, changed: list[str]
) -> CallExecution:
    """What is kept of an inspected result: no secrets, and no text that is not to be read."""
    text = read_text(result)
    outcome = classify_outcome(result, arguments, offline=result.offline, local=result.local)
    withheld = result.alarming or (["not_read_whole"] if result.unread else [])
    structured = None if withheld else redact_json(result.structured)
    rules = ", ".join(result.alarming)
    return CallExecution(
        outcome=outcome.kind,
        blame=outcome.blame,
        evidence=f"its words break {rules}" if rules else redact(outcome.evidence),
        status=result.status,
        error_kind=result.error_kind,
        hint=redact(result.hint) if result.hint and not rules else None,
        answer=digest_answer(result),
        text="" if withheld else redact(text[:_KEPT]),
        structured=structured if len(json.dumps(structured)) <= _KEPT else None,
        size=len(text) + (len(json.dumps(result.structured)) if result.structured else 0),
        seconds=result.seconds,
        before=before,
        after=after,
        changed=changed[:_KEYS],
        withheld=list(withheld),
        findings=sorted({f"{finding.severity} {finding.rule}" for finding in result.findings}),
    )


# Of what is sent, kept and how it is judged: another one is another effect.
EXECUTION_VERSION = 7


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
    """A call that was made, and the facts of the world after it."""

    execution: CallExecution
    after: Mapping[str, Any]


def make_call_key(contract_digest: str, arguments: Any, world_digest: str) -> str:
    """The key of a result: of the contract, the canonical arguments and the state of the world."""
    return "x1:" + digest([contract_digest, arguments, world_digest])


def is_read_only(contract: Mapping[str, Any]) -> bool:
    """Whether a tool says that it only reads: a hint; the state of the world tells."""
    hints = contract.get("annotations")
    if not isinstance(hints, Mapping):
        return False
    return hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True


async def call_unwatched(
    caller: "ToolCaller", call: ToolCall, state: str, *, timeout_s: float = 10.0, owner: str = ""
) -> CallExecution:
    """A call of a tool that reads; `state` is the world's digest before and after it."""
    result = await _send(caller, call, timeout_s, owner)
    return keep_execution(result, call.arguments, state, state, [])


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
    """Makes one call between two looks at the world. before: the facts, where they were read just
    now; repeat: a call that changed nothing is made twice. Raises what the world raises."""
    # Each state is read once: of a database a reading takes longer than most calls.
    if before is None:
        before = await asyncio.to_thread(world.read_facts)
    result = await _send(caller, call, timeout_s, owner)
    after = await asyncio.to_thread(world.read_facts)
    start, end = digest(before), digest(after)
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    execution = keep_execution(result, call.arguments, start, end, changed)
    if repeat and start == end and execution.outcome == USEFUL:
        again = digest_answer(await _send(caller, call, timeout_s, owner))
        execution = replace(execution, repeated=again)
    return WatchedCall(execution, after)


async def _send(caller: "ToolCaller", call: ToolCall, timeout_s: float, owner: str) -> CallResult:
    return await caller.call(
        call.server_id,
        call.tool,
        call.contract,
        dict(call.arguments),
        timeout_s=timeout_s,
        owner=owner,
    )
