"""Execution: one call that really runs, with the state of its world before and after it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from assets.outcomes.outcome import (
    USEFUL,
    Outcome,
    classify_outcome,
    digest_answer,
    read_text,
)
from assets.servers.calls.result import CallResult
from warehouse.sanitize.redact import redact, redact_json
from warehouse.storage.digest import digest

EXECUTION_VERSION = 2  # of what is kept of a call: another one is another effect
_KEPT = 65_536  # characters of an answer's text that are kept; the rest is told by its digest
_KEYS = 50  # facts of a world that are named as changed


class Environment(Protocol):
    """What a call runs in: a disposable place whose state can be read and put back."""

    def digest_state(self) -> str: ...
    def read_facts(self) -> Mapping[str, Any]: ...
    def reset(self) -> None: ...


class CallsTools(Protocol):
    """What makes the calls: `assets/servers/calls/caller.py`."""

    async def call(
        self,
        server_id: str,
        tool: str,
        contract: Mapping[str, Any],
        arguments: Any,
        *,
        timeout_s: float = 60.0,
        owner: str = "",
    ) -> CallResult: ...

    async def end_servers(self, owner: str) -> None: ...


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
class Execution:
    """What one executed call did, as it is kept: redacted, capped, scanned.

    text: what it answered, "" where `withheld` names the rules that keep it from being read. size:
    its characters before it was cut. answer: digest of the whole. before, after: digests of the
    world's state; changed: its facts that differ, at most 50. repeated: digest of the answer to the
    same call made again, None where it was not. seconds: of the first call, with a launch.
    """

    outcome: str
    blame: str | None
    evidence: str
    status: str
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

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "Execution":
        return cls(**json.loads(data))


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
    caller: CallsTools,
    call: ToolCall,
    world: Environment,
    *,
    timeout_s: float = 10.0,
    owner: str = "",
    offline: bool = True,
    local: bool = True,
    repeat: bool = False,
) -> Execution:
    """Makes one call and looks at the world before and after it; the caller resets it. repeat: a
    call that changed nothing is made once more. Raises what the world raises."""
    before = await asyncio.to_thread(world.read_facts)
    start = await asyncio.to_thread(world.digest_state)
    result = await _send(caller, call, timeout_s, owner)
    end = await asyncio.to_thread(world.digest_state)
    after = before if start == end else await asyncio.to_thread(world.read_facts)
    found = classify_outcome(result, call.arguments, offline=offline, local=local)
    again = None
    if repeat and start == end and found.kind == USEFUL:
        again = digest_answer(await _send(caller, call, timeout_s, owner))
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return keep_execution(result, found, start, end, changed, again)


async def _send(caller: CallsTools, call: ToolCall, timeout_s: float, owner: str) -> CallResult:
    return await caller.call(
        call.server_id,
        call.tool,
        call.contract,
        dict(call.arguments),
        timeout_s=timeout_s,
        owner=owner,
    )


def keep_execution(
    result: CallResult,
    found: Outcome,
    before: str,
    after: str,
    changed: list[str],
    repeated: str | None = None,
) -> Execution:
    """What is kept of a result that was inspected: without secrets, and without its text where
    that is not to be read."""
    text = read_text(result)
    withheld = result.alarming or (["not_read_whole"] if result.unread else [])
    structured = None if withheld else redact_json(result.structured)
    kept = "" if withheld else redact(text[:_KEPT])
    rules = ", ".join(result.alarming)
    return Execution(
        outcome=found.kind,
        blame=found.blame,
        evidence=f"its words break {rules}" if rules else redact(found.evidence),
        status=result.status,
        error_kind=result.error_kind,
        hint=redact(result.hint) if result.hint and not rules else None,
        answer=digest_answer(result),
        text=kept,
        structured=structured if len(json.dumps(structured)) <= _KEPT else None,
        size=len(text) + (len(json.dumps(result.structured)) if result.structured else 0),
        seconds=result.seconds,
        before=before,
        after=after,
        changed=changed[:_KEYS],
        repeated=repeated,
        withheld=list(withheld),
        findings=sorted({f"{one.severity} {one.rule}" for one in result.findings}),
    )
