"""Execution: one call that really runs, with the state of its world before and after it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from assets.outcomes.kept import Execution, keep_execution
from assets.outcomes.outcome import USEFUL, digest_answer
from assets.servers.calls.result import CallResult
from warehouse.storage.digest import digest

# Of what is sent and kept of a call: another one is another effect. What a kept call is judged to
# be is read anew by each run (`kept.py`), so a change of those rules sends nothing.
EXECUTION_VERSION = 4


class Environment(Protocol):
    """What a call runs in: a disposable place whose state can be read and put back."""

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
class Observed:
    """A call that was made, and the facts of the world before and after it."""

    execution: Execution
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
    caller: CallsTools,
    call: ToolCall,
    world: Environment,
    *,
    timeout_s: float = 10.0,
    owner: str = "",
    repeat: bool = False,
) -> Execution:
    """Makes one call and looks at the world before and after it; the caller resets it. repeat: a
    call that changed nothing is made once more. Raises what the world raises."""
    given: dict[str, Any] = {"timeout_s": timeout_s, "owner": owner, "repeat": repeat}
    return (await watch_call(caller, call, world, **given)).execution


async def watch_call(
    caller: CallsTools,
    call: ToolCall,
    world: Environment,
    *,
    before: Mapping[str, Any] | None = None,
    timeout_s: float = 10.0,
    owner: str = "",
    repeat: bool = False,
) -> Observed:
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
    return Observed(kept, before, after)


async def _send(caller: CallsTools, call: ToolCall, timeout_s: float, owner: str) -> CallResult:
    return await caller.call(
        call.server_id,
        call.tool,
        call.contract,
        dict(call.arguments),
        timeout_s=timeout_s,
        owner=owner,
    )
