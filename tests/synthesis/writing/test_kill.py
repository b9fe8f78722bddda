"""kill -9 while pairs are written: what was answered is kept, what was in flight is listed."""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from assets.synthesis.writing.plan import compose_rows
from assets.synthesis.writing.units import WritingUnit, list_required
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.support.python_process import PythonProcess
from tests.synthesis.contracts import ALL, snapshot_rows
from tests.synthesis.scripted import ROLES, SINGLES, asked_of, data_of, planned
from warehouse.ledger.ledger import Ledger
from warehouse.llm.client import LLM, Role
from warehouse.storage.blobs import Blobs

CONCURRENCY = 3
POLICY = replace(SINGLES, pairs_per_tool=2)


def market() -> list[WritingUnit]:
    tools = [{**tool, "name": f"{tool['name']}_{n}"} for n in range(4) for tool in ALL]
    return planned(snapshot_rows(tools), POLICY)


def client(root: Path, url: str) -> LLM:
    shared = {"model": "m", "base_url": url, "api_key": "k", "concurrency": CONCURRENCY}
    ledger = Ledger(root / "state" / "ledger.db", Blobs(root / "blobs"))
    return LLM([Role(name, **shared) for name in ROLES], ledger)


def slow_model(body: dict[str, Any], _number: int) -> Say:
    """Two requests a tool; the reviser changes nothing that the rules could see."""
    made = {"requests": [{"instruction": f"Please do number {i} for me."} for i in range(2)]}
    answers = {
        "generate": made,
        "revise": {"instruction": data_of(body).get("request", "")},
        "call": {"arguments": {}},
    }
    return Say(json.dumps(answers[asked_of(body)]), delay_s=0.05)


def test_a_killed_run_writes_the_same_and_repeats_at_most_what_was_in_flight(
    tmp_path: Path,
) -> None:
    with openai_endpoint(slow_model) as endpoint:
        code = (
            "import sys; from pathlib import Path;"
            "from tests.synthesis.writing import test_kill as t;"
            "t.compose_rows(t.market(), t.client(Path(sys.argv[1]), sys.argv[2]), t.POLICY)"
        )
        victim = PythonProcess([sys.executable, "-c", code, str(tmp_path), endpoint.url])
        deadline = time.monotonic() + 60
        while len(endpoint.requests) < 20 and time.monotonic() < deadline:
            assert victim.poll() is None
            time.sleep(0.01)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        before = len(endpoint.requests)
        units = market()
        # A request a tool, and for each of its two: a call, and before it a revision where the
        # tool requires a value that no request states.
        needed = sum(3 + 2 * bool(list_required(unit.own["contract"])) for unit in units)
        assert 20 <= before < needed, "the run was killed in its middle"

        llm = client(tmp_path, endpoint.url)
        rows = compose_rows(units, llm, POLICY)
        unknown = llm._calls._ledger.list_unknown()
        total = len(endpoint.requests)
        undisturbed = compose_rows(units, client(tmp_path / "calm", endpoint.url), POLICY)
    assert rows == undisturbed
    assert {row["status"] for row in rows} == {"ok"}
    # Every role may have its requests in flight when it dies.
    most = 3 * CONCURRENCY
    assert needed <= total <= needed + most
    assert len(unknown) <= most
    assert total - needed <= len(unknown)
    assert llm.counts["cached"] >= before - most
