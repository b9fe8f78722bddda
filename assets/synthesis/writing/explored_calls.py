"""Calls that worked when a server was explored: what requests about its tools are written from.

A sequence is a call with the calls whose answers hold its values, at most MOST_STEPS in all: an
answer is taken once for several calls (fan-out), and a call may take from several (join).
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from assets.contracts.quarantined_tools import key_contract
from assets.synthesis.contract_reading import read_slots
from assets.synthesis.tables import (
    CLARIFY,
    EXPLORATIONS,
    LOOKALIKE,
    MISSING,
    NO_TOOL,
    PARALLEL,
    RECOVERY,
    SEQUENTIAL,
    SINGLE,
    read_contract,
)
from assets.synthesis.writing.units import WritingUnit, hash_fraction, list_required
from warehouse.item_failure import try_item
from warehouse.json_types import Json, JsonObject, Row
from warehouse.storage.tables import Tables

MOST_STEPS = 5
_MOST = 6  # calls of a tool that its requests are written from
_MOST_ELSEWHERE = 3  # servers beside, whose things are asked for where no tool can serve them
_STATED = (SINGLE, LOOKALIKE, RECOVERY)
_USEFUL = "useful"  # the outcome of a call that was answered with something
_INVENTED, _MADE_UP = "invented", ("invented", "schema")  # sources of values that exist nowhere

ToolVersion = tuple[str, str, str]  # server, tool, contract digest


@dataclass(frozen=True)
class ExploredCall:
    """A useful call. sources: parameter -> where its value comes from. origins: parameter -> (call,
    key) of the answer that holds its value. text: of its answer, where it was kept. objection: a
    misspelt call and what the server said to it. after: the call that made what it works on."""

    id: str
    tool: ToolVersion
    arguments: dict[str, Json]
    sources: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    text: str | None = None
    changes: bool = False
    objection: tuple[dict[str, Json], str] | None = None
    after: str | None = None

    @property
    def needs(self) -> list[str]:
        """The calls that come before it, where it is the end of a sequence."""
        sources = [source for source, _ in self.origins.values()]
        return [self.after, *sources] if self.after else sources

    @property
    def invented(self) -> int:
        """How many of its values were made up."""
        return list(self.sources.values()).count(_INVENTED)


@dataclass(frozen=True)
class CallStep:
    """One step of a sequence. borrowed: parameter -> key of the value in an earlier answer."""

    call: ExploredCall
    borrowed: dict[str, str]


class ExploredTools:
    """The useful calls of a marketplace, by tool; those with the fewest invented values first."""

    def __init__(self, calls: Iterable[ExploredCall] = ()) -> None:
        self._by_id = {call.id: call for call in calls}
        self._by_tool: dict[ToolVersion, list[ExploredCall]] = defaultdict(list)
        self.servers = {call.tool[0] for call in self._by_id.values()}
        ranked = sorted(self._by_id.values(), key=lambda call: (call.invented, call.id))
        for call in ranked:
            self._by_tool[call.tool].append(call)

    def __len__(self) -> int:
        return len(self._by_tool)

    def list_calls(self, tool: ToolVersion) -> list[ExploredCall]:
        """At most six that work alone, those that name what exists first."""
        return [call for call in self._by_tool.get(tool, []) if call.after is None][:_MOST]

    def list_tools(self) -> list[ToolVersion]:
        """All with a useful call that has a value and invents none."""
        return sorted(
            tool
            for tool in self._by_tool
            if any(call.arguments and not call.invented for call in self.list_calls(tool))
        )

    def list_joined(self) -> set[tuple[str, str]]:
        """(server, tool) of those with a sequence of their own."""
        return {tool[:2] for tool in self._by_tool if len(self._find_ending(tool)) > 1}

    def find_sequence(self, tool: ToolVersion) -> list[CallStep]:
        """The steps that end with a call of a tool, or that a call of it takes part in; [] where
        nothing joins it to another. The longest that ends with it goes first."""
        if len(ending := self._find_ending(tool)) > 1:
            return ending
        return next(
            (
                steps
                for call in self._by_id.values()
                if any(self._is_of(tool, source) for source in call.needs)
                and len(steps := self._make_steps(call)) > 1
                and any(step.call.tool == tool for step in steps)
            ),
            [],
        )

    def _find_ending(self, tool: ToolVersion) -> list[CallStep]:
        own = [self._make_steps(call) for call in self._by_tool.get(tool, [])]
        return max(own, key=len, default=[])

    def _is_of(self, tool: ToolVersion, call_id: str) -> bool:
        return call_id in self._by_id and self._by_id[call_id].tool == tool

    def _make_steps(self, target: ExploredCall) -> list[CallStep]:
        """The calls that a call takes values of, in order, then itself; only that where it takes
        none. What a person has to state anyway is stated, not taken."""
        ordered: list[ExploredCall] = []
        self._collect(target, ordered, set())
        ids = {call.id for call in ordered}
        if any(call.after and call.after not in ids for call in ordered):
            return [CallStep(target, {})]  # what it works on would never be made
        stated = {
            show_value(value)
            for call in ordered
            for name, value in call.arguments.items()
            if name not in call.origins
        }
        steps: list[CallStep] = []
        for at, call in enumerate(ordered):
            earlier = {step.id for step in ordered[:at]}
            borrowed = {
                name: key
                for name, (source, key) in call.origins.items()
                if source in earlier and show_value(call.arguments[name]) not in stated
            }
            steps.append(CallStep(call, borrowed))
        return self._add_branch(_drop_unused(steps))

    def _collect(self, call: ExploredCall, ordered: list[ExploredCall], path: set[str]) -> None:
        """The sources of a call before it. A call that is on the way already is not followed: a
        cycle ends there, and what it would give is stated."""
        for source in call.needs:
            other = self._by_id.get(source)
            taken = {item.id for item in ordered} | path | {call.id}
            if other is None or not other.text or other.changes or source in taken:
                continue
            if len(taken) < MOST_STEPS:
                self._collect(other, ordered, path | {call.id})
        ordered.append(call)

    def _add_branch(self, steps: list[CallStep]) -> list[CallStep]:
        """In a third of the sequences, one more call that takes a value of the same answer."""
        if not 1 < len(steps) < MOST_STEPS:
            return steps
        last, earlier = steps[-1], {step.call.id for step in steps[:-1]}
        if hash_fraction("branch", last.call.id) > 1 / 3:
            return steps
        tools, server = {step.call.tool[1] for step in steps}, last.call.tool[0]
        for call in self._by_id.values():
            sources = set(call.needs)
            harmless = bool(call.text) and not call.changes and not call.invented
            apart = call.tool[1] not in tools and call.tool[0] == server
            if sources and sources <= earlier and harmless and apart:
                borrowed = {name: key for name, (_, key) in call.origins.items()}
                return [*steps[:-1], CallStep(call, borrowed), last]
        return steps


def _drop_unused(steps: list[CallStep]) -> list[CallStep]:
    """Without the steps that no later one needs; the last stays."""
    needed = {steps[-1].call.id}
    result: list[CallStep] = []
    for step in reversed(steps):
        if step.call.id in needed:
            needed |= {step.call.origins[name][0] for name in step.borrowed} | {step.call.after}
            result.insert(0, step)
    return result


def show_value(value: Json) -> str:
    return str(value[0]) if isinstance(value, list) and len(value) == 1 else str(value)


def read_explored(tables: Tables, name: str) -> ExploredTools:
    """The useful calls of a marketplace."""
    rows = tables.read(EXPLORATIONS, name).to_dicts()
    objections = {
        row["repairs"]: (json.loads(row["arguments"]), row["text"])
        for row in rows
        if row["repairs"] and row["text"] and row["outcome"] != _USEFUL
    }
    return ExploredTools(_read_call(row, objections) for row in rows if row["outcome"] == _USEFUL)


def _read_call(row: Row, objections: Mapping[str, tuple[dict[str, Json], str]]) -> ExploredCall:
    origins = json.loads(row["origins"] or "{}")
    sources = json.loads(row["sources"])
    return ExploredCall(
        row["exploration_id"],
        (row["server_id"], row["tool"], row["contract_digest"]),
        json.loads(row["arguments"]),
        sources,
        {name: (source, key) for name, (source, key) in origins.items()},
        row["text"],
        bool(row["changes"]),
        objections.get(row["exploration_id"]),
        row["after"],
    )


def add_explored(
    units: Sequence[WritingUnit],
    explored: ExploredTools,
    rows: Sequence[Row] = (),
    *,
    invents: bool = True,
) -> list[WritingUnit]:
    """The units; one of a tool that was explored knows the calls that worked. Of a server that was
    explored, a tool whose values no answer gives has no sequence, and where nobody `invents`
    answers only sequences that happened are written. rows: all contracts that are offered, of which
    a sequence calls several."""
    by_tool = {key_contract(row): row for row in rows} if len(explored) else {}
    added = [_add(unit, explored, by_tool) for unit in units]
    return [
        unit
        for unit in added
        if unit.task != SEQUENTIAL
        or unit.outline
        or (invents and len(unit.rows) > 1 and unit.own["server_id"] not in explored.servers)
    ]


def _add(
    unit: WritingUnit, explored: ExploredTools, rows: Mapping[ToolVersion, Row]
) -> WritingUnit:
    if unit.problem or not len(explored):
        return unit
    if unit.task == SEQUENTIAL:
        return _add_steps(unit, explored.find_sequence(key_contract(unit.own)), rows)
    if unit.task == PARALLEL:
        return _add_steps(unit, _choose_parallel(unit, explored, rows), rows)
    if unit.task == NO_TOOL:
        # The unit with calls of servers that are not on offer: what nothing at hand can do.
        if hash_fraction("elsewhere", unit.key) > 2 / 3:
            return unit  # the others ask for what needs no tool
        offered = {(row["server_id"], row["tool"]) for row in unit.shown}
        servers, names = {server for server, _ in offered}, {name for _, name in offered}
        others = [
            tool
            for tool in explored.list_tools()
            if tool in rows and tool[0] not in servers and tool[1] not in names
        ]
        others.sort(key=lambda tool: hash_fraction("elsewhere", unit.key, *tool))
        elsewhere = others[:_MOST_ELSEWHERE]
        return replace(
            unit,
            elsewhere=tuple(rows[tool] for tool in elsewhere),
            explored=tuple(explored.list_calls(tool)[0].arguments for tool in elsewhere),
        )
    calls = explored.list_calls(key_contract(unit.own))
    if unit.task in (MISSING, CLARIFY):
        return _withhold(unit, calls)
    if unit.task not in _STATED or not calls:
        return unit
    if unit.task == RECOVERY:
        calls = [call for call in calls if call.objection] or calls
        if (objection := calls[0].objection) is not None:
            unit = replace(unit, outline={"wrong": objection[0], "error": objection[1]})
    return replace(unit, explored=tuple(call.arguments for call in calls))


def _add_steps(
    unit: WritingUnit, steps: Sequence[CallStep], rows: Mapping[ToolVersion, Row]
) -> WritingUnit:
    """The unit with these steps and the tools that they call, its own first."""
    tools = list(dict.fromkeys([key_contract(unit.own), *(step.call.tool for step in steps)]))
    names = {tool[1] for tool in tools}
    if len(steps) < 2 or len(names) < len(tools) or not set(tools) <= rows.keys():
        return unit
    outline = {
        "steps": [
            {
                "tool": tools.index(step.call.tool) + 1,
                "arguments": step.call.arguments,
                "borrowed": step.borrowed,
                "answer": step.call.text,
            }
            for step in steps
        ]
    }
    return replace(unit, rows=(unit.own, *(rows[tool] for tool in tools[1:])), outline=outline)


def _choose_parallel(
    unit: WritingUnit, explored: ExploredTools, rows: Mapping[ToolVersion, Row]
) -> list[CallStep]:
    """A call of the unit's tool and one of its partner's; of another tool of its server where that
    was never useful; else two calls of its own."""
    own = explored.list_calls(key_contract(unit.own))
    if not own:
        return []
    server, name, _ = key_contract(unit.own)
    near = [tool for tool in rows if tool[0] == server and tool[1] != name]
    near.sort(key=lambda tool: hash_fraction("beside", server, name, *tool))
    alone = len(unit.rows) == 1 and len(own) > 1
    for tool in () if alone else (*map(key_contract, unit.rows[1:]), *near):
        for call in explored.list_calls(tool):
            # Of two calls at once neither may find what the other did.
            if not (call.changes and own[0].changes):
                return [CallStep(own[0], {}), CallStep(call, {})]
    return [CallStep(call, {}) for call in own[:2] if not own[0].changes]


def _withhold(unit: WritingUnit, calls: Sequence[ExploredCall]) -> WritingUnit:
    """The unit with a value that a call needs and that the person first leaves out; for a
    clarification with two of which either would do."""
    contract = try_item(lambda: read_contract(unit.own), lambda _: {})
    required = set(list_required(contract))
    for call in calls:
        for slot in read_slots(contract):
            value = call.arguments.get(slot.name)
            made_up = call.sources.get(slot.name) in _MADE_UP
            if slot.name not in required or made_up or not _is_plain(value):
                continue
            real = [other for other in calls if other.sources.get(slot.name) not in _MADE_UP]
            others = [other.arguments.get(slot.name) for other in real]
            others = [other for other in others if _is_plain(other) and other != value]
            if unit.task == CLARIFY and not others:
                continue
            options: list[Json] = [value, *others[:1]] if unit.task == CLARIFY else []
            outline: JsonObject = {"parameter": slot.name, "options": options}
            return replace(unit, explored=(call.arguments,), outline=outline)
    return unit


def _is_plain(value: Json) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool) and len(str(value)) <= 90
