"""Runs of a small stage whose role goes by batch, over and over, as a marketplace's are."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from extensions.batch.batch_endpoint import BatchEndpoint
from extensions.batch.batch_ledger import BatchLedger
from extensions.batch.harvest import advance_batch, cancel_batch
from tests.support.batch_endpoint import BatchServer
from tests.support.openai_endpoint import Say
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.ledger.batch_records import BatchRecord
from warehouse.ledger.ledger import Ledger
from warehouse.llm.client import LLM, LLMError, Role, run_batch
from warehouse.llm.endpoint import OpenAIEndpoint
from warehouse.storage.blobs import Blobs

PENDING = "pending"
WORDS = ["heron", "crane", "stork", "ibis"]
ECHOED = {word: word for word in WORDS}


class Word(BaseModel):
    word: str


def open_ledger(folder: Path) -> Ledger:
    return Ledger(folder / "state" / "ledger.db", Blobs(folder / "blobs"))


def echo(body: dict[str, Any], _number: int) -> Say:
    return Say(json.dumps({"word": body["messages"][-1]["content"].split()[-1]}))


def make_role(url: str, **settings: Any) -> Role:
    facts = {"model": "m", "api_key": "k", "timeout_s": 5.0, "attempts": 3, "batch": True}
    prices = {"usd_in": 1.0, "usd_out": 2.0}
    return Role(name="generator", base_url=url, **{**facts, **prices, **settings})


def run_stage(ledger: Ledger, role: Role, words: list[str]) -> tuple[dict[str, str], LLM]:
    """One run: word -> what came back, or the kind of its failure."""
    llm = LLM([role], ledger, endpoint=OpenAIEndpoint(backoff_s=0.01), batches=True)

    async def ask(word: str) -> str:
        try:
            messages = [{"role": "user", "content": f"Say {word}"}]
            reply = await llm.complete("generator", messages, schema=Word)
        except BudgetExceeded:
            return "budget"
        except LLMError as error:
            return error.kind
        return reply.value.word

    def fail(word: str, hint: str) -> str:
        raise AssertionError(f"{word}: {hint}")

    found = run_batch(words, ask, llm, fail=fail, workers=4, stage="pairs")
    return dict(zip(words, found, strict=True)), llm


def harvest_all(ledger: Ledger, role: Role, *, settle_s: float = 0.0) -> list[BatchRecord]:
    endpoint = BatchEndpoint(role)
    try:
        open_ = BatchLedger(ledger).find("gathering", "ready", "sent")
        found = [advance_batch(ledger, one.name, role, endpoint, settle_s) for one in open_]
    finally:
        endpoint.close()
    return [one for one in found if one is not None]


def count_attempts(ledger: Ledger) -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, status), count in ledger.counts().items():
        found[status] = found.get(status, 0) + count
    return found


def words_of(server: BatchServer) -> list[list[str]]:
    return [
        [line["body"]["messages"][-1]["content"].split()[-1] for line in server.read_requests(one)]
        for one in server.batches.values()
    ]


class Stage:
    def __init__(self, folder: Path, server: BatchServer) -> None:
        self.folder, self.server = folder, server
        self.ledger, self.role = open_ledger(folder), make_role(server.url)

    def run(self, words: list[str] = WORDS, **settings: Any) -> dict[str, str]:
        return run_stage(self.ledger, make_role(self.server.url, **settings), words)[0]

    def harvest(self, **how: Any) -> BatchRecord:
        [batch] = harvest_all(self.ledger, self.role, **how)
        return batch

    def end(self, *args: Any, **how: Any) -> BatchRecord:
        self.server.end(*args, **how)
        return self.harvest()

    def write_output(self) -> tuple[str, bytes]:
        self.run()
        self.server.end()
        [batch] = self.server.batches.values()
        return batch["output_file_id"], self.server.files[batch["output_file_id"]]

    def cancel(self, **how: Any) -> BatchRecord | None:
        [open_] = BatchLedger(self.ledger).find("ready", "sent")
        endpoint = BatchEndpoint(self.role)
        try:
            return cancel_batch(self.ledger, open_.name, endpoint, **how)
        finally:
            endpoint.close()

    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = open_ledger(self.folder)
