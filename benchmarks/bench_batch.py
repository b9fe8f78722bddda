"""What a batch costs this machine: gathering, sending and harvesting it, and the ledger's part.

    python -m benchmarks.bench_batch [--rows 10000]

The endpoint is the tests' own, on loopback in this process; answers are 600 characters. "Ledger
alone" finishes as many requests of another batch with answers at hand, without HTTP or JSONL.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.batch_endpoint import batch_endpoint
from tests.support.openai_endpoint import Say

if TYPE_CHECKING:
    from warehouse.ledger.ledger import Ledger

TEXT = json.dumps({"said": "x" * 580})


def measure(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """(wall seconds, processor seconds of this process, result)."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return time.perf_counter() - wall, time.process_time() - cpu, found


def finish_alone(ledger: "Ledger", keys: Sequence[str]) -> int:
    """Claims and finishes a batch of these requests; only the finishing is timed by the caller."""
    from warehouse.ledger.attempts import Outcome

    attempts = ledger.batches.list_waiting("tm-alone")
    answers = ((attempts[key], Outcome(f"{key}{TEXT}".encode(), "m", 9, 9, 1e-6)) for key in keys)
    return ledger.batches.finish(answers)


def claim_alone(ledger: "Ledger", keys: Sequence[str]) -> None:
    """Claims these requests for a batch."""
    batch = ledger.batches.open(
        "tm-alone", stage="pairs", partition="_", role="generator", model="m", base_url="",
        window="24h", usd_in=0.5, usd_out=0.5,
    )  # fmt: skip
    for key in keys:
        ledger.batches.claim(batch, "llm:generator", key, reserve_usd=0.001, scope="usd")


def print_report(rows: int, folder: Path) -> None:
    from pydantic import create_model

    from extensions.batch.api.rounds import advance_open
    from warehouse.ledger.ledger import Ledger
    from warehouse.llm.batch import run_batch
    from warehouse.llm.client import LLM, LLMError, Role
    from warehouse.storage.blobs import Blobs

    schema = create_model("Said", said=(str, ...))
    ledger = Ledger(folder / "ledger.db", Blobs(folder / "blobs"))
    prompt = "Write a request that a person might make of this tool. " * 40

    def run(role: Role) -> int:
        llm = LLM([role], ledger, batches=True)

        async def ask(number: int) -> bool:
            messages = [{"role": "user", "content": f"{prompt} {number}"}]
            try:
                await llm.complete("generator", messages, schema=schema)
            except LLMError:
                return False
            return True

        return sum(
            run_batch(range(rows), ask, llm, fail=lambda *_: False, workers=48, stage="pairs")
        )

    with batch_endpoint(lambda _, number: Say(TEXT.replace("xxxxxx", f"{number:06}", 1))) as server:
        role = Role(
            name="generator", model="m", base_url=server.url, api_key="k", batch=True, usd_in=1.0,
            usd_out=1.0,
        )  # fmt: skip
        submitted = measure(lambda: run(role))
        server.end()
        harvested = measure(lambda: advance_open(ledger, {"generator": role}))
        assert [one.answered for one in harvested[2]] == [rows]
        known = measure(lambda: run(role))
    assert (submitted[2], known[2]) == (0, rows)
    keys = [f"alone-{number}" for number in range(rows)]
    claimed = measure(lambda: claim_alone(ledger, keys))
    alone = measure(lambda: finish_alone(ledger, keys))
    print(f"{rows:,} requests")
    print("| step | wall s | CPU s | ms a row |")
    print("| --- | ---: | ---: | ---: |")
    steps = {"submit": submitted, "harvest": harvested, "run that finds all": known}
    steps |= {"ledger alone, claim": claimed, "ledger alone, finish": alone}
    for name, (wall, cpu, _) in steps.items():
        print(f"| {name} | {wall:.2f} | {cpu:.2f} | {1000 * wall / rows:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        print_report(chosen.rows, Path(name))


if __name__ == "__main__":
    main()
