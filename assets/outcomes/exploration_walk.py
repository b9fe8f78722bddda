"""One server while it is explored: which of its tools are called, in what order and state."""

import json
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assets.outcomes.call_proposer import CallProposer
from assets.outcomes.environment import ServerInWorld
from assets.outcomes.execution import CallExecution, ToolCall, call_unwatched, watch_call
from assets.outcomes.exploration import (
    AnsweredCall,
    ProposedCall,
    ValuePool,
    find_origins,
    makes_thing,
    misspell_call,
    propose_calls,
    rank_tool,
    read_answer,
    read_answered,
    seems_to_read,
)
from assets.outcomes.outcome import TIMEOUT, TOOL_ERROR, USEFUL
from assets.outcomes.select import LaunchableServer
from assets.outcomes.worlds.spec import WorldSpec
from assets.synthesis.tables import dump_text
from assets.synthesis.writing.explored_calls import show_value
from warehouse.json_types import Record
from warehouse.storage.digest import digest

MakeCall = Callable[[ToolCall], Awaitable[CallExecution]]
_OTHERS = ("credentials", "policy", "upstream", "us")
_ENOUGH = 8  # calls that say that a server can do nothing here
_MOST_TIMEOUTS, _LONGEST_S = 3, 120.0  # of a server
_MOST_FAILURES = 2  # of a tool that was never useful
_MOST_MISSPELT = 3  # calls that are misspelt of a server's tools that read, and of the others
_MOST_TEXT = 4000  # characters of an answer that is kept whole, or not at all
_MOST_MAKERS, _LONGEST_CHAIN = 2, 3  # calls that make what others work on; calls before another


@dataclass(frozen=True)
class ExplorationJob:
    """A server that is due, with its tools that may be called there. decides: digest of all that
    decides what comes of it, but for `more`: tool -> useful calls that it is granted beyond."""

    server: LaunchableServer
    tools: tuple[ToolCall, ...]
    world: WorldSpec
    decides: str
    more: Mapping[str, int] = field(default_factory=dict)

    @property
    def plan(self) -> str:
        """Digest of all that decides its rows."""
        return digest([self.decides, dict(self.more)]) if self.more else self.decides


@dataclass(frozen=True)
class _TriedCall:
    """A call that was made: what was tried, what it did, and its row."""

    tool: ToolCall
    proposed: ProposedCall
    done: CallExecution
    row: Record


