"""kill -9 while pairs are written: what was answered is kept, what was in flight is listed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from assets.synthesis.compose import compose
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.synthesis.contracts import ALL, snapshot_rows
from warehouse.blobs import Blobs
from warehouse.effects.ledger import Ledger
from warehouse.effects.llm import LLM, Role

CONCURRENCY = 3
ROWS = snapshot_rows([{**tool, "name": f"{tool['name']}_{n}"} for n in range(4) for tool in ALL])


def client(root: Path, url: str) -> LLM:
    shared = {"model": "m", "base_url": url, "api_key": "k", "concurrency": CONCURRENCY}
    ledger = Ledger(root / "state" / "ledger.db", Blobs(root / "blobs"))
    return LLM([Role("generator", **shared), Role("caller", **shared)], ledger)


def slow_model(body: dict[str, Any], _number: int) -> Say:
    writes = body["messages"][0]["content"].startswith("You write requests")
    made = {"requests": [{"instruction": f"Please do number {i} for me."} for i in range(2)]}
    return Say(json.dumps(made if writes else {"arguments": {}}), delay_s=0.05)


def test_a_killed_run_repeats_at_most_what_was_in_flight(tmp_path: Path) -> None:
    with openai_endpoint(slow_model) as endpoint:
        code = (
            "import sys; from pathlib import Path; from tests.synthesis import test_kill as t;"
            "t.compose(t.ROWS, t.client(Path(sys.argv[1]), sys.argv[2]), k=2)"
        )
        victim = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), endpoint.url])
        deadline = time.monotonic() + 60
        while len(endpoint.requests) < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        before = len(endpoint.requests)
        assert 20 <= before < 3 * len(ROWS), "the run was killed in its middle"

        llm = client(tmp_path, endpoint.url)
        rows = compose(ROWS, llm, k=2)
        unknown = llm._ledger.unknown()
        total = len(endpoint.requests)
    assert {row["status"] for row in rows} == {"ok"}
    # One generator request a tool, one caller request a pair; both roles have requests in flight.
    needed = 3 * len(ROWS)
    assert needed <= total <= needed + 2 * CONCURRENCY
    assert len(unknown) <= 2 * CONCURRENCY
    assert total - needed <= len(unknown)
    assert llm.counts["cached"] >= before - 2 * CONCURRENCY
