"""The repair ladder on drafts with one flaw: what each rung gains, and what it harms.

    python -m benchmarks.bench_repair [--set corpus|api-bank] [--side test|train] [--seed 7]

Good calls of the corpus (written by a language model) on servers of one side of the frozen split,
or of API-Bank's dialogues, each given every flaw of `extensions.sidecar.flaws` that can be
made of it, and left untouched once. Ten tools are offered: the right one, those of its server and
others.
Arms: the draft as it is; json-repair alone; the ladder with the contract alone, with history, with
the conversation too. The ladder was repaired on the side `train`.
"""

import argparse
from random import Random

from benchmarks.repair.arms import build_arms, list_asked
from benchmarks.repair.calls import read_calls
from benchmarks.repair.judge import judge_answer
from benchmarks.repair.tables import (
    ArmResults,
    print_arms,
    print_kinds,
    print_targets,
)
from benchmarks.shared_data import SHARED, require_paths


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set", choices=("corpus", "api-bank"), default="corpus")
    parser.add_argument("--side", choices=("test", "train"), default="test")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    require_paths(SHARED / "corpus", SHARED / "smithery" / "servers.jsonl", SHARED / "api-bank")
    calls = read_calls(args.set, args.side)
    asked = list(list_asked(calls, Random(args.seed)))
    arms = build_arms(asked)
    found = ArmResults(asked, {arm: [judge_answer(item, run(item)) for item in asked]
                          for arm, run in arms.items()})  # fmt: skip
    servers = {item.good.server for item in asked}
    print(f"{len(asked):,} drafts of {len(calls):,} calls, {len(servers)} servers\n")
    for show in (print_arms, print_targets, print_kinds):
        show(found)


if __name__ == "__main__":
    main()
