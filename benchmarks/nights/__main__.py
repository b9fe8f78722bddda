"""Thirty nightly runs: real crawls of the full-scale replicas, real jobs and SQLite event log.

    python -m benchmarks.nights [--days 30] [--scale 30] [--seed 8] [--root var/nights]

Launches, package look-ups and tool calls are a seeded replay of what the world says (the sandbox is
tested elsewhere), models are the rules of the offline provider, and the clock is the month's. After
each day the claims of `claims.py` are checked. A killed month goes on where it was, under the same
arguments. Prints a table; exit 1 where a claim did not hold.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.nights import claims
from benchmarks.nights import incidents as what
from benchmarks.nights.champion import measure_champion
from benchmarks.nights.collect import collect_garbage, list_unwell, measure_store
from benchmarks.nights.nightly_run import NightlyRun, Stage, open_time, run_day
from benchmarks.nights.place import point_at
from benchmarks.nights.reach import count_reached, read_shown
from benchmarks.nights.report import describe_ratios, draw_month, make_table
from benchmarks.nights.vectors import age_vectors, note_start
from demo.server import replicas
from demo.world.month import START, MonthDay

# Registry and PulseMCP state packages, Smithery lists the same servers as hosted ones.
MARKETS = ("registry", "smithery", "pulsemcp")
_DAY = 86_400.0
_GC_EVERY = 7
Row = dict[str, Any]


def main() -> None:
    args = parse_arguments()
    root = args.root.resolve()
    incidents = what.place_incidents(args.days)
    rows = open_month(root, {"seed": args.seed, "scale": args.scale, "markets": args.markets,
                             "incidents": {str(k): v for k, v in incidents.items()}})  # fmt: skip
    month = what.make_month(args.seed, args.scale, incidents)
    markets = tuple(args.markets.split(","))
    with replicas(1, "full", servers=1, sites=markets) as sites:
        point_at(root, sites)
        stage = Stage(root, sites, markets)
        for number in range(len(rows) + 1, args.days + 1):
            row = play_day(stage, month.make_day(number), incidents.get(number, ""), rows)
            rows.append(row)
            with (root / "days.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(make_table(rows).splitlines()[-1], file=sys.stderr, flush=True)
            for one in row["violations"]:
                print(f"  not held: {one}", file=sys.stderr, flush=True)
    print(make_table(rows), describe_ratios(rows, what.QUIET, what.SMALL), sep="\n\n")
    draw_month(rows, args.plot or root / "nights.png")
    broken = [f"day {row['day']}: {one}" for row in rows for one in row["violations"]]
    print("\n" + "\n".join(f"not held: {one}" for one in broken) if broken else "\nall claims held")
    sys.exit(bool(broken))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nights")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--scale", type=int, default=30, help="servers of the first day")
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--markets", default=",".join(MARKETS), help="the last one has the outages")
    parser.add_argument("--root", type=Path, default=Path("var/nights"))
    parser.add_argument("--plot", type=Path, help="a PNG; default: <root>/nights.png")
    return parser.parse_args()


def open_month(root: Path, asked: Row) -> list[Row]:
    """The days that were run so far under the same arguments. Ends the process where the folder
    holds another month."""
    asked_file, days = root / "month.json", root / "days.jsonl"
    root.mkdir(parents=True, exist_ok=True)
    if asked_file.exists() and json.loads(asked_file.read_text()) != asked:
        sys.exit(f"{root} holds a month of other arguments: name another --root, or remove it")
    asked_file.write_text(json.dumps(asked))
    lines = days.read_text(encoding="utf-8").splitlines() if days.exists() else []
    return [json.loads(line) for line in lines]


def play_day(stage: Stage, day: MonthDay, incident: str, rows: list[Row]) -> Row:
    """A day's run, what it came to, and which claims it broke."""
    warehouse, begun = stage.open_warehouse(), stage.root / "begun"
    # What a killed day paid and changed is not in the plan, nor in the tables of the day before.
    resumed = begun.exists() and begun.read_text() == str(day.day)
    begun.write_text(str(day.day))
    note_start(stage.root, day.day)
    now = START.timestamp() + (day.day - 1) * _DAY + 4 * 3600
    retries = claims.count_retries(warehouse, stage.markets, now)
    before = rows[-1]["rows"] if rows else {}
    known = claims.list_contracts(warehouse, stage.markets)
    shown = read_shown(warehouse, stage.markets)
    nightly = run_day(stage, day, incident)
    contracts = claims.list_contracts(warehouse, stage.markets)
    share = len(set(contracts) - set(known)) / max(len(contracts), 1)
    warehouse = stage.open_warehouse()
    now_shown = read_shown(warehouse, stage.markets)
    reached, full = count_reached(shown, now_shown), count_reached({}, now_shown)
    champion = measure_champion(warehouse, stage.root / "frozen.json")
    row: Row = {
        **asdict(nightly),
        "resumed": resumed,
        "contracts": len(contracts),
        "changed": share,
        "reached": reached / max(rows[0]["full"] if rows else full, 1),
        "full": full,
        "champion": champion,
        "bytes": measure_store(stage.root),
        "rows": claims.count_rows(warehouse, stage.markets),
    }
    row["violations"] = list_violations(stage, day, nightly, row, rows, (before, retries))
    if day.day % _GC_EVERY == 0:
        with open_time(day.day), age_vectors(stage.root):
            row["gc"] = collect_garbage(stage.root, now)
        row["violations"] += [f"gc: {kind}: {why}" for part in ("skipped", "failed")
                              for kind, why in row["gc"][part].items()]  # fmt: skip
        row["violations"] += list_unwell()
    return row


def list_violations(
    stage: Stage, day: MonthDay, nightly: NightlyRun, row: Row, rows: list[Row], facts: Any
) -> list[str]:
    before, retries = facts
    warehouse = stage.open_warehouse()
    down = nightly.incident == what.LLM_DOWN
    dark = stage.markets[-1] if nightly.incident in (what.SITE_DOWN, what.LAYOUT) else None
    found = [one for one in nightly.failed if dark is None or not one.startswith(f"nightly {dark}")]
    found += claims.find_lost(warehouse, day, stage.markets, before, dark)
    found += claims.find_poisoned(warehouse, day.month, day.day)
    if rows and not row["resumed"]:
        launches = claims.count_revised(day) + retries + nightly.unknown
        done = nightly.done if not down else {**nightly.done, "llm": 0}
        found += claims.find_overspent(done, rows[0]["done"], row["reached"], launches)
    best = max((one["champion"].get("recall_at_1", 0) for one in rows), default=0)
    now = row["champion"].get("recall_at_1")
    if now is not None and now < best:
        found.append(f"champion: Recall@1 {now:.3f} on the frozen set, {best:.3f} before")
    return found


if __name__ == "__main__":
    main()
