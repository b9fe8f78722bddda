"""Durability: what `kill -9` and a full disk cost, in effects paid twice and publications lost.

    python -m benchmarks.bench_durability                       # 200 kills, 50 full disks
    python -m benchmarks.bench_durability --kills 20 --disks 5

A chain of two stages, twelve paid effects and one published table each, is killed at random moments
and started again until it ends; its tables must equal those of an undisturbed chain. A disk is a
tmpfs of its own in a mount namespace (`unshare --mount`, as root); effects and publications go on
until it is full, then it is read, made larger, and used again.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import polars as pl

from warehouse.ledger.attempts import Outcome
from warehouse.ledger.recovery import check
from warehouse.storage.repair import repair_home
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

SPEC = TableSpec("answers", key=("id",), columns={"id": pl.String, "answer": pl.String})
STAGES, EFFECTS = ("first", "second"), 12
LONGEST_S = 0.3  # of a chain before its kill; a whole one takes about as long
MIB = 1024 * 1024


@dataclass
class Kills:
    """Kills of chains, and what they cost."""

    kills: int = 0
    chains: int = 0
    effects: int = 0
    paid_again_under_way: int = 0  # sent, killed before the answer was kept: sent again
    paid_again_received: int = 0
    tables_differ: int = 0
    unhealthy: int = 0


@dataclass
class Disks:
    """Disks that filled up, and what was lost."""

    disks_filled: int = 0
    failed_writes: int = 0
    effects: int = 0
    publications: int = 0
    refused_before_paying: int = 0
    paid_but_not_kept: int = 0
    history_unreadable: int = 0
    effects_lost: int = 0
    publications_lost: int = 0
    unhealthy_after: int = 0  # with more room, by `toolmill ledger check` and `repair --dry`


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--disks", type=int, default=50)
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print_table(measure_disks(options.disks, random.Random(options.seed)))
        return
    # The disks first, in a process of their own: a process forks no chain once polars has threads.
    command = [sys.executable, "-m", "benchmarks.bench_durability", "--inside"]
    words = ["--disks", str(options.disks), "--seed", str(options.seed)]
    done = subprocess.run(["unshare", "--mount", *command, *words], timeout=1200)
    if done.returncode:
        print("not run: disks need `unshare --mount` and a tmpfs, as root")
    print_table(measure_kills(options.kills, random.Random(options.seed)))


def print_table(found: Kills | Disks) -> None:
    for name, value in asdict(found).items():
        print(f"| {name.replace('_', ' ')} | {value:,} |", flush=True)


def measure_kills(wanted: int, rng: random.Random) -> Kills:
    """Chains, each started again until it ends, until `wanted` kills have hit one."""
    found = Kills()
    with tempfile.TemporaryDirectory() as name:
        reference = Path(name) / "reference"
        run_chain_in_child(reference, None)
        expected = digest_tables(reference)
        while found.kills < wanted:
            home = Path(name) / str(found.chains)
            for _ in range(200):  # starts of one chain; one without a kill ends it
                wait_s = rng.uniform(0, LONGEST_S) if found.kills < wanted else None
                if not run_chain_in_child(home, wait_s):
                    break
                found.kills += 1
            count_payments(home, found)
            found.chains += 1
            found.tables_differ += digest_tables(home) != expected
            whole = check(home / "state" / "ledger.db", Warehouse(home, home / "state").blobs)
            found.unhealthy += not (whole.healthy and repair_home(home, dry=True).healthy)
    return found


def run_chain_in_child(home: Path, kill_after_s: float | None) -> bool:
    """Runs a chain to its end or its kill; whether it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run_chain(home)
            code = 0
        finally:
            os._exit(code)
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return True
    if status:
        raise SystemExit(f"the chain in {home} failed: exit {os.WEXITSTATUS(status)}")
    return False


