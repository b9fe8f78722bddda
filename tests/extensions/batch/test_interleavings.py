"""Runs, harvests, ends and kills in any order: each request is answered once in the ledger, and
paid once."""

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

import warehouse.ledger.ledger as batches_module
from extensions.batch import outbox
from extensions.batch.batch_endpoint import BatchEndpoint, BatchStatus, _read_status
from extensions.batch.harvest import advance_batch
from extensions.batch.outbox import BatchOutbox
from tests.extensions.batch.batch_runs import count_attempts, open_ledger
from tests.support.batch_endpoint import BatchServer
from tests.support.openai_endpoint import Say
from warehouse.ledger.batch_records import BatchRecord
from warehouse.ledger.ledger import Ledger
from warehouse.llm.client import AnswerPending, Role
from warehouse.llm.roles import ModelRequest, PreparedRequest, prepare_request

ROLE = Role(
    name="generator", model="m", base_url="http://loopback/v1", batch=True,
    usd_in=1.0, usd_out=1.0, attempts=100,
)  # fmt: skip
KEYS = 7


@pytest.fixture(scope="module", autouse=True)
def _three_a_batch() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "_MOST_REQUESTS", 3)
        yield


class Said(BaseModel):
    said: str


class Killed(BaseException):
    """The process ends here."""


class InMemory(BatchEndpoint):
    """The endpoint without HTTP, that kills the process before or after a call."""

    def __init__(self, server: BatchServer, kill_at: int) -> None:
        self._server, self._left = server, itertools.count(kill_at, -1)

    def _step(self) -> None:
        if next(self._left) == 0:
            raise Killed

    def upload(self, name: str, data: bytes) -> str:
        self._step()
        file = f"file-{len(self._server.files)}"
        self._server.files[file] = data
        self._step()
        return file

    def create(self, batch: BatchRecord) -> BatchStatus:
        self._step()
        made = self._server.create(
            {"endpoint": "", "input_file_id": batch.file_id, "completion_window": "24h",
             "metadata": {"toolmill_batch": batch.name}}
        )  # fmt: skip
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


def prepare(number: int) -> PreparedRequest:
    messages = [{"role": "user", "content": f"number {number}"}]
    return prepare_request(ModelRequest(ROLE, messages, Said, 0, {}, 64), "")


REQUESTS = [prepare(number) for number in range(KEYS)]


class World:
    """A state folder and a provider; every step is a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server = folder, BatchServer()
        self.server.script = lambda body, number: Say(json.dumps({"said": "yes"}))

    def run(self, kill_at: int, gathered: int) -> None:
        """A run that is killed after so many calls to the provider, or while it gathers."""
        ledger = open_ledger(self.folder)
        outbox = BatchOutbox(
            ledger, "pairs", partition="_", scope="usd",
            connect=lambda _: InMemory(self.server, kill_at),
        )  # fmt: skip
        for prepared in REQUESTS[:gathered]:
            if ledger.seen(prepared.key) is None:
                with pytest.raises(AnswerPending):
                    outbox.queue(prepared)
        if gathered < KEYS:
            bury_gatherer(ledger)
        else:
            outbox.submit()
        ledger.close()

    def harvest(self, kill_at: int) -> None:
        ledger = open_ledger(self.folder)
        for batch in ledger.batches.find("ready", "sent"):
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
        except Killed:
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


def bury_gatherer(ledger: Ledger) -> None:
    """What is being gathered belongs to a process that is no more."""
    for batch in ledger.batches.find("gathering"):
        ledger.batches.save(batch.model_copy(update={"pid": os.getpid(), "process": "gone"}))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["run", "run", "harvest", "harvest", "completed", "expired"]),
        st.sampled_from([0, 1, 2, 3, 4, 5, 7, 1000]),
        st.sampled_from([KEYS, KEYS, KEYS, 2]),
    ),
    min_size=2,
    max_size=9,
)


@given(STEPS)
@example([("run", 3, KEYS), ("run", 1000, KEYS)])  # killed behind a creation
@example([("run", 1000, KEYS), ("completed", 0, KEYS), ("harvest", 4, KEYS)])  # in a file
@settings(max_examples=20, deadline=None)
def test_every_interleaving_answers_each_request_once(steps: list[tuple[Any, ...]]) -> None:
    before, batches_module._AT_ONCE = batches_module._AT_ONCE, 2
    folder = Path(tempfile.mkdtemp())
    try:
        world = World(folder)
        for step in steps:
            world.step(*step)
            world.check_money()
        for _ in range(4):  # with no more kills it comes to its end
            world.step("run", 1000, KEYS)
            world.step("harvest", 1000, KEYS)
            world.step("completed", 0, KEYS)
            world.step("harvest", 1000, KEYS)
        world.check_money()
        ledger = open_ledger(folder)
        assert all(ledger.seen(one.key) for one in REQUESTS)
        assert not ledger.batches.find("gathering", "ready", "sent")
        assert not ledger.list_unknown()
        per_answer = json.loads(ledger.seen(REQUESTS[0].key) or b"")["usd"]
        assert abs(ledger.spent() - KEYS * per_answer) < 1e-12
        ledger.close()
    finally:
        batches_module._AT_ONCE = before
        shutil.rmtree(folder)
