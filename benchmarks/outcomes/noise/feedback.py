"""The bench's log as a feedback file and a tools file of ToolFlix's released format."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.outcomes.noise.endpoints import BEFORE
from benchmarks.outcomes.noise.play import Stage
from extensions.recommender.training.examples import Example

FEEDBACK, TOOLS = "feedback.jsonl", "tools.json"


def write_feedback(stage: Stage, examples: Sequence[Example], folder: Path) -> None:
    """FEEDBACK: a row an outcome; TOOLS: the endpoints by server."""
    rows = [make_row(stage, example) for example in examples]
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    (folder / FEEDBACK).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    servers = json.dumps(list_servers(stage), ensure_ascii=False, indent=1)
    (folder / TOOLS).write_text(f"{servers}\n", encoding="utf-8")


def make_row(stage: Stage, example: Example) -> dict[str, Any]:
    """One outcome; `task` groups those of one request."""
    tools = stage.pools[BEFORE].tools
    candidates = [_name_tool(tools[place].tool_id) for place in example.question.candidates]
    return {
        "task": example.question.text,
        "query": example.question.text,
        "selected": _name_tool(tools[example.place].tool_id),
        "rating": {"success": example.success},
        "retriever_candidates": candidates,
    }


def list_servers(stage: Stage) -> list[dict[str, Any]]:
    """Every server with its tools as they are listed in the first phase."""
    found: dict[str, list[Any]] = {}
    for one in stage.table.endpoints.values():
        if not one.newcomer:
            found.setdefault(one.server_id, []).append(one.contracts[BEFORE])
    return [{"id": server, "tools": tools} for server, tools in found.items()]


def _name_tool(endpoint: str) -> dict[str, str]:
    server, _, tool = endpoint.partition("::")
    return {"server_id": server, "tool_name": tool}
