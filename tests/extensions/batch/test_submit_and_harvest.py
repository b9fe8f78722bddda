"""Requests through the Batch API of a real endpoint on loopback, through the real `openai` SDK."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from extensions.batch import outbox
from tests.extensions.batch.batch_runs import (
    PENDING,
    count_attempts,
    echo,
    harvest_all,
    make_role,
    open_ledger,
    run_stage,
    words_of,
)
from tests.support.batch_endpoint import batch_endpoint
from tests.support.openai_endpoint import Say
from tests.warehouse.llm.test_client import GOOD, ask
from warehouse.llm.client import LLM

WORDS = ["heron", "crane", "stork", "ibis"]


def test_a_run_submits_a_harvest_pays_and_the_next_run_finds_all(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    with batch_endpoint(echo) as server:
        role = make_role(server.url)
        first, llm = run_stage(ledger, role, WORDS)
        assert first == dict.fromkeys(WORDS, PENDING)
        assert [batch.state for batch in llm.batches] == ["sent"]
        assert llm.figures()["pending"] == 4
        reserved = ledger.spent()
        assert reserved > 0
        again, _ = run_stage(ledger, role, WORDS)
        assert again == first
        assert words_of(server) == [WORDS], "what is under way is not submitted again"
        [waiting] = harvest_all(ledger, role)
        assert (waiting.state, waiting.status) == ("sent", "validating")
        server.end()
        [done] = harvest_all(ledger, role)
        last, llm = run_stage(ledger, role, WORDS)
    assert (done.state, done.answered, done.problem) == ("harvested", 4, "")
    assert last == {word: word for word in WORDS}
    assert not server.direct
    assert (llm.counts["asked"], llm.counts["cached"]) == (0, 4)
    # Two words of a prompt, two of an answer each, at half of 1 and 2 dollars a million.
    assert ledger.spent() == pytest.approx(4 * (2 * 0.5 + 2 * 1.0) / 1e6)
    assert ledger.spent() < reserved
    assert done.usd == pytest.approx(ledger.spent())


def test_files_hold_at_most_the_requests_and_bytes_that_the_api_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with batch_endpoint(echo) as server:
        monkeypatch.setattr(outbox, "_MOST_REQUESTS", 3)
        run_stage(open_ledger(tmp_path / "a"), make_role(server.url), WORDS)
        assert words_of(server) == [WORDS[:3], WORDS[3:]]
        size = len(next(iter(server.files.values()))) / 3
        monkeypatch.setattr(outbox, "_MOST_BYTES", 2.5 * size)
        run_stage(open_ledger(tmp_path / "b"), make_role(server.url), WORDS)
    assert words_of(server)[2:] == [WORDS[:2], WORDS[2:]]


def test_an_answer_that_fits_no_file_is_asked_for_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "_MOST_BYTES", 100)
    with batch_endpoint(echo) as server:
        found, _ = run_stage(open_ledger(tmp_path), make_role(server.url), ["heron"])
    assert found == {"heron": "heron"}
    assert not server.batches


def test_what_does_not_fit_the_budget_is_left_out_at_the_batch_price(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    with batch_endpoint(echo) as server:
        role = make_role(server.url)
        run_stage(open_ledger(tmp_path / "other"), role, ["heron"])
        one = open_ledger(tmp_path / "other").spent()
        ledger.set_budget("usd", 2.5 * one)
        found, _ = run_stage(ledger, role, WORDS)
        assert sorted(found.values()) == ["budget", "budget", PENDING, PENDING]
        assert ledger.spent() == pytest.approx(2 * one, rel=0.01)
        server.end("expired", share=0)
        harvest_all(ledger, role)
        assert ledger.spent() == 0, "what did not come back is released"


def test_roles_mix_one_by_batch_and_one_direct(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    with batch_endpoint(echo) as server:
        by_batch, direct = make_role(server.url), make_role(server.url, batch=False)
        run_stage(ledger, by_batch, WORDS[:2])
        found, _ = run_stage(ledger, direct, WORDS)
        assert found == {**dict.fromkeys(WORDS[:2], PENDING), "stork": "stork", "ibis": "ibis"}
        assert len(server.direct) == 2, "what a batch has is not asked for beside it"
        server.end()
        harvest_all(ledger, by_batch)
        found, _ = run_stage(ledger, direct, WORDS)
    assert found == {word: word for word in WORDS}
    assert len(server.direct) == 2


def test_a_client_that_does_not_batch_answers_while_its_caller_waits(tmp_path: Path) -> None:
    with batch_endpoint(lambda *_: Say(GOOD)) as server:
        replies = ask(LLM([make_role(server.url)], open_ledger(tmp_path)))
    assert [reply.value.word for reply in replies] == ["heron"]
    assert not server.batches


def test_a_cut_off_answer_is_asked_for_again_directly(tmp_path: Path) -> None:
    def cut_short(body: dict[str, Any], number: int) -> Say:
        return echo(body, number) if body["max_tokens"] > 50 else Say('{"wo', finish="length")

    ledger = open_ledger(tmp_path)
    with batch_endpoint(cut_short) as server:
        role = make_role(server.url, max_tokens=50)
        run_stage(ledger, role, WORDS[:2])
        server.end()
        harvest_all(ledger, role)
        found, _ = run_stage(ledger, role, WORDS[:2])
    assert (len(server.direct), len(server.batches)) == (2, 1)
    assert found == {"heron": "heron", "crane": "crane"}
    assert all(count == 1 for count in server.answered.values())


def test_an_older_ledger_takes_batches(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.close()
    db = sqlite3.connect(ledger.path)
    db.executescript(
        "DROP INDEX attempts_of_batch; ALTER TABLE attempts DROP COLUMN batch; DROP TABLE batches;"
    )
    db.close()
    with batch_endpoint(echo) as server:
        role = make_role(server.url)
        ledger = open_ledger(tmp_path)
        run_stage(ledger, role, WORDS)
        server.end()
        harvest_all(ledger, role)
    assert count_attempts(ledger) == {"done": 4}
