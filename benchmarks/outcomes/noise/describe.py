"""What a table holds: tasks, endpoints, calls, and how often each fault left a call a success."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from benchmarks.outcomes.noise.endpoints import BEFORE
from benchmarks.outcomes.noise.play import SHOWN, NoiseStage
from benchmarks.outcomes.noise.table import NO_CALL


def describe_table(stage: NoiseStage) -> dict[str, Any]:
    """Counts, and the share of successes among calls that were made, by fault."""
    table = stage.table
    by_fault: dict[str, list[bool]] = defaultdict(list)
    for (_, name, phase), tried in table.outcomes.items():
        if tried.kind != NO_CALL and phase == BEFORE:
            endpoint = table.endpoints[name]
            fault = endpoint.faults[BEFORE] or ("real" if endpoint.direct else "none")
            by_fault[fault].append(tried.success)
    kinds = Counter(item.kind for item in table.outcomes.values())
    endpoints = table.endpoints.values()
    return {
        "tasks": dict(Counter(task.split for task in table.tasks)),
        "requests": len({task.query for task in table.tasks}),
        "intents": len({task.intent for task in table.tasks}),
        "servers": len({endpoint.source for endpoint in endpoints}),
        "real": sum(endpoint.direct for endpoint in endpoints),
        "variants": sum(not endpoint.direct and not endpoint.newcomer for endpoint in endpoints),
        "newcomers": sum(endpoint.newcomer for endpoint in endpoints),
        "changed": sum(endpoint.changes for endpoint in endpoints),
        "new contracts": sum(bool(endpoint.renames) for endpoint in endpoints),
        "pairs": len(table.outcomes),
        "calls made": len(table.outcomes) - kinds[NO_CALL],
        "kinds": dict(kinds),
        "success by fault": {
            name: {"share": round(float(np.mean(own)), 4), "n": len(own)}
            for name, own in sorted(by_fault.items())
        },
        "any of five": _share_done(stage, SHOWN),
        "any candidate": _share_done(stage, 10**6),
    }


def _share_done(stage: NoiseStage, most: int) -> float:
    """The share of tasks that one of the retriever's first `most` candidates does."""
    done = []
    for task in stage.table.tasks:
        places = stage.ask(task, BEFORE).candidates[:most].tolist()
        done.append(any(stage.succeeds(task, place, BEFORE) for place in places))
    return round(float(np.mean(done)), 4)
