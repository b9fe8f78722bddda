"""What people decided about releases: rolled back, and lifted again.

releases/DECISIONS.jsonl   {decision: "rollback", id, at, from, to, releases,
                            models {role: [name]}}
                           {decision: "undo", id, at, of}
"""

import time
from pathlib import Path
from typing import Any

from training.releases.pointers import DECISIONS, read_current_history

Json = dict[str, Any]
LIFT = "`toolmill release rollback --undo` lifts that"


def list_standing_rollbacks(home: Path) -> list[Json]:
    """Rollbacks that nobody lifted, oldest first."""
    lines = read_current_history(home, DECISIONS)
    lifted = {line.get("of") for line in lines if line.get("decision") == "undo"}
    return [
        line
        for line in lines
        if line.get("decision") == "rollback" and line.get("id") not in lifted
    ]


def map_rejected_models(home: Path, role: str) -> dict[str, str]:
    """Models that were rolled back in a role, each with the reason it stays out."""
    return {
        model: describe_rollback(decision)
        for decision in list_standing_rollbacks(home)
        for model in decision.get("models", {}).get(role, [])
    }


def map_refused_releases(home: Path) -> dict[str, str]:
    """Releases that were rolled back, each with the reason it is not made again."""
    return {
        name: describe_rollback(decision)
        for decision in list_standing_rollbacks(home)
        for name in decision.get("releases", [])
    }


def describe_rollback(decision: Json) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(decision.get("at", 0)))
    return f"rolled back on {day} to release {str(decision.get('to'))[:12]}; {LIFT}"
