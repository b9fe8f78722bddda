"""The tables of pairs and judgements, and how their columns are read and written."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from assets.columns import read_table_spec
from warehouse.item_failure import INTERNAL
from warehouse.json_types import Json, JsonObject, Row
from warehouse.llm.roles import PENDING
from warehouse.storage.digest import canonical_json, digest
from warehouse.storage.tables import Tables

# What a row asks of a model. The first two are one call to one tool; training reads those.
SINGLE, LOOKALIKE = "single", "lookalike"
PARALLEL, SEQUENTIAL = "parallel", "sequential"
NO_TOOL, MISSING, CLARIFY, RECOVERY = "no_tool", "missing_parameter", "clarification", "recovery"
TASKS = (SINGLE, LOOKALIKE, PARALLEL, SEQUENTIAL, NO_TOOL, MISSING, CLARIFY, RECOVERY)
ONE_CALL = (SINGLE, LOOKALIKE)
# What a row is written from: calls that worked, a contract alone, a world's task, a user's trace.
EXPLORED, CONTRACT, WORLD, TRACE = "explored", "contract", "world", "trace"
TRAJECTORY = "trajectory"  # a task carried out in a world: no unit writes it, `outcomes` plays it

PAIRS = read_table_spec(__file__, "pairs")

JUDGEMENTS = read_table_spec(__file__, "judgements")
# `assets/outcomes` fills it; pairs are written from its useful calls.
EXPLORATIONS = read_table_spec(__file__, "explorations")
# `training` fills it from evaluations; what it grants is explored and written the next night.
CURRICULUM = read_table_spec(__file__, "curriculum")

# Failures of the endpoint, the budget or a world pass, and so does the wait for a batch; a bad
# answer is kept and would come back.
PASSING = {
    PENDING,
    *("endpoint_down", "timeout", "rate_limited", "server_error", "auth", "budget"),
    "world_failed",
}


def read_grants(tables: Tables) -> dict[tuple[str, str], set[str]]:
    """(server, tool) -> the tasks that it is granted by what models got wrong the night before."""
    grants: dict[tuple[str, str], set[str]] = {}
    for row in tables.read(CURRICULUM).select("server_id", "tool", "task").iter_rows():
        grants.setdefault(row[:2], set()).add(row[2])
    return grants


@dataclass(frozen=True)
class GoldenCall:
    """One right call. borrowed: the arguments whose value an earlier call's result gives."""

    server_id: str
    tool: str
    contract_digest: str
    arguments: dict[str, Json]
    borrowed: tuple[str, ...] = ()


def read_goldens(row: Row) -> list[GoldenCall]:
    """The right calls of a row, in order."""
    calls = json.loads(row["calls"] or "[]")
    return [GoldenCall(**{**call, "borrowed": tuple(call.get("borrowed") or ())}) for call in calls]


def read_contract(row: Row) -> dict[str, Json]:
    """The contract in a snapshot row, as JSON text or mapping. Raises ValueError, TypeError."""
    contract = row["contract"]
    try:
        body = json.loads(contract) if isinstance(contract, str) else dict(contract)
    except RecursionError as error:
        raise ValueError("the contract is nested too deep to be read") from error
    if not isinstance(body, dict):
        raise ValueError(f"the contract is {type(body).__name__}, expected an object")
    return body


def make_tool_key(row: Row) -> str:
    """`server_id/tool`."""
    return f"{row['server_id']}/{row['tool']}"


def make_unit_key(row: Row) -> str:
    """`server_id/tool#task`: the unit in which pairs are planned and made."""
    return f"{make_tool_key(row)}#{row['task']}"


def make_single_row(call: GoldenCall, instruction: str, offered: Iterable[str]) -> dict[str, Json]:
    """The row of PAIRS of one request to one tool, all other columns empty."""
    columns: dict[str, Json] = {
        "server_id": call.server_id,
        "tool": call.tool,
        "contract_digest": call.contract_digest,
        "task": SINGLE,
        "instruction": instruction,
        "arguments": dump_text(call.arguments),
        "calls": dump_text([vars(call)]),
        "messages": "[]",
        "offered": dump_text(sorted({call.contract_digest, *offered})),
        "status": "ok",
        "verdict": "accept",
    }
    return dict.fromkeys(PAIRS.columns) | columns


