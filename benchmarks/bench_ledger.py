"""What the ledger adds to an effect: through it, against writing the same blobs without it.

python benchmarks/bench_ledger.py
Prints a table: effects per second and the ratio, cold (carried out) and warm (read back).
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from warehouse.ledger.ledger import Ledger, Outcome
from warehouse.storage.blobs import Blobs
from warehouse.storage.digest import digest

N = 2000


def timed(work: Callable[[int], object]) -> float:
    began = time.perf_counter()
    for index in range(N):
        work(index)
    return N / (time.perf_counter() - began)


def main() -> None:
    answers = [f'{{"instruction": "request number {index}"}}'.encode() * 20 for index in range(N)]
    keys = [digest({"request": index}) for index in range(N)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        plain = Blobs(root / "plain")
        ledger = Ledger(root / "ledger.db", Blobs(root / "blobs"))
        bare = timed(lambda index: plain.put(answers[index]))
        cold = timed(lambda index: ledger.once("x", keys[index], lambda: Outcome(answers[index])))
        warm = timed(lambda index: ledger.once("x", keys[index], lambda: Outcome(b"never")))
    print(f"{N} effects of {len(answers[0])} bytes, one thread")
    print(f"{'what':<26}{'per second':>12}{'to bare':>9}")
    for name, value in (("bare blobs", bare), ("ledger, carried out", cold), ("read back", warm)):
        print(f"{name:<26}{value:>12.0f}{value / bare:>9.2f}")


if __name__ == "__main__":
    main()
