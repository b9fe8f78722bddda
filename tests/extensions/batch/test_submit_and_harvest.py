"""The Batch API of an endpoint on loopback: submitted, harvested, interleaved with kills."""

import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import extensions.batch.batch_ledger as batches_module
from extensions.batch import batch_ledger, outbox
from extensions.batch.batch_endpoint import BatchEndpoint, BatchStatus, _read_status
from extensions.batch.harvest import advance_batch
from extensions.batch.outbox import BatchOutbox
from tests.extensions.batch.batch_runs import (
    ECHOED,
    PENDING,
    WORDS,
    count_attempts,
    echo,
    harvest_all,
    open_ledger,
    run_stage,
    words_of,
)
from tests.support.batch_endpoint import BatchServer
from tests.support.openai_endpoint import Say
from warehouse.ledger.batch_records import BatchRecord
from warehouse.llm.client import AnswerPending, Role
from warehouse.llm.roles import ModelRequest, prepare_request


def test_a_run_submits_a_harvest_pays_and_the_next_run_finds_all(stage):
    first, llm = run_stage(stage.ledger, stage.role, WORDS)
    assert first == dict.fromkeys(WORDS, PENDING)
    assert [batch.state for batch in llm.batches] == ["sent"]
    assert llm.figures()["pending"] == 4
    reserved = stage.ledger.spent()
    assert reserved > 0
    assert stage.run() == first
    assert words_of(stage.server) == [WORDS], "what is under way is not submitted again"
    waiting = stage.harvest()
    assert (waiting.state, waiting.status) == ("sent", "validating")
    done = stage.end()
    assert (done.state, done.answered, done.problem) == ("harvested", 4, "")
    last, llm = run_stage(stage.ledger, stage.role, WORDS)
    assert last == ECHOED
    assert not stage.server.direct
    assert (llm.counts["asked"], llm.counts["cached"]) == (0, 4)
    # Two words of a prompt, two of an answer each, at half of 1 and 2 dollars a million.
    assert stage.ledger.spent() == pytest.approx(4 * (2 * 0.5 + 2 * 1.0) / 1e6)
    assert stage.ledger.spent() < reserved
    assert done.usd == pytest.approx(stage.ledger.spent())


def test_files_hold_at_most_the_requests_and_bytes_that_the_api_takes(stage, monkeypatch):
    monkeypatch.setattr(outbox, "_MOST_REQUESTS", 3)
    stage.run()
    assert words_of(stage.server) == [WORDS[:3], WORDS[3:]]
    size = len(next(iter(stage.server.files.values()))) / 3
    monkeypatch.setattr(outbox, "_MOST_BYTES", 2.5 * size)
    others = ["egret", "robin", "eagle", "gull"]
    stage.run(others)
    assert words_of(stage.server)[2:] == [others[:2], others[2:]]
    monkeypatch.setattr(outbox, "_MOST_BYTES", 100)
    assert stage.run(["finch"]) == {"finch": "finch"}, "what fits no file is asked for directly"
    assert len(stage.server.batches) == 4


def test_what_does_not_fit_the_budget_is_left_out_at_the_batch_price(stage):
    stage.run(WORDS[:1])
    price = stage.ledger.spent()
    stage.ledger.set_budget("usd", 3.5 * price)
    assert sorted(stage.run().values()) == ["budget", PENDING, PENDING, PENDING]
    assert stage.ledger.spent() == pytest.approx(3 * price, rel=0.01)
    stage.server.end("expired", share=0)
    harvest_all(stage.ledger, stage.role)
    assert stage.ledger.spent() == 0, "what did not come back is released"


def test_roles_mix_one_by_batch_and_one_direct(stage):
    stage.run(WORDS[:2])
    expected = {**dict.fromkeys(WORDS[:2], PENDING), "stork": "stork", "ibis": "ibis"}
    assert stage.run(batch=False) == expected
    assert len(stage.server.direct) == 2, "what a batch has is not asked for beside it"
    stage.end()
    assert stage.run(batch=False) == ECHOED
    assert len(stage.server.direct) == 2


def test_a_cut_off_answer_is_asked_for_again_directly(stage):
    def cut_short(body: dict[str, Any], number: int) -> Say:
        return echo(body, number) if body["max_tokens"] > 50 else Say('{"wo', finish="length")

    stage.server.script = cut_short
    stage.run(max_tokens=50)
    stage.end()
    assert stage.run(max_tokens=50) == ECHOED
    assert (len(stage.server.direct), len(stage.server.batches)) == (4, 1)
    assert all(count == 1 for count in stage.server.answered.values())


COSTS: dict[str, Any] = {"usd_in": 1.0, "usd_out": 1.0, "attempts": 100, "batch": True}
ROLE = Role(name="generator", model="m", base_url="http://loopback/v1", **COSTS)
KEYS = 7


class Said(BaseModel):
    said: str


