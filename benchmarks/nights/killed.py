"""A run that dies of SIGKILL in the middle of its launches: a process of its own.

python -m benchmarks.nights.killed ROOT < facts of the day
"""

import json
import sys
from pathlib import Path

from benchmarks.nights.nightly_run import make_resources, open_time
from benchmarks.nights.place import point_at
from benchmarks.nights.replay import Replay, replay_launches
from demo.world.month import ChangeRates, WorldMonth
from orchestration.runs.instance import open_instance, size_pools
from orchestration.runs.runner import Runner
from orchestration.runs.task import Task

KILL_AT = 2


def main() -> None:
    root, facts = Path(sys.argv[1]), json.load(sys.stdin)
    point_at(root, facts["ports"])
    month = WorldMonth(
        facts["seed"],
        facts["servers"],
        rates={int(day): ChangeRates(**one) for day, one in facts["rates"].items()},
        edited={int(day): count for day, count in facts["edited"].items()},
        poisoned={int(day): count for day, count in facts["poisoned"].items()},
    )
    day = month.make_day(facts["day"])
    replay = Replay(day, kill_at=KILL_AT)
    with open_time(day.day), replay_launches(replay), open_instance() as instance:
        size_pools(instance)
        for name in facts["markets"]:
            Runner(instance, make_resources("")).execute(Task("nightly", partition=name))
    sys.exit(f"no launch number {KILL_AT} on day {day.day}: nothing was killed")


if __name__ == "__main__":
    main()
