"""What the priors of tools never called are worth: Brier scores on held-out servers and tools, the
hierarchy's against one rate for all.

    python -m benchmarks.outcomes.bench_priors --home DIR

DIR: a home whose executions ran. Of each server (then: of each tool) the calls are left out, and
predicted from all the others. Prints one JSON object.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from assets.outcomes.reliability.estimate import CallEvidence, ToolFeatures, build_priors
from assets.outcomes.reliability.measure import read_known, read_listed
from assets.outcomes.reliability.observations import read_executed
from training.evaluation.metrics import bootstrap_mean
from warehouse.store import Warehouse

_LEVELS: dict[str, Callable[[ToolFeatures], ToolFeatures]] = {
    "all": lambda one: one,
    "without contract": lambda one: replace(one, features=[0.0]),
    "without category": lambda one: replace(one, category="other"),
    "without look-alikes": lambda one: replace(one, alike=()),
    "server alone": lambda one: replace(one, features=[0.0], category="other", alike=()),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    home = parser.parse_args().home
    tables = Warehouse(home, home / "state").tables
    seen = read_evidence(read_executed(tables))
    known = read_known(tables, read_listed(tables)).tools
    called = [one for one in known if one.tool_id in seen]
    found = {
        "calls": sum(seen[one.tool_id].n for one in called),
        "failed": sum(seen[one.tool_id].failed for one in called),
        "tools": len(called),
        "servers": len({one.server_id for one in called}),
    }
    for held_out in ("server_id", "tool_id"):
        found[held_out] = {
            name: compare_scores([change(one) for one in known], seen, held_out)
            for name, change in _LEVELS.items()
        }
    print(json.dumps(found, indent=1))


def read_evidence(frame: pl.DataFrame) -> dict[str, CallEvidence]:
    """Tool id -> its calls, undecayed."""
    counts = frame.group_by("tool_id").agg(
        worked=pl.col("success").sum(), failed=(~pl.col("success")).sum()
    )
    return {name: CallEvidence(float(w), float(f)) for name, w, f in counts.iter_rows()}


def compare_scores(
    tools: list[ToolFeatures], seen: Mapping[str, CallEvidence], held_out: str
) -> dict[str, Any]:
    """Brier scores by one rate and by priors, and their difference with its 95% interval (groups:
    what is held out together); lower is better."""
    flat, ours, groups = [], [], []
    for name in sorted({getattr(tool, held_out) for tool in tools if tool.tool_id in seen}):
        own = [tool for tool in tools if getattr(tool, held_out) == name and tool.tool_id in seen]
        left = {key: of for key, of in seen.items() if key not in {one.tool_id for one in own}}
        priors, overall = build_priors(tools, left)
        for one in own:
            counts = seen[one.tool_id]
            outcomes = [1.0] * round(counts.worked) + [0.0] * round(counts.failed)
            flat += [(overall - outcome) ** 2 for outcome in outcomes]
            ours += [(priors[one.tool_id].mean - outcome) ** 2 for outcome in outcomes]
            groups += [name] * len(outcomes)
    difference = [a - b for a, b in zip(ours, flat, strict=True)]
    return {
        "flat": round(float(np.mean(flat)), 5),
        "priors": round(float(np.mean(ours)), 5),
        "difference": bootstrap_mean(difference, groups).as_dict(),
        "n": len(flat),
    }


if __name__ == "__main__":
    main()