class InMemory(BatchEndpoint):
    """The endpoint without HTTP, that kills the process before or after a call."""

    def __init__(self, server: BatchServer, kill_at: int) -> None:
        self._server, self._left = server, itertools.count(kill_at, -1)

    def _step(self) -> None:
        if next(self._left) == 0:
            raise KeyboardInterrupt

    def upload(self, name: str, data: bytes) -> str:
        self._step()
        file = f"file-{len(self._server.files)}"
        self._server.files[file] = data
        self._step()
        return file

    def create(self, batch: BatchRecord) -> BatchStatus:
        self._step()
        asked = {"endpoint": "", "input_file_id": batch.file_id, "completion_window": "24h"}
        made = self._server.create({**asked, "metadata": {"toolmill_batch": batch.name}})
        self._step()
        return _read_status(made)

    def find(self, name: str, since: float) -> list[BatchStatus]:
        self._step()
        made = [_read_status(one) for one in self._server.batches.values()]
        return [one for one in made if one.mark == name]

    def retrieve(self, batch_id: str) -> BatchStatus:
        self._step()
        return _read_status(self._server.batches[batch_id])

    def download(self, file_id: str) -> Iterator[bytes]:
        for line in self._server.files[file_id].splitlines(keepends=True):
            self._step()
            yield line

    def close(self) -> None:
        return


MESSAGES = [[{"role": "user", "content": f"number {number}"}] for number in range(KEYS)]
REQUESTS = [prepare_request(ModelRequest(ROLE, each, Said, 0, {}, 64), "") for each in MESSAGES]


class World:
    """A state folder and a provider; every step is a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server = folder, BatchServer()
        self.server.script = lambda body, number: Say(json.dumps({"said": "yes"}))

    def run(self, kill_at: int, gathered: int) -> None:
        """A run that is killed after so many calls to the provider, or while it gathers."""
        ledger, provider = open_ledger(self.folder), InMemory(self.server, kill_at)
        outbox = BatchOutbox(
            ledger, "pairs", partition="_", scope="usd", connect=lambda _: provider
        )
        for prepared in REQUESTS[:gathered]:
            if ledger.seen(prepared.key) is None:
                with pytest.raises(AnswerPending):
                    outbox.queue(prepared)
        if gathered < KEYS:
            # What is being gathered belongs to a process that is no more
            gone = {"pid": os.getpid(), "process": "gone"}
            for batch in batch_ledger.BatchLedger(ledger).find("gathering"):
                batch_ledger.BatchLedger(ledger).save(batch.model_copy(update=gone))
        else:
            outbox.submit()
        ledger.close()

    def harvest(self, kill_at: int) -> None:
        ledger = open_ledger(self.folder)
        for batch in batch_ledger.BatchLedger(ledger).find("ready", "sent"):
            advance_batch(ledger, batch.name, ROLE, InMemory(self.server, kill_at), settle_s=0)
        ledger.close()

    def step(self, action: str, kill_at: int, gathered: int) -> None:
        try:
            if action == "run":
                self.run(kill_at, gathered)
            elif action == "harvest":
                self.harvest(kill_at)
            else:
                self.server.end(action, share=0.5 if action == "expired" else 1.0)
        except KeyboardInterrupt:
            return

    def check_money(self) -> None:
        """What is paid is what the provider answered, each request once, and nothing is lost."""
        ledger = open_ledger(self.folder)
        done = count_attempts(ledger).get("done", 0)
        answered = [one for one in REQUESTS if ledger.seen(one.key) is not None]
        assert done == len(answered), "an answer was paid twice"
        assert max(self.server.answered.values(), default=1) == 1, "a request was answered twice"
        assert {one.key for one in answered} <= set(self.server.answered)
        ledger.close()


ACTIONS = st.sampled_from(["run", "run", "harvest", "harvest", "completed", "expired"])
KILLS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 1000])
GATHERED = st.sampled_from([KEYS, KEYS, KEYS, 2])
STEPS = st.lists(st.tuples(ACTIONS, KILLS, GATHERED), min_size=2, max_size=9)


@given(STEPS)
@example([("run", 3, KEYS), ("run", 1000, KEYS)])  # killed behind a creation
@example([("run", 1000, KEYS), ("completed", 0, KEYS), ("harvest", 4, KEYS)])  # in a file
@settings(max_examples=20, deadline=None)
def test_every_interleaving_answers_each_request_once(steps):
    folder = Path(tempfile.mkdtemp())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches_module, "_AT_ONCE", 2)
        patch.setattr(outbox, "_MOST_REQUESTS", 3)
        world = World(folder)
        for step in steps:
            world.step(*step)
            world.check_money()
        for _ in range(4):  # with no more kills it comes to its end
            for action in ("run", "harvest", "completed", "harvest"):
                world.step(action, 1000, KEYS)
        world.check_money()
        ledger = open_ledger(folder)
        assert all(ledger.seen(one.key) for one in REQUESTS)
        assert not batch_ledger.BatchLedger(ledger).find("gathering", "ready", "sent")
        assert not ledger.list_unknown()
        per_answer = json.loads(ledger.seen(REQUESTS[0].key) or b"")["usd"]
        assert abs(ledger.spent() - KEYS * per_answer) < 1e-12
        ledger.close()
    shutil.rmtree(folder)