def run_chain(home: Path) -> None:
    """Two stages: the effects of the second are named by the rows of the first."""
    warehouse = Warehouse(home, home / "state")
    log = os.open(home.with_suffix(".log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    above = ["seed"] * EFFECTS
    for stage in STAGES:
        rows = []
        for number, source in enumerate(above):
            key = f"{stage}-{number}-{source[:40]}"

            def pay(key: str = key) -> Outcome:
                os.write(log, f"paid {key}\n".encode())
                return Outcome(f"answer to {key}".encode(), "m", 1, 1, 0.001)

            answer = warehouse.ledger.once("llm", key, pay, reserve_usd=0.001).decode()
            os.write(log, f"kept {key}\n".encode())
            rows.append({"id": str(number), "answer": answer})
        staged = warehouse.tables.stage(SPEC, SPEC.frame(rows), stage)
        warehouse.tables.promote(staged, "run", [])
        above = [row["answer"] for row in rows]


def count_payments(home: Path, found: Kills) -> None:
    paid: Counter[str] = Counter()
    kept = set()
    for line in home.with_suffix(".log").read_text().splitlines():
        what, _, key = line.partition(" ")
        if what == "kept":
            kept.add(key)
            continue
        found.paid_again_received += key in kept
        found.paid_again_under_way += key in paid and key not in kept
        paid[key] += 1
    found.effects += len(paid)


def digest_tables(home: Path) -> list[str]:
    """The current versions, without reading them: this process must start no threads."""
    tables = Warehouse(home, home / "state").tables
    heads = [tables.head(SPEC.name, stage) for stage in STAGES]
    return [head.digest for head in heads if head]


def measure_disks(wanted: int, rng: random.Random) -> Disks:
    """Disks of 9 to 16 MiB, filled to the last byte with answers and publications."""
    found = Disks()
    with tempfile.TemporaryDirectory() as name:
        for number in range(wanted):
            place = Path(name) / str(number)
            place.mkdir()
            size = rng.randrange(9 * MIB, 16 * MIB, 4096)
            mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
            subprocess.run(mount, check=True)
            try:
                fill_disk(place, rng, found)
            finally:
                subprocess.run(["umount", "--lazy", str(place)], check=True)
    return found


@dataclass
class Written:
    """What one disk was given: what the effects answered, what the ledger and the tables took."""

    place: Path
    rng: random.Random
    paid: dict[str, bytes] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)
    published: list[str] = field(default_factory=list)

    def open(self) -> Warehouse:
        return Warehouse(self.place, self.place / "state")

    def draw(self, most: int) -> bytes:
        return self.rng.randbytes(self.rng.randrange(1_000, most))

    def run_effect(self, stage: str, name: str, usd: float) -> None:
        """One effect of 1 to 120 kB; a paid one is received before the ledger writes it."""
        key = f"{stage}-{name}"

        def answer() -> Outcome:
            data = self.draw(120_000)
            if usd:
                self.paid[key] = data
            return Outcome(data, "m", 1, 1, usd)

        ledger = self.open().ledger
        try:
            self.kept[key] = ledger.once(stage, key, answer, reserve_usd=usd)
        finally:
            ledger.close()

    def publish(self, name: str) -> None:
        tables = self.open().tables
        frame = SPEC.frame([{"id": name, "answer": self.draw(20_000).hex()}])
        self.published.append(tables.promote(tables.stage(SPEC, frame), "run", []).digest)

    def count_unpublished(self) -> int:
        """Publications that history does not name. Raises whatever makes history unreadable."""
        tables = self.open().tables
        if self.published:
            assert len(tables.read(SPEC, as_of=time.time())) == 1
        return len(set(self.published) - {head.digest for head in tables.history(SPEC.name)})


def fill_disk(place: Path, rng: random.Random, found: Disks) -> None:
    """Writes until twenty writes have failed, looks, makes the disk larger, and goes on."""
    written, failures = Written(place, rng), 0
    for number in range(5000):
        for step in (
            lambda name: written.run_effect("page", name, 0.0),
            lambda name: written.run_effect("llm", name, 0.001),
            written.publish,
        ):
            try:
                step(str(number))
            except (OSError, RuntimeError) as error:
                refused = "nothing was sent" in str(error)
                found.refused_before_paying += refused
                failures += not refused
        if failures >= 20:
            break
    found.disks_filled += failures >= 20
    found.failed_writes += failures
    try:
        found.publications_lost += written.count_unpublished()
    except Exception as error:
        print(f"history: {type(error).__name__}: {error}", flush=True)
        found.history_unreadable += 1
    subprocess.run(["mount", "-o", f"remount,size={64 * MIB}", str(place)], check=True)
    found.effects += len(written.kept)
    found.publications += len(written.published)
    found.paid_but_not_kept += len(written.paid.keys() - written.kept.keys())
    written.run_effect("llm", "after", 0.001)
    written.publish("after")
    found.publications_lost += written.count_unpublished()
    warehouse = written.open()
    for key, data in written.kept.items():
        found.effects_lost += warehouse.ledger.seen(key) != data
    whole = check(warehouse.ledger.path, warehouse.blobs)
    healthy = whole.healthy and repair_home(place, dry=True).healthy
    found.unhealthy_after += not (healthy and whole.blobs_missing == 0)
    warehouse.ledger.close()


if __name__ == "__main__":
    main()
