"""Evaluations that are asked for ad hoc, kept for the report: the agent's, outside sets'.

evaluations/<kind>/<digest>.json    {kind, name, at, result}
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warehouse.storage.digest import sha256
from warehouse.storage.files import write_atomically

AGENT, OUTSIDE, CONTAMINATION = "agent", "outside", "contamination"


def save_evaluation(home: Path, kind: str, name: str, result: Mapping[str, Any]) -> Path:
    """Keeps a result; `name` says of what (a model, a set): the last of a name is in the report."""
    body = json.dumps(dict(result), sort_keys=True, default=str)
    path = home / "evaluations" / kind / f"{sha256(f'{name}:{body}'.encode())}.json"
    facts = {"kind": kind, "name": name, "at": time.time(), "result": json.loads(body)}
    write_atomically(path, json.dumps(facts, indent=1).encode())
    return path


def load_evaluations(home: Path, kind: str) -> list[dict[str, Any]]:
    """The last result of each name, by name. A file that cannot be read is passed over: it is one
    part of a report."""
    last: dict[str, dict[str, Any]] = {}
    for path in sorted((home / "evaluations" / kind).glob("*.json")):
        try:
            facts = json.loads(path.read_bytes())
            name, at = str(facts["name"]), float(facts["at"])
            result = dict(facts["result"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if name not in last or at >= last[name]["at"]:
            last[name] = {"kind": kind, "name": name, "at": at, "result": result}
    return [last[name] for name in sorted(last)]