def fail_row(columns: JsonObject, step: str, hint: str) -> dict[str, Json]:
    """A row of PAIRS that came to nothing in a way nobody foresaw; `known`: the columns it has."""
    return {
        **dict.fromkeys(PAIRS.columns),
        **dict.fromkeys(("contracts", "steps", "flaws"), "[]"),
        "prompts": "{}",
        "simulated": False,
        **dict.fromkeys(("prompt_tokens", "completion_tokens"), 0),
        "usd": 0.0,
        **columns,
        **dict.fromkeys(("verdict", "cosine", "twin_of", "retry_at")),
        "status": "failed",
        "failed_step": step,
        "error_kind": INTERNAL,
        "hint": f"{hint}; report it with the digest of its trace",
    }


def reaches_judge(row: Row) -> bool:
    """Whether a pair reaches the judge: it is whole, no filter rejected it, it repeats no other."""
    return row["status"] == "ok" and row["verdict"] != "reject" and row.get("twin_of") is None


def select_accepted(
    pairs: Iterable[JsonObject], judgements: Iterable[JsonObject]
) -> list[dict[str, Json]]:
    """Pairs that filters and judge accepted, one per pair_id, of the tasks of one call."""
    return [row for row in select_trainable(pairs, judgements) if row["task"] in ONE_CALL]


def select_trainable(
    pairs: Iterable[JsonObject], judgements: Iterable[JsonObject]
) -> list[dict[str, Json]]:
    """As `accepted`, of all tasks: a training set says which of them it takes."""
    judged = {row["pair_id"] for row in judgements if row["verdict"] == "accept"}
    chosen: dict[str, dict[str, Json]] = {}
    for row in pairs:
        if reaches_judge(row) and row["pair_id"] in judged:
            chosen.setdefault(row["pair_id"], dict(row))
    return [chosen[name] for name in sorted(chosen)]


def dump_text(obj: Json) -> str:
    """Canonical JSON as text, for a column."""
    return canonical_json(obj).decode()


def make_pair_id(row: Row) -> str:
    """`p1:<40 hex>` of what the row says, whatever marketplace, model or run it comes from."""
    texts = row.get("instruction"), row.get("calls"), row.get("messages")
    plan = None if any(texts) else row["plan_digest"]  # a failed row says nothing yet
    identity = [row[name] for name in ("server_id", "tool", "contract_digest", "task", "index")]
    return "p1:" + digest([*identity, *texts, plan])[:40]


def make_golden(row: Row, arguments: dict[str, Json], borrowed: Sequence[str] = ()) -> GoldenCall:
    return GoldenCall(
        row["server_id"], row["tool"], row["contract_digest"], arguments, tuple(borrowed)
    )


def make_user_message(text: str) -> dict[str, Json]:
    return {"role": "user", "content": text}


def make_assistant_message(text: str) -> dict[str, Json]:
    return {"role": "assistant", "content": text}


def make_call_message(first: int, calls: Sequence[tuple[str, JsonObject]]) -> dict[str, Json]:
    """The assistant's message with calls as chat endpoints write them, numbered from `first`."""
    tool_calls = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)},
        }
        for number, (tool, arguments) in enumerate(calls, first)
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def make_result_message(number: int, text: str) -> dict[str, Json]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


@dataclass(frozen=True)
class TaskOrigin:
    """The task of a world that a row is: the world's name, the seed that decides its first state
    and what its tasks draw, the task's name, and the id by which it is found again and checked."""

    world: str
    seed: int
    task: str
    id: str


@dataclass(frozen=True)
class WorldTask:
    """A task that one call carries out. origin: where, and what checks it."""

    origin: TaskOrigin
    tool: str
    request: str
    arguments: dict[str, Json]


class WorldUnavailable(Exception):
    """A world whose tasks cannot be drawn here: which, and why."""


class TaskSource(Protocol):
    """Where tasks come from: `assets/outcomes/proof.py`."""

    def digest_tasks(self, server_id: str, tools: Collection[str]) -> Mapping[str, str]:
        """Tool -> digest of all that decides its tasks, of the tools that have any."""
        ...

    def draw_tasks(self, server_id: str, tools: Collection[str]) -> Sequence[WorldTask]:
        """The tasks of these tools in the world that suits their server, the first to be taken
        first. Raises WorldUnavailable."""
        ...


def read_origin(row: Row) -> TaskOrigin | None:
    """The task of a world that a row of PAIRS is; None of one that was written for its contract."""
    text = row.get("world_task")
    return TaskOrigin(**json.loads(text)) if text else None
