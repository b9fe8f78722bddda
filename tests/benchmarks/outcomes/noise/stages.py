"""A table of three endpoints and a few tasks, without any server."""

from typing import Any

import numpy as np

from benchmarks.outcomes.noise.endpoints import ToolEndpoint
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN
from benchmarks.outcomes.noise.play import NoiseStage
from benchmarks.outcomes.noise.table import OutcomeTable, TableCall, TaskFacts

SOURCE = "npm:@modelcontextprotocol/server-filesystem"


def make_contract(name: str, *parameters: str) -> dict[str, Any]:
    properties = {
        parameter: {"type": "string", "description": f"the {parameter}"} for parameter in parameters
    }
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"name": name, "description": f"{name} of a file", "inputSchema": schema}


def make_endpoint(server: str, base: str = "read_text_file", **more: Any) -> ToolEndpoint:
    contract = make_contract(base, "path")
    return ToolEndpoint(server, base, SOURCE, base, contract, **more)


def make_stage() -> NoiseStage:
    """The first endpoint fails, the others work; the retriever prefers the first."""
    first = make_endpoint("srv-1")
    second, third = (make_endpoint(name, direct=False) for name in ("srv-2", "srv-3"))
    endpoints = {one.id: one for one in (first, second, third)}
    ids = tuple(endpoints)
    tasks, outcomes = [], {}
    for at in range(8):
        split = TRAIN if at < 6 else HELD_OUT
        task = TaskFacts(f"t{at}", split, "read", "files", "w", 1, f"read {at}", ids, (first.id,))
        tasks.append(task)
        for name, success in zip(ids, (False, True, True), strict=True):
            outcomes[task.id, name] = TableCall(success, "ok", 0.1, "an answer")
    vectors = np.eye(3, 4, dtype=np.float32)
    queries = np.tile(np.array([0.8, 0.5, 0.33, 0], np.float32), (8, 1))
    return NoiseStage(OutcomeTable(tasks, endpoints, outcomes), queries, vectors)
