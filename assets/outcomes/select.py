"""Which calls are executed: those of accepted pairs that stand alone, a few of each tool."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.repair.problems import find_problems
from assets.contracts.tool_id import ToolId
from assets.outcomes.execution import ToolCall
from assets.outcomes.outcome import TOOL_ERROR, USEFUL
from assets.outcomes.policy import ExecutionPolicy
from assets.synthesis.contract_reading import read_purpose
from assets.synthesis.tables import (
    EXPLORED,
    TaskOrigin,
    dump_text,
    read_contract,
    read_goldens,
    read_origin,
)
from assets.vectors.confusable_table import TWINS
from warehouse.bounded_dict import BoundedDict
from warehouse.item_failure import try_item
from warehouse.json_types import Contract, Record, Row
from warehouse.storage.digest import digest

_FITTING = BoundedDict()  # (contract, arguments) -> whether they fit
# Whose failures say that another call of made-up values fails too: of a tool, of a whole server.
_BARS = {"credentials", "policy", "upstream"}
_REFUSES = {*_BARS, "caller"}
_CHANGES = ("create", "update", "delete", "send", "run")  # families of verbs, whatever a hint says


@dataclass(frozen=True)
class LaunchableServer:
    """recipe: `dump_recipe` of its launch; moving: not in a world of ours alone, so only read."""

    server_id: str
    recipe: Mapping[str, Any] = field(repr=False)
    recipe_digest: str
    moving: bool = False


@dataclass
class WantedCall:
    """pairs: accepted pairs that it is of. twin_of: the look-alike tool for which it was written.
    task: the world's task that its pair is, carried out there. observed: a pair of it was written
    from this call, which worked when its server was explored."""

    call: ToolCall
    pairs: list[str] = field(default_factory=list)
    twin_of: str | None = None
    task: TaskOrigin | None = None
    observed: bool = False

    @property
    def arguments(self) -> str:
        return dump_text(dict(self.call.arguments))

    def identify(self, world: str, seed: int) -> str:
        """The id of its row: `e1:` and 40 hex digits."""
        call = self.call
        identity = [call.server_id, call.tool, call.contract_digest, self.arguments, world, seed]
        return "e1:" + digest([*identity, self.task.id] if self.task else identity)[:40]


def list_launchable(
    deployments: Iterable[Row], networked: Iterable[str] = (), *, network: bool = False
) -> dict[str, LaunchableServer]:
    """Server id -> how it ran. networked: servers that are granted the network; network: all."""
    granted = set(networked)
    return {
        row["server_id"]: LaunchableServer(
            row["server_id"],
            json.loads(row["recipe"]),
            row["recipe_digest"],
            moving=network or row["ecosystem"] == "remote" or row["server_id"] in granted,
        )
        for row in deployments
        if row["status"] == "ok" and row["recipe"] and row["recipe_digest"]
    }


def select_calls(
    pairs: Iterable[Row],
    clear: Iterable[Record],
    servers: Mapping[str, LaunchableServer],
    policy: ExecutionPolicy,
    twins: Iterable[Row] = (),
    futile: Collection[tuple[str, str]] = (),
) -> list[WantedCall]:
    """The calls to execute, by server and tool, reading tools first. pairs: accepted ones; twins:
    rows of CONFUSABLES, whose look-alikes get each other's calls but no tasks. A call that takes a
    value out of another's result is left out, unless a server really gave that result; and one
    whose values were made up for a `futile` tool."""
    contracts = {(row["server_id"], row["tool"]): row for row in clear}
    selected: dict[tuple[str, str], dict[str, WantedCall]] = defaultdict(dict)
    looks_like = _map_twins(twins)
    for pair in pairs:
        task = read_origin(pair)
        for golden in read_goldens(pair):
            # What an answer gave when the server was explored is there again.
            if golden.borrowed and pair["basis"] != EXPLORED:
                continue
            target = (golden.server_id, golden.tool)
            for tool in (target, *(looks_like.get(target, ()) if task is None else ())):
                row = contracts.get(tool)
                if row is None or tool[0] not in servers:
                    continue
                # A server that has the network now may be of use, and is not explored again.
                in_vain = tool in futile and not servers[tool[0]].moving
                if in_vain and task is None:
                    continue
                if tool == target and row["contract_digest"] != golden.contract_digest:
                    continue
                call = _make_call(tool, row, golden.arguments)
                if call is not None and may_run(call, servers[tool[0]], policy):
                    written_for = None if tool == target else str(ToolId(*target))
                    candidate = WantedCall(call, twin_of=written_for, task=task)
                    key = f"{candidate.arguments} {candidate.task or ''}".rstrip()
                    entry = selected[tool].setdefault(key, candidate)
                    if candidate.twin_of is None:
                        entry.twin_of = None
                        entry.observed |= pair["basis"] == EXPLORED
                        entry.pairs.append(pair["pair_id"])
    return [item for tool in sorted(selected) for item in _choose(selected[tool].values(), policy)]


def find_futile_tools(explorations: Iterable[Row], clear: Iterable[Row]) -> set[tuple[str, str]]:
    """(server, tool) of those of which a world has no useful call: each that was tried was refused
    for its values or for what is not here (a credential, a browser, the network), or all were that
    were tried of its server. A tool that says that it failed refuses too: of 21 such calls that
    were made all the same, 15 were refused for their values. What no tool says, such as a late
    answer, is called again, to be told by executions, and so is what is our own fault. Of 200 calls
    of the demo with values made up for these, 5 were useful.
    """
    versions = {(row["server_id"], row["tool"]): row["contract_digest"] for row in clear}
    blames: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    by_server: dict[str, set[str | None]] = defaultdict(set)
    for row in explorations:
        if row["after"]:  # no pair calls a tool behind another one when it is executed
            continue
        tool = row["server_id"], row["tool"]
        says_failed = (row["outcome"], row["blame"]) == (TOOL_ERROR, "tool")
        blame = USEFUL if row["outcome"] == USEFUL else "caller" if says_failed else row["blame"]
        if versions.get(tool) == row["contract_digest"]:
            by_server[tool[0]].add(blame)
            blames[tool].add(blame)
    return {
        tool
        for tool in versions
        if (blames[tool] and blames[tool] <= _REFUSES)
        or (by_server[tool[0]] and by_server[tool[0]] <= _BARS)
    }


def _map_twins(rows: Iterable[Row]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    result: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for row in rows:
        if row["kind"] == TWINS:
            first, other = (
                (row["server_id"], row["tool"]),
                (row["other_server_id"], row["other_tool"]),
            )
            result[first].append(other)
            result[other].append(first)
    return result


def _make_call(tool: tuple[str, str], row: Record, arguments: Mapping[str, Any]) -> ToolCall | None:
    contract = try_item(lambda: read_contract(row), lambda _: {})
    if not contract or not _fits(str(row["contract"]), contract, arguments):
        return None
    return ToolCall(*tool, contract, row["contract_digest"], arguments)


def _fits(text: str, contract: Contract, arguments: Mapping[str, Any]) -> bool:
    """Whether the call fits its contract, whose JSON `text` is."""
    key = text, json.dumps(arguments, sort_keys=True, default=str)
    if key not in _FITTING:
        problems = find_problems(contract, arguments)
        _FITTING[key] = all(problem["kind"] == "bad_schema" for problem in problems)
    return _FITTING[key]


def may_run(call: ToolCall, server: LaunchableServer, policy: ExecutionPolicy) -> bool:
    """Whether nothing but a disposable world can change, or the tool says that it only reads."""
    if not server.moving and (policy.writes or call.only_reads):
        return True
    return call.only_reads and read_purpose(call.contract).family not in _CHANGES


def _choose(calls: Iterable[WantedCall], policy: ExecutionPolicy) -> Sequence[WantedCall]:
    """A few calls of one tool, as many of its twins, and all tasks of worlds, in a stable order.
    Of calls that worked when explored as many as were looked for, and then no others."""
    ranked = sorted(calls, key=lambda call: digest([call.arguments]))
    tasks = [item for item in ranked if item.task]
    plain = [item for item in ranked if not item.task and item.twin_of is None]
    observed = [item for item in plain if item.observed][: max(policy.per_tool, policy.explore)]
    others = [item for item in ranked if item.twin_of is not None][: policy.per_tool]
    return [*tasks, *(observed or plain[: policy.per_tool]), *others]
