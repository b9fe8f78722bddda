"""The noise bench: which tools work, learnt from outcomes of real calls among damaged copies.

    python -m benchmarks.outcomes.noise OUT [--tasks 2000] [--held-out 400] [--variants 150]

Real endpoints of MCP servers run in worlds, in the sandbox of this home's settings; variants are
proxies of ours before them, over MCP too. Each task is tried once with each of its candidates, in
the first state of its world, and judged by rule; the results are kept in OUT as a table
(full information), and every method then plays against that table: nothing is run again for it.
A table in OUT is used again, unless `--again`.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.outcomes.baselines import ALL_METHODS
from benchmarks.outcomes.noise.build import TableSize, build_table, load_stage, save_stage
from benchmarks.outcomes.noise.intents import TRAIN
from benchmarks.outcomes.noise.play import Make, NoiseStage
from benchmarks.outcomes.noise.report import (
    describe_table,
    measure_drift,
    render_report,
    summarise_categories,
    summarise_values,
    value_fixed,
    value_methods,
)
from benchmarks.outcomes.noise.table import FILES
from extensions.recommender.toolflix import ToolFlix
from orchestration.factories import make_launcher, open_warehouse
from orchestration.settings.load import load_settings

SUMMARY = "summary.json"
KNOWN: dict[str, Make] = {
    **ALL_METHODS,
    "toolflix-slim": lambda: ToolFlix(wide=False),  # without its wide features
}


def main() -> None:
    chosen = read_arguments()
    out: Path = chosen.out
    stage = find_stage(out, chosen)
    train = stage.list_tasks(TRAIN)
    names = chosen.methods.split(",") if chosen.methods else list(KNOWN)
    methods = {name: KNOWN[name] for name in names}
    seeds = range(chosen.seeds)
    values = value_fixed(stage) | value_methods(stage, methods, len(train), seeds)
    figures: dict[str, Any] = {
        "table": describe_table(stage),
        "log": {"success": summarise_values(stage, values)},
        "categories": summarise_categories(stage, values),
    }
    tell("learnt from the retriever's log")
    if chosen.drift:
        figures["drift"] = measure_drift(stage, methods, seeds, chosen.drift)
    (out / SUMMARY).write_text(json.dumps(figures, indent=1))
    print(json.dumps(figures["table"]))
    print(render_report(figures))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--held-out", type=int, default=400)
    parser.add_argument("--variants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1, help="of variants, changes and failures")
    parser.add_argument("--seeds", type=int, default=3, help="logs that each method learns from")
    parser.add_argument("--methods", help=f"of {', '.join(KNOWN)}; default: all")
    parser.add_argument("--drift", type=int, default=0, help="outcomes after the change; 0: none")
    parser.add_argument("--again", action="store_true", help="execute, even with a table in OUT")
    return parser.parse_args()


def find_stage(out: Path, chosen: argparse.Namespace) -> NoiseStage:
    """The table of OUT, or a new one."""
    if not chosen.again and (out / FILES[-1]).is_file():
        return load_stage(out)
    settings = load_settings()
    ledger, policy = open_warehouse(settings).ledger, make_launcher(settings).policy
    size = TableSize(chosen.tasks, chosen.held_out, chosen.variants, chosen.seed)
    run_date = ledger.open_run("noise")
    stage = build_table(size, policy, ledger, run_date, tell)
    ledger.close_run("noise")
    save_stage(stage, out)
    tell("table kept")
    return stage


_BEGAN = time.monotonic()


def tell(line: str) -> None:
    print(f"{time.monotonic() - _BEGAN:5.0f} s  {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
