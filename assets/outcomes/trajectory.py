"""A trajectory: a request, calls with their real answers, and the words that end it; its table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from assets.columns import read_table_spec
from assets.contracts.canonical import canonicalize_contract
from assets.synthesis.export.selection import ExtraRow
from assets.synthesis.tables import (
    PAIRS,
    TRAJECTORY,
    GoldenCall,
    dump_text,
    make_assistant_message,
    make_call_message,
    make_result_message,
    make_user_message,
)
from warehouse.json_types import Row
from warehouse.storage.digest import digest
from warehouse.storage.tables import Tables

KEPT, DROPPED = "kept", "dropped"
JUDGE = "world:end-state"
WRITER = "reference"  # no model chose the calls: they are the task's own

TRAJECTORIES = read_table_spec(__file__, "trajectories")


@dataclass(frozen=True)
class TrajectoryStep:
    """One call that ran. answer: what the server said, redacted; outcome: "useful", or what was
    wrong with it; wrong: it was so on purpose; before, after: digests of its world's state."""

    server_id: str
    tool: str
    contract_digest: str
    arguments: dict[str, Any]
    answer: str
    outcome: str
    before: str
    after: str
    wrong: bool = False


@dataclass(frozen=True)
class WorldStretch:
    """The part of a trajectory that lies in one world: its task, and the state before and after."""

    world: str
    task: str
    seed: int
    before: str
    after: str


@dataclass(frozen=True)
class TaskTrajectory:
    """offered: (server, contract) by digest. why: what keeps it from being learnt from."""

    instruction: str
    steps: tuple[TrajectoryStep, ...]
    answer: str
    places: tuple[WorldStretch, ...]
    offered: Mapping[str, tuple[str, Mapping[str, Any]]] = field(repr=False)
    why: str | None = None

    @property
    def right(self) -> list[TrajectoryStep]:
        """The steps that are to be learnt."""
        return [step for step in self.steps if not step.wrong]

    def make_row(self) -> dict[str, Any]:
        """The row of TRAJECTORIES."""
        first = self.right[0]
        calls = [
            GoldenCall(step.server_id, step.tool, step.contract_digest, step.arguments)
            for step in self.right
        ]
        identity = [self.instruction, [vars(call) for call in calls], len(self.steps)]
        starts = [[place.world, place.seed, place.before] for place in self.places]
        offered = [
            {
                "server_id": server,
                "tool": contract["name"],
                "contract_digest": name,
                "contract": json.dumps(canonicalize_contract(contract), ensure_ascii=False),
            }
            for name, (server, contract) in sorted(self.offered.items())
        ]
        return {
            "trajectory_id": f"t1:{digest([identity, starts])[:40]}",
            "status": DROPPED if self.why else KEPT,
            "why": self.why,
            "worlds": json.dumps([vars(place) for place in self.places]),
            "steps": json.dumps([vars(step) for step in self.steps], ensure_ascii=False),
            "recovers": len(calls) < len(self.steps),
            "server_id": first.server_id,
            "tool": first.tool,
            "contract_digest": first.contract_digest,
            "servers": json.dumps(list(dict.fromkeys(step.server_id for step in self.steps))),
            "instruction": self.instruction,
            "calls": dump_text([vars(call) for call in calls]),
            "messages": json.dumps(self._make_messages(), ensure_ascii=False),
            "contracts": json.dumps(offered, ensure_ascii=False),
        }

    def _make_messages(self) -> list[dict[str, Any]]:
        messages = [make_user_message(self.instruction)]
        for number, step in enumerate(self.steps, 1):
            messages.append(make_call_message(number, [(step.tool, step.arguments)]))
            messages.append(make_result_message(number, step.answer))
        return [*messages, make_assistant_message(self.answer)]


def make_pair_row(row: Row) -> dict[str, Any]:
    """A kept trajectory in the columns of a pair, as exports and the training set read pairs."""
    first = json.loads(row["calls"])[0]
    offered = dump_text([item["contract_digest"] for item in json.loads(row["contracts"])])
    copied = ("server_id", "tool", "contract_digest", "instruction", "calls", "messages")
    return {
        **dict.fromkeys(PAIRS.columns),
        **{name: row[name] for name in copied},
        "pair_id": row["trajectory_id"],
        "task": TRAJECTORY,
        "arguments": dump_text(first["arguments"]),
        "contracts": offered,
        "offered": offered,
        "simulated": False,
        "provider": "offline",
        "model": WRITER,
        "steps": "[]",
        "status": "ok",
    }


def read_kept(tables: Tables, as_of: float | None = None) -> list[dict[str, Any]]:
    """The rows of TRAJECTORIES that are kept, in order."""
    frame = tables.read(TRAJECTORIES, as_of=as_of)
    return frame.filter(pl.col("status") == KEPT).sort("trajectory_id").to_dicts()


def list_exportable(tables: Tables, as_of: float) -> list[ExtraRow]:
    """The kept trajectories for an export."""
    return [
        ExtraRow(make_pair_row(row), JUDGE, json.loads(row["contracts"]))
        for row in read_kept(tables, as_of)
    ]
