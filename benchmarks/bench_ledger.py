"""Ledger: paid effects a second with 1 and 8 writing processes, in SQLite and in Postgres.

    python -m benchmarks.bench_ledger                 # 400 effects an arm, five rounds
    python -m benchmarks.bench_ledger --effects 100 --rounds 3

An effect here costs nothing to carry out: what is timed is claim, reservation in a budget, blob,
journal and the two transactions. Postgres is a cluster of its own on loopback, with its own
defaults (a commit waits for the disk; SQLite's does not). `round trip`: one statement alone. Needs
Debian's postgresql and the extra `postgres`.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from tests.support.postgres import open_postgres
from warehouse.ledger.attempts import Outcome
from warehouse.ledger.ledger import Ledger
from warehouse.sanitize.markdown import make_markdown_table
from warehouse.storage.blobs import Blobs

WRITERS = (1, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--effects", type=int, default=400, help="of each arm and round")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if find_spec("psycopg2") is None:
        sys.exit("bench_ledger needs the extra: uv pip install 'toolmill[postgres]'")
    rates: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="ledger-") as folder, open_postgres(True) as server:
        for at in range(given.rounds):
            arms = [(engine, writers) for engine in ("SQLite", "Postgres") for writers in WRITERS]
            for engine, writers in arms if at % 2 else reversed(arms):
                place = Path(folder) / f"{engine}{writers}-{at}"
                url = server.make_database(f"w{writers}r{at}") if engine == "Postgres" else None
                seconds = time_writers(place, url, writers, given.effects // writers)
                made = given.effects // writers * writers
                rates.setdefault((engine, writers), []).append(made / seconds)
        trip = time_statement(Path(folder) / "trip", server.make_database("trip"))
    print(render_table(rates))
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"\n{given.rounds} rounds of {given.effects} effects; {load}")
    print(f"one statement of Postgres: {trip * 1000:.2f} ms")


def time_writers(place: Path, url: str | None, writers: int, each: int) -> float:
    """Seconds that `writers` processes take to carry out `each` effects, from when all are ready;
    what they paid is checked."""
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(writers + 1)
    children = [
        spawn.Process(target=write_effects, args=(place, url, barrier, number, each))
        for number in range(writers)
    ]
    for child in children:
        child.start()
    barrier.wait(300)
    began = time.perf_counter()
    barrier.wait(600)
    seconds = time.perf_counter() - began
    for child in children:
        child.join()
    ledger = open_ledger(place, url)
    assert ledger.counts() == {("llm", "done"): writers * each}
    assert abs(ledger.spent() - writers * each * 0.001) < 1e-6
    ledger.close()
    return seconds


def write_effects(place: Path, url: str | None, barrier: Any, number: int, each: int) -> None:
    """One writer."""
    ledger = open_ledger(place, url)
    barrier.wait(300)
    for n in range(each):
        answer = f"{number}:{n} ".encode() * 50
        ledger.once("llm", f"{number}:{n}", lambda a=answer: Outcome(a, usd=0.001),
                    reserve_usd=0.01)  # fmt: skip
    barrier.wait(600)
    ledger.close()


def time_statement(place: Path, url: str) -> float:
    """Seconds of the median statement, of 500."""
    ledger, took = open_ledger(place, url), []
    for _ in range(500):
        began = time.perf_counter()
        ledger._database.select("SELECT 1")
        took.append(time.perf_counter() - began)
    ledger.close()
    return median(took)


def open_ledger(place: Path, url: str | None) -> Ledger:
    ledger = Ledger(place / "ledger.db", Blobs(place / "blobs"), url=url)
    ledger.set_budget("usd", 1000.0)
    return ledger


def render_table(rates: dict[tuple[str, int], list[float]]) -> str:
    """Effects a second: median and range of the rounds, and Postgres against SQLite by round."""
    rows = []
    for writers in WRITERS:
        sqlite, postgres = rates["SQLite", writers], rates["Postgres", writers]
        ratios = [there / here for here, there in zip(sqlite, postgres, strict=True)]
        rows.append([str(writers), show(sqlite, ".0f"), show(postgres, ".0f"), show(ratios, ".2f")])
    return make_markdown_table(["writers", "SQLite", "Postgres", "Postgres / SQLite"], rows)


def show(values: list[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


if __name__ == "__main__":
    main()
