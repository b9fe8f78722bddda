"""The noise bench: which tools work, learnt from outcomes of real calls among damaged copies.

    python -m benchmarks.outcomes.noise OUT [--tasks 2000] [--held-out 400] [--variants 150]

Real endpoints of MCP servers run in worlds, in the sandbox of this home's settings; variants are
proxies of ours before them, over MCP too. Each task is tried once with each of its candidates, in
the first state of its world, and judged by rule; the results are kept in OUT as a table
(full information), and every method then plays against that table: nothing is run again for it.
With a table in OUT that is used, unless `--again`. OUT also gets the log as a feedback file and a
tools file for `toolmill rerank-eval`. `--sheet N` writes answers for a person to label, `--labels`
tells how far a filled sheet agrees with the rules.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.outcomes.noise.build import Size, build_table, load_stage, save_stage
from benchmarks.outcomes.noise.describe import describe_table
from benchmarks.outcomes.noise.feedback import write_feedback
from benchmarks.outcomes.noise.intents import TRAIN
from benchmarks.outcomes.noise.labels import measure_agreement, write_sheet
from benchmarks.outcomes.noise.model_actor import ROLE
from benchmarks.outcomes.noise.play import Make, Stage, draw_log
from benchmarks.outcomes.noise.render import render_report
from benchmarks.outcomes.noise.report import (
    measure_curve,
    measure_drift,
    summarise_categories,
    summarise_values,
    value_fixed,
    value_methods,
    value_online,
    value_with_model,
)
from benchmarks.outcomes.noise.table import FILES
from benchmarks.outcomes.simulator import TICK_S
from extensions.recommender.training.methods.catalogue import METHODS
from extensions.recommender.training.methods.ours import Ours
from extensions.recommender.training.methods.toolflix import ToolFlix
from extensions.recommender.training.ranker_fit import FitSettings
from orchestration.factories import make_launcher, make_writer, open_warehouse
from orchestration.settings.load import load_settings

SUMMARY, SHEET = "summary.json", "labels.csv"
CURVE = (50, 100, 200, 500, 1000)
# Ours also with outcomes that count half after 600 requests, ToolFlix also without its wide
# features.
FADING = FitSettings(half_life_s=600 * TICK_S)
KNOWN: dict[str, Make] = {
    **METHODS,
    "toolflix-slim": lambda: ToolFlix(wide=False),
    "ours-fading": lambda: Ours(FADING),
}


def main() -> None:
    chosen = read_arguments()
    out: Path = chosen.out
    if chosen.labels:
        print(json.dumps(measure_agreement(load_stage(out).table, chosen.labels), indent=1))
        return
    stage = replace(find_stage(out, chosen), callable_only=not chosen.all_candidates)
    train = stage.list_tasks(TRAIN)
    write_feedback(stage, draw_log(stage, train, 0), out)
    if chosen.sheet:
        print(f"{write_sheet(stage.table, out / SHEET, chosen.sheet, 0)} rows: {out / SHEET}")
    names = chosen.methods.split(",") if chosen.methods else list(KNOWN)
    methods = {name: KNOWN[name] for name in names}
    seeds = range(chosen.seeds)
    fixed = value_fixed(stage)
    values = fixed | value_methods(stage, methods, len(train), seeds)
    figures: dict[str, Any] = {
        "table": describe_table(stage),
        "log": {"success": summarise_values(stage, values)},
        "categories": summarise_categories(stage, values),
    }
    tell("learnt from the retriever's log")
    if chosen.curve:
        sizes = [n for n in CURVE if n < len(train)]
        figures["log"]["curve"] = measure_curve(stage, methods, sizes, seeds)
        tell("learning curve")
    if chosen.online:
        values, curve = value_online(stage, methods, seeds)
        figures["online"] = {"success": summarise_values(stage, fixed | values), "curve": curve}
        tell("learnt online")
    if chosen.model:
        settings = load_settings()
        llm = make_writer(settings).make_llm(open_warehouse(settings), "_")
        figures["model"] = {
            "role": llm.identity(ROLE),
            "success": value_with_model(stage, methods, llm),
        }
        tell("a model picked")
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
    parser.add_argument("--curve", action="store_true", help="success by outcomes, too")
    parser.add_argument("--online", action="store_true", help="methods order training tasks, too")
    parser.add_argument("--model", action="store_true", help=f"role {ROLE} picks of five, too")
    parser.add_argument(
        "--all-candidates", action="store_true", help="tools that no call can be written for, too"
    )
    parser.add_argument("--drift", type=int, default=0, help="outcomes after the change; 0: none")
    parser.add_argument("--sheet", type=int, default=0, help="answers for a person to label")
    parser.add_argument("--labels", type=Path, help="a filled sheet: prints the agreement")
    parser.add_argument("--again", action="store_true", help="execute, even with a table in OUT")
    return parser.parse_args()


def find_stage(out: Path, chosen: argparse.Namespace) -> Stage:
    """The table of OUT, or a new one."""
    if not chosen.again and (out / FILES[-1]).is_file():
        return load_stage(out)
    settings = load_settings()
    ledger, policy = open_warehouse(settings).ledger, make_launcher(settings).policy
    size = Size(chosen.tasks, chosen.held_out, chosen.variants, chosen.seed)
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
