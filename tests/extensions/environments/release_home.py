"""Trajectories as a run writes them, and a home with a release of them and of executed pairs."""

import json
from typing import Any

from assets.contracts.canonical import contract_digest
from assets.outcomes.execution import CallExecution
from assets.outcomes.table import EXECUTIONS
from assets.outcomes.trajectory import TRAJECTORIES, TaskTrajectory, TrajectoryStep, WorldStretch
from extensions.environments.recording import ReplayRecording, record_trajectories
from tests.synthesis.contracts import TEXT, make_tool
from training.releases.release import make_release
from training.sets.pool import save_pool
from training.sets.training_set import TRAINING_SET
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

SERVER, BOTH = "npm:files", "Read /a, then write x into /b."
PATH = {"path": TEXT, "content": TEXT}
CONTRACTS = {name: make_tool(name, f"Does {name}", PATH, "path") for name in ("read", "write")}
READ = {"name": "read", "arguments": {"path": "/a"}}
WRITE = {"name": "write", "arguments": {"path": "/b", "content": "x"}}


def step(
    tool: str, inputs: dict[str, Any], output: str, before: str, after: str, **more: Any
) -> TrajectoryStep:
    facts = {"outcome": "useful", **more}
    return TrajectoryStep(SERVER, tool, contract_digest(CONTRACTS[tool]), inputs, output,
                before=before, after=after, **facts)  # fmt: skip


def row(*steps: TrajectoryStep, request: str = BOTH, why: str | None = None):
    offered = {contract_digest(item): (SERVER, item) for item in CONTRACTS.values()}
    places = (WorldStretch("small", "task", 1, steps[0].before, steps[-1].after),)
    return TaskTrajectory(request, steps, "Done.", places, offered, why).make_row()


def rows(output: str = "first") -> list[dict[str, Any]]:
    """A task that reads and writes, one that reads alone, one with a wrong call, a dropped one."""
    reads = step("read", READ["arguments"], output, "s1", "s1")
    writes = step("write", WRITE["arguments"], "written", "s1", "s2")
    wrong = step("read", {"path": "/z"}, "no such file", "s1", "s1",
                 outcome="tool_error", wrong=True)  # fmt: skip
    odd = step("write", {"path": "/q", "content": "y"}, "written", "s1", "s9")
    return [
        row(reads, writes),
        row(reads, request="What does /a say?"),
        row(wrong, reads, request="What does /a say, after all?"),
        row(odd, request="Write y into /r.", why="the end state is not the one asked for"),
    ]


def recording() -> ReplayRecording:
    return record_trajectories(rows())


def find_task(built: ReplayRecording, request: str) -> str:
    [name] = [name for name, task in built.tasks.items() if task.request == request]
    return name


DIGESTS = {name: contract_digest(contract) for name, contract in CONTRACTS.items()}
PAIR, HELD_OUT, USELESS = "p1:one", "p1:two", "p1:three"
PLACES = {"read": "train", "write": "unseen_tool"}


def publish(warehouse: Warehouse, spec: TableSpec, found: list[dict[str, Any]], part: str) -> str:
    frame = spec.frame([{**dict.fromkeys(spec.columns), **row} for row in found])
    return warehouse.tables.promote(warehouse.tables.stage(spec, frame, part), "test", []).digest


def make_pair(name: str, tool: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    digest, contract = DIGESTS[tool], json.dumps(CONTRACTS[tool])
    call = {"name": tool, "contract_digest": digest, "arguments": arguments}
    named = {"pair_id": name, "server_id": SERVER, "tool": tool, "contract_digest": digest}
    about = {"contract": contract, "split": PLACES[tool], "task": "single", "negatives": "[]"}
    texts = {"arguments": arguments, "calls": [call], "offered": [digest]}
    asked = {"instruction": f"Do {tool} on {arguments['path']}, please."}
    return {**named, **about, **{key: json.dumps(texts[key]) for key in texts}, **asked, **more}


def make_execution(
    warehouse: Warehouse, row: dict[str, Any], market: str = "glama", **more: Any
) -> dict[str, Any]:
    facts = {"outcome": "useful", "text": "what it says", "before": "s1", "after": "s1", **more}
    done = CallExecution(
        blame=None, evidence="", status="ok", error_kind=None, hint=None, answer="a",
        structured=None, size=12, seconds=0.1, **{k: v for k, v in facts.items() if k != "proof"},
    )  # fmt: skip
    stored = json.dumps({"execution": done.dump()}).encode()
    copied = ("server_id", "tool", "contract_digest", "arguments")
    named = {"execution_id": f"e1:{row['pair_id']}", "pair_ids": json.dumps([row["pair_id"]])}
    place = {"marketplace": market, "world": "office-folder", "seed": 7}
    ended = {"outcome": facts["outcome"], "proof": facts.get("proof")}
    ended["result_blob"] = warehouse.blobs.put(stored)
    return {**{name: row[name] for name in copied}, **named, **place, **ended}


def fill_home(warehouse: Warehouse, *, pairs: bool = True, played: bool = True) -> str:
    """The release's name. pairs, played: which of the two there is."""
    learnt = make_pair(PAIR, "read", {"path": "/c"})
    tested = make_pair(HELD_OUT, "write", {"path": "/d", "content": "z"})
    useless = make_pair(USELESS, "read", {"path": "/gone"})
    done = [
        make_execution(warehouse, learnt, text="c says so"),
        make_execution(warehouse, tested, after="s7", proof="proved"),
        make_execution(warehouse, useless, outcome="tool_error", text="no such file"),
    ]
    digest = publish(warehouse, TRAINING_SET, [learnt, tested, useless], "_")
    if pairs:  # crawled by two marketplaces
        for market in ("glama", "smithery"):
            publish(warehouse, EXECUTIONS, [{**row, "marketplace": market} for row in done], market)
    if played:
        publish(warehouse, TRAJECTORIES, rows(), "_")
    pool = {
        DIGESTS[name]: {"server_id": SERVER, "tool": name, "contract": held, "split": PLACES[name]}
        for name, held in CONTRACTS.items()
    }
    save_pool(warehouse.home, digest, pool)
    return make_release(warehouse.home, {"retriever": "base"}, "c1", digest)