class ServerWalk:
    """One server while it is explored."""

    def __init__(
        self,
        job: ExplorationJob,
        place: ServerInWorld,
        timeout_s: float,
        proposer: CallProposer | None = None,
    ) -> None:
        self._job, self._place, self._timeout_s = job, place, timeout_s
        self._proposer = proposer
        self._until = time.monotonic() + _LONGEST_S
        self._rng = random.Random(job.decides)
        self._tried: set[str] = set()
        self._useful: dict[str, int] = defaultdict(int)
        self._failed: dict[str, int] = defaultdict(int)
        self._barred, self._timeouts = True, 0
        self._first: Mapping[str, Any] | None = None  # the first state's facts, while they hold
        self._calls: list[_TriedCall] = []
        self._answered: list[AnsweredCall] = []  # whose values may be passed on
        self.pool = ValuePool()

    @property
    def rows(self) -> list[Record]:
        """The rows of the calls so far; those whose answer others take a value of or are made
        after, and the objections to misspelt calls, with their texts."""
        rows = {call.row["exploration_id"]: {**call.row} for call in self._calls}
        texts = {call.row["exploration_id"]: call.done.text for call in self._calls}
        for call in self._calls:
            row = rows[call.row["exploration_id"]]
            if row["repairs"] and _is_objection(call.done):
                row["text"] = call.done.text
            if row["after"] and call.done.outcome == USEFUL:
                rows[row["after"]]["text"] = texts[row["after"]]
        for target, origins in self._find_origins(self._answered):
            rows[target]["origins"] = dump_text({name: list(at) for name, at in origins.items()})
            for source, _ in origins.values():
                rows[source]["text"] = texts[source]
        return list(rows.values())

    def _find_origins(
        self, answered: Sequence[AnsweredCall]
    ) -> list[tuple[str, dict[str, tuple[str, str]]]]:
        """(useful call, where its values come from), of those that have any."""
        found = [
            (call, find_origins(call.tool.contract, call.proposed.arguments, answered))
            for call in self._calls
            if call.done.outcome == USEFUL and call.row["after"] is None
        ]
        return [(call.row["exploration_id"], origins) for call, origins in found if origins]

    async def _confirm_answers(self) -> None:
        """Makes the calls whose answers others take values of once more, with a fresh server: what
        it answers otherwise (an id of a session, a time) is nothing that can be passed on."""
        answered = {
            call.row["exploration_id"]: self._read_answered(call, call.done)
            for call in self._calls
            if _can_pass_on(call)
        }
        pairs = self._find_origins(list(answered.values()))
        sources = {source for _, origins in pairs for source, _ in origins.values()}
        if not sources or self._is_over():
            return
        await self._place.put_back(fresh=True)
        for call in self._calls:
            if (name := call.row["exploration_id"]) in sources:
                again = self._read_answered(call, await self._call_reading(call.tool))
                same = tuple(item for item in answered[name].values if item in again.values)
                self._answered.append(replace(again, values=same))

    async def walk(self, useful: int, most: int) -> None:
        """Tries every tool for so many `useful` calls, `most` calls in all: those that read twice,
        as what a first time listed fills the arguments of a second, then the others. Then one call
        of each is misspelt, for the server's own objection."""
        tools = sorted(self._job.tools, key=lambda tool: rank_tool(tool.contract))
        reading = [tool for tool in tools if seems_to_read(tool.contract)]
        writing = tools[len(reading) :]
        for tool in [*reading, *reading]:
            await self._try_tool(tool, useful, most, self._call_reading)
        await self._try_proposals(reading, useful, most, self._call_reading)
        await self._misspell(reading, most, self._call_reading)
        changed = await self._put_back_changed()
        # What needs a made thing fails before one is made, and is tried behind it later.
        for tool in sorted(writing, key=lambda tool: makes_thing(tool.contract)):
            await self._try_tool(tool, useful, most, self._call_writing)
        await self._try_proposals(writing, useful, most, self._call_writing)
        await self._misspell(writing, most, self._call_writing)
        if not changed:
            await self._confirm_answers()
        makers = {call.tool.tool: call for call in reversed(self._calls) if self._makes(call)}
        for maker in list(makers.values())[:_MOST_MAKERS]:
            await self._try_behind([maker], most)

    def _makes(self, call: _TriedCall) -> bool:
        """Whether a call may have made, in the server's memory, what other tools work on."""
        return self._place.restart and makes_thing(call.tool.contract) and _can_pass_on(call)

    async def _try_behind(self, chain: list[_TriedCall], most: int) -> None:
        """Tries the tools without a useful call behind the calls that a fresh server gets first;
        then the others behind the first of these that makes something in its turn."""
        pool, makers = await self._replay(chain), list[_TriedCall]()
        for tool in sorted(self._job.tools, key=lambda tool: rank_tool(tool.contract)):
            for attempt in range(0 if self._useful[tool.tool] else 2):
                if pool is None or len(self._calls) >= most or self._is_over():
                    return
                proposals = propose_calls(
                    tool.contract, pool, 1 + attempt, self._rng, chain[-1].tool.tool
                )
                if len(proposals) <= attempt:
                    break
                call = await self._make_behind(tool, proposals[attempt], chain)
                makers += [call] if self._makes(call) else []
                outcome, reads = call.done.outcome, seems_to_read(tool.contract)
                # What was made is gone with its server, which a changed world ends too.
                gone = call.done.status == "failed" or call.done.changes_state
                if gone or (outcome == USEFUL and not reads):
                    pool = await self._replay(chain)
                if outcome == USEFUL:
                    break
        if makers and len(chain) < _LONGEST_CHAIN:
            await self._try_behind([*chain, makers[0]], most)

    async def _replay(self, chain: list[_TriedCall]) -> ValuePool | None:
        """What is known once a fresh server has answered these calls, their answers first; None
        where one is not useful again, or no longer gives what calls behind it took of it."""
        await self._place.put_back(fresh=True)
        pool = ValuePool()
        for at, call in enumerate(chain):
            again = replace(call, done=await self._call_reading(call.tool))
            if not (_can_pass_on(again) and self._still_gives(again)):
                return None
            # A sequence shows this answer: a fresh server starts its counters over.
            chain[at] = again
            self._calls = [chain[at] if item.row is call.row else item for item in self._calls]
        for call in reversed(chain):
            pool.add_answer(read_answer(call.done), call.tool.tool)
        for item in self.pool.values:
            pool.add(item.key, item.value, item.source)
        return pool

    def _still_gives(self, maker: _TriedCall) -> bool:
        """Whether a maker's answer has all that useful calls behind it took of it. A
        random id is another one each time."""
        values = self._read_answered(maker, maker.done).values
        told = {(item.key, str(item.value)) for item in values}
        return all(
            (key, show_value(call.proposed.arguments[name])) in told
            for call in self._calls
            if call.row["after"] and call.done.outcome == USEFUL
            for name, (source, key) in json.loads(call.row["origins"]).items()
            if source == maker.row["exploration_id"]
        )

    async def _make_behind(
        self, tool: ToolCall, proposed: ProposedCall, chain: Sequence[_TriedCall]
    ) -> _TriedCall:
        call = replace(tool, arguments=proposed.arguments)
        reads = seems_to_read(tool.contract)
        done = await (self._call_reading(call) if reads else self._call_writing(call))
        answered = [self._read_answered(item, item.done) for item in chain]
        origins = find_origins(tool.contract, proposed.arguments, answered)
        row = self._make_row(call, proposed, done, chain[-1].row["exploration_id"])
        row["origins"] = dump_text({name: list(at) for name, at in origins.items()})
        tried = _TriedCall(call, proposed, done, row)
        self._calls.append(tried)
        self._useful[tool.tool] += done.outcome == USEFUL
        return tried

    async def walk_more(self, before: Sequence[Record], most: int) -> list[Record]:
        """The rows of calls beyond those made before, of the tools that are granted more. All that
        read are called once for their values."""
        for tool in filter(lambda tool: seems_to_read(tool.contract), self._job.tools):
            await self._try_tool(tool, 1, most, self._call_reading)
        await self._put_back_changed()
        self._tried = {dump_text([row["tool"], json.loads(row["arguments"])]) for row in before}
        first = len(self._calls)
        for tool in self._job.tools:
            if more := self._job.more.get(tool.tool):
                tried = sum(row["tool"] == tool.tool for row in before)
                useful = self._useful[tool.tool] + more
                limit = len(self._calls) + most
                await self._try_tool(tool, useful, limit, self._call_writing, tried + more)
        return [call.row for call in self._calls[first:]]

    async def _put_back_changed(self) -> bool:
        changed = await self._place.read_state() != self._place.world.read_first_facts()
        if changed:
            # One of them writes: nobody knows which, and the others have read what it wrote.
            await self._place.put_back(fresh=True)
        return changed

    async def _try_tool(
        self, tool: ToolCall, useful: int, most: int, make: MakeCall, proposals: int = 0
    ) -> None:
        proposals = proposals or useful - self._useful[tool.tool]
        for proposed in propose_calls(tool.contract, self.pool, proposals, self._rng):
            hopeless = self._failed[tool.tool] >= _MOST_FAILURES and not self._useful[tool.tool]
            enough = self._useful[tool.tool] >= useful
            if len(self._calls) >= most or hopeless or enough or self._is_over():
                return
            if proposed.key not in self._tried:
                await self._make(tool, proposed, make)

    async def _try_proposals(
        self, tools: Sequence[ToolCall], useful: int, most: int, make: MakeCall
    ) -> None:
        """The calls that a model proposes for the tools without a useful one, where one is set."""
        if (proposer := self._proposer) is None:
            return
        for tool in tools:
            if self._useful[tool.tool] or self._is_over() or len(self._calls) >= most:
                continue
            mine = [call for call in self._calls if call.tool.tool == tool.tool]
            refused = [(call.proposed.arguments, call.done.evidence) for call in mine]
            proposals = await proposer.propose(tool.contract, self.pool, refused, useful)
            for proposed in proposals[: most - len(self._calls)]:
                if proposed.key not in self._tried and not self._is_over():
                    await self._make(tool, proposed, make)

    async def _make(
        self, tool: ToolCall, proposed: ProposedCall, make: MakeCall, repairs: str | None = None
    ) -> None:
        self._tried.add(proposed.key)
        call = replace(tool, arguments=proposed.arguments)
        done = await make(call)
        if done.outcome == USEFUL and not done.changes_state and repairs is None:
            self.pool.add_answer(read_answer(done), tool.tool)
        if repairs is None:
            self._useful[tool.tool] += done.outcome == USEFUL
            self._failed[tool.tool] += done.outcome == TOOL_ERROR
        self._timeouts += done.outcome == TIMEOUT
        self._barred = self._barred and done.blame in _OTHERS
        row = self._make_row(call, proposed, done) | {"repairs": repairs}
        self._calls.append(_TriedCall(call, proposed, done, row))

    async def _misspell(self, tools: Sequence[ToolCall], most: int, make: MakeCall) -> None:
        """Makes a misspelt call of each of a few tools with a useful one."""
        drawn = self._rng.sample(tools, min(len(tools), _MOST_MISSPELT))
        for tool in drawn:
            mine = [call for call in self._calls if call.tool.tool == tool.tool]
            for call in [call for call in mine if call.done.outcome == USEFUL]:
                wrong = misspell_call(tool.contract, call.proposed)
                if wrong is None or wrong.key in self._tried:
                    continue
                if len(self._calls) < most and not self._is_over():
                    await self._make(tool, wrong, make, call.row["exploration_id"])
                break

    def _is_over(self) -> bool:
        """Whether no further call is worth its time: the server answers late or not at all, or
        every call so far fails for want of what no argument gives (a browser, a key)."""
        barred = self._barred and len(self._calls) >= _ENOUGH
        return barred or self._timeouts >= _MOST_TIMEOUTS or time.monotonic() > self._until

    async def _call_reading(self, call: ToolCall) -> CallExecution:
        place = self._place
        return await call_unwatched(
            place.caller, call, place.first, timeout_s=self._timeout_s, owner=place.owner
        )

    async def _call_writing(self, call: ToolCall) -> CallExecution:
        place = self._place
        # A workbook is read in a sandbox of its own: what the last call left as it was is not
        # read again.
        watched = await watch_call(
            place.caller,
            call,
            place.world,
            before=self._first if self._first is not None else await place.read_first(),
            timeout_s=self._timeout_s,
            owner=place.owner,
        )
        late = watched.execution.outcome == TIMEOUT  # it may still be at work
        changed = watched.execution.changes_state
        self._first = None if changed or late else watched.after
        if changed or late:
            await place.put_back(fresh=late)
        return watched.execution

    def _read_answered(self, call: _TriedCall, done: CallExecution) -> AnsweredCall:
        facts = call.row["exploration_id"], call.tool.tool, call.proposed.arguments
        return read_answered(*facts, read_answer(done))

    def _make_row(
        self, call: ToolCall, proposed: ProposedCall, done: CallExecution, after: str | None = None
    ) -> Record:
        arguments = dump_text(dict(call.arguments))
        identity = [call.server_id, call.tool, call.contract_digest, arguments, self._job.decides]
        identity += [after] if after else []  # the same call alone is another one
        copied = ("outcome", "blame", "answer", "size", "seconds", "error_kind")
        return {
            "exploration_id": "o1:" + digest(identity)[:40],
            "server_id": call.server_id,
            "tool": call.tool,
            "contract_digest": call.contract_digest,
            "arguments": arguments,
            "sources": dump_text(proposed.sources),
            "world": self._job.world.name,
            "after": after,
            "repairs": None,
            "changes": done.changes_state,
            **{name: getattr(done, name) for name in copied},
        }


def _can_pass_on(call: _TriedCall) -> bool:
    """Whether another call may take a value of its answer, which is kept whole then."""
    done = call.done
    answers = done.outcome == USEFUL and not done.changes_state and not call.row["repairs"]
    return answers and 0 < len(done.text) <= _MOST_TEXT


def _is_objection(done: CallExecution) -> bool:
    return (
        done.outcome == TOOL_ERROR and not done.changes_state and 0 < len(done.text) <= _MOST_TEXT
    )
