"""What people decided about releases and candidates: rolled back, and lifted again; refused, and
approved after all.

releases/DECISIONS.jsonl   {decision: "rollback", id, at, from, to, releases,
                            models {role: [name]}, by, why}
                           {decision: "undo", id, at, of}
                           {decision: "refuse" | "approve", id, at, role, model, by, reason}
"""

import time
from pathlib import Path
from typing import Any

from training.releases.pointers import DECISIONS, read_current_history

Json = dict[str, Any]
REFUSE, APPROVE = "refuse", "approve"
LIFT = "`toolmill release rollback --undo` lifts that"


def list_rollbacks(home: Path) -> list[Json]:
    """All rollbacks, lifted or not, oldest first."""
    lines = read_current_history(home, DECISIONS)
    return [line for line in lines if line.get("decision") == "rollback"]


def list_standing_rollbacks(home: Path) -> list[Json]:
    """Rollbacks that nobody lifted, oldest first."""
    lines = read_current_history(home, DECISIONS)
    lifted = {line.get("of") for line in lines if line.get("decision") == "undo"}
    return [line for line in list_rollbacks(home) if line.get("id") not in lifted]


def map_rejected_models(home: Path, role: str) -> dict[str, str]:
    """Models that were rolled back in a role, each with the reason it stays out."""
    return {
        model: describe_rollback(decision)
        for decision in list_standing_rollbacks(home)
        for model in decision.get("models", {}).get(role, [])
    }


def map_refused_models(home: Path, role: str) -> dict[str, str]:
    """Models of a role that a person refused and nobody approved since, each with the reason."""
    out: dict[str, str] = {}
    for line in read_current_history(home, DECISIONS):
        if line.get("role") != role:
            continue
        model = str(line.get("model"))
        if line.get("decision") == REFUSE:
            day = time.strftime("%Y-%m-%d", time.gmtime(line.get("at", 0)))
            out[model] = f"refused by {line.get('by')} on {day}: {line.get('reason')}"
        elif line.get("decision") == APPROVE:
            out.pop(model, None)
    return out


def map_refused_releases(home: Path) -> dict[str, str]:
    """Releases that were rolled back, each with the reason it is not made again."""
    return {
        name: describe_rollback(decision)
        for decision in list_standing_rollbacks(home)
        for name in decision.get("releases", [])
    }


def describe_rollback(decision: Json) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(decision.get("at", 0)))
    by = f" by {decision['by']} ({decision.get('why')})" if decision.get("by") else ""
    return f"rolled back on {day} to release {str(decision.get('to'))[:12]}{by}; {LIFT}"
