"""Whatever a provider makes of a batch: nothing good is lost, nothing paid twice, one line."""

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from extensions.batch.batch_ledger import BatchLedger
from extensions.batch.harvest import MOST_READS
from tests.extensions.batch import batch_runs
from tests.support.batch_endpoint import Fault
from tests.support.cases import cases
from tests.support.openai_endpoint import Say
from warehouse.ledger.batch_records import BatchRecord
from warehouse.llm.client import LLM, LLMError, Role, run_batch
from warehouse.process_identity import identify_process

Lines = list[dict[str, Any]]


def test_results_under_other_ids_are_nobodys_and_their_money_stays_reserved(stage):
    stage.run()
    reserved = stage.ledger.spent() / 4
    done = stage.end(alter=lambda lines: [{**lines[0], "custom_id": "other"}, *lines[1:]])
    assert (done.answered, done.unknown, done.ignored) == (3, 1, 1)
    assert done.problem == "1 without a result, perhaps paid; 1 results under other ids, or twice"
    assert stage.ledger.spent() == pytest.approx(reserved + done.usd, rel=0.05)
    assert stage.run()["heron"] == batch_runs.PENDING
    assert len(stage.ledger.list_unknown()) == 1


def test_a_result_that_comes_twice_is_paid_once_and_the_first_counts(stage):
    stage.run()

    def double(lines: Lines) -> Lines:
        return [*lines, json.loads(json.dumps(lines[0]).replace("heron", "egret"))]

    done = stage.end(alter=double)
    assert (done.answered, done.ignored) == (4, 1)
    assert stage.run()["heron"] == "heron"
    assert stage.ledger.spent() == pytest.approx(done.usd) == pytest.approx(4 * 3 / 1e6)


def test_a_row_that_a_batch_refused_is_asked_for_directly(stage):
    stage.server.script = lambda body, number: Say("content policy", status=400)
    stage.run()
    done = stage.end()
    assert (done.failed, done.usd, stage.ledger.spent()) == (4, 0.0, 0.0)
    assert stage.run() == dict.fromkeys(batch_runs.WORDS, "bad_request")
    assert len(stage.server.direct) == 4


def test_what_passes_goes_with_the_next_batch(stage):
    stage.server.script = lambda body, number: (
        Say("slow down", status=429) if number < 3 else batch_runs.echo(body, number)
    )
    stage.run()
    assert stage.end().failed == 2
    stage.run()
    assert batch_runs.words_of(stage.server)[1:] == [["heron", "crane"]]
    stage.end()
    assert stage.run() == batch_runs.ECHOED


def test_a_parameter_that_is_refused_is_left_out_of_the_next_batch(stage):
    def picky(body: dict[str, Any], number: int) -> Say:
        if "max_tokens" in body:
            return Say("Unsupported parameter: 'max_tokens' with this model", status=400)
        return batch_runs.echo(body, number)

    stage.server.script = picky
    stage.run()
    assert stage.end().problem == "refused: max_tokens"
    assert stage.run() == dict.fromkeys(batch_runs.WORDS, batch_runs.PENDING)
    stage.end()
    assert stage.run() == batch_runs.ECHOED
    assert not stage.server.direct


@cases("status, share", ("completed", 0.5), ("expired", 0.75), ("cancelled", 0.5))
def test_what_was_answered_is_kept_and_the_others_go_again(stage, status, share):
    stage.run()
    if status == "cancelled":
        stage.cancel()
    done = stage.end(status, share=share)
    assert (done.status, done.answered, done.failed) == (status, 4 * share, 4 - 4 * share)
    again = stage.run(attempts=1 if status == "cancelled" else 5)
    assert again["ibis"] == batch_runs.PENDING, "a cancellation is no failed attempt"
    assert batch_runs.words_of(stage.server)[1:] == [batch_runs.WORDS[int(4 * share) :]]
    stage.end()
    assert stage.run() == batch_runs.ECHOED
    assert set(stage.server.answered.values()) == {1}


@cases("code", "model_not_found", "token_limit_exceeded")
def test_a_refused_file_ends_after_attempts_but_a_full_queue_is_waited_for(stage, code):
    error = {"code": code, "message": "no model m", "line": None}
    for _ in range(3):
        assert set(stage.run().values()) == {batch_runs.PENDING}
        done = stage.end("failed", errors=[error])
        assert done.problem == f"the provider refused the file: {code}: no model m"
        assert stage.ledger.spent() == 0
    if code == "model_not_found":
        assert stage.run() == dict.fromkeys(batch_runs.WORDS, "bad_request")
        assert (len(stage.server.batches), len(stage.server.direct)) == (3, 0)
        return
    stage.run()
    stage.end()
    assert stage.run() == batch_runs.ECHOED


def test_a_line_at_fault_is_told_from_the_others_of_its_file(stage):
    stage.run()
    stage.end("failed", errors=[{"code": "invalid_json_line", "message": "bad", "line": 2}])
    assert stage.run() == {**dict.fromkeys(batch_runs.WORDS, batch_runs.PENDING), "crane": "crane"}
    assert batch_runs.words_of(stage.server)[1:] == [["heron", "stork", "ibis"]]
    assert len(stage.server.direct) == 1


def test_a_download_that_breaks_off_keeps_what_came_and_goes_on(stage):
    name, data = stage.write_output()
    stage.server.cut[name] = len(data) - 40
    first = stage.harvest()
    assert (first.state, first.reads) == ("sent", 1)
    assert first.problem.startswith("1 of 4 results are missing (")
    assert batch_runs.count_attempts(stage.ledger) == {"done": 3, "started": 1}
    assert stage.run()["ibis"] == batch_runs.PENDING
    stage.server.cut.clear()
    assert stage.harvest().answered == 4
    assert stage.run() == batch_runs.ECHOED
    assert len(stage.server.batches) == 1


def test_a_file_that_stays_cut_is_given_up_and_its_missing_rows_stay_reserved(stage):
    name, data = stage.write_output()
    stage.server.files[name] = data[:-40]
    seen = [stage.harvest() for _ in range(MOST_READS)]
    assert [one.state for one in seen] == ["sent"] * (MOST_READS - 1) + ["harvested"]
    assert (seen[-1].answered, seen[-1].unknown) == (3, 1)
    assert "perhaps paid" in seen[-1].problem
    assert stage.run()["ibis"] == batch_runs.PENDING


@cases(
    "body",
    {"choices": []},
    {"choices": [{"message": {"content": "{}"}}], "usage": {"prompt_tokens": -5}},
    *({"choices": "none"}, [1, 2], None, "text"),
)
def test_an_answer_that_cannot_be_read_may_have_been_paid(stage, body):
    stage.run()

    def spoil(lines: Lines) -> Lines:
        return [{**lines[0], "response": {"status_code": 200, "body": body}}, *lines[1:]]

    done = stage.end(alter=spoil)
    assert (done.answered, done.unknown, done.problem) == (3, 1, "1 results that cannot be read")
    assert stage.run()["heron"] == "heron", "it is asked for directly"


def test_lines_that_are_none_cost_only_themselves(stage):
    name, data = stage.write_output()
    junk = [b"\n", b"[1]\n", b"nul\x00l\n", b'{"custom_id": 5}\n', b"[" * 100_000 + b"\n", b"{}\n"]
    long = b'{"custom_id": "' + b"x" * (9 << 20) + b'"}\n'
    stage.server.files[name] = b"".join([*junk, long, data])
    done = stage.harvest()
    assert (done.state, done.answered, done.unknown) == ("harvested", 4, 0)
    assert stage.run() == batch_runs.ECHOED


@pytest.mark.slow
def test_a_file_of_100_mb_is_read_line_by_line(stage):
    batch_runs.run_stage(stage.ledger, stage.role, [f"w{number}" for number in range(25)])
    padding = {"padding": "x" * 4_000_000}
    stage.server.end(alter=lambda lines: [{**line, **padding} for line in lines])
    tracemalloc.start()
    done = stage.harvest()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.answered == 25
    assert peak < 60_000_000, "no more than some lines are held"


def test_a_batch_that_never_ends_is_one_line_and_can_be_let_go_of(stage):
    stage.run()
    reserved = stage.ledger.spent()
    assert stage.harvest().problem == ""
    [batch] = BatchLedger(stage.ledger).find("sent")
    ages = {name: getattr(batch, name) - 27 * 3600 for name in ("sent_at", "opened_at")}
    BatchLedger(stage.ledger).save(batch.model_copy(update=ages))
    late = stage.harvest()
    assert late.state == "sent"
    assert "still validating 3 h after its window of 24h: toolmill batch --cancel" in late.problem
    cancelled = stage.cancel()
    assert cancelled
    assert (cancelled.state, cancelled.status) == ("sent", "cancelling")
    given_up = stage.cancel(give_up=True)
    assert given_up
    assert (given_up.state, given_up.unknown) == ("given_up", 4)
    assert stage.ledger.spent() == pytest.approx(reserved), "the provider may be paid for it"
    assert set(stage.run().values()) == {batch_runs.PENDING}
    assert len(stage.server.batches) == 2


def test_an_endpoint_out_of_order_costs_nothing_and_what_it_never_got_is_cancelled(stage):
    stage.server.faults[("POST", "/files")] = [Fault(503, "overloaded")]
    assert set(stage.run().values()) == {batch_runs.PENDING}
    [kept] = BatchLedger(stage.ledger).find("ready")
    assert "overloaded" in kept.problem
    assert stage.harvest().state == "sent"
    stage.end()
    assert stage.run() == batch_runs.ECHOED
    stage.server.faults[("POST", "/files")] = [Fault(503)]
    spent, sent = stage.ledger.spent(), len(stage.server.batches)
    stage.run(["egret"])
    cancelled = stage.cancel()
    assert cancelled
    assert cancelled.state == "dropped"
    assert (stage.ledger.spent(), len(stage.server.batches)) == (spent, sent)


@cases("created", True, False)
def test_a_creation_without_an_answer_is_looked_for_before_it_is_tried_again(stage, created):
    stage.server.faults[("POST", "/batches")] = [Fault(after=created)]
    stage.run()
    [kept] = BatchLedger(stage.ledger).find("ready")
    assert len(stage.server.batches) == created
    if not created:
        with pytest.raises(LLMError, match="cancel again in some minutes, or with --give-up"):
            stage.cancel()
        waits = stage.harvest(settle_s=300)
        assert waits.state == "ready"
        assert "not in the provider's list yet" in waits.problem
        assert not stage.server.batches
    assert stage.harvest().name == kept.name
    assert len(stage.server.batches) == 1
    assert stage.end().answered == 4


def test_of_two_batches_of_one_name_one_is_cancelled(stage):
    stage.server.faults[("POST", "/batches")] = [Fault(after=True)]
    stage.run()
    stage.server.hidden = set(stage.server.batches)
    stage.harvest()
    assert len(stage.server.batches) == 2, "the list lagged for longer than anybody waits"
    stage.server.hidden = set()
    [kept] = BatchLedger(stage.ledger).find("sent")
    BatchLedger(stage.ledger).update(kept, state="ready")
    assert stage.harvest().batch_id == "batch_0"
    assert stage.server.batches["batch_1"]["status"] == "cancelling"


def test_a_batch_that_the_provider_or_the_roles_endpoint_does_not_know_stays_and_says_so(stage):
    stage.run()
    kept = dict(stage.server.batches)
    stage.server.batches.clear()
    lost = stage.harvest()
    assert lost.state == "sent"
    assert "the provider knows no batch batch_0" in lost.problem
    stage.server.batches.update(kept)
    moved = Role(name="generator", model="m", base_url="http://127.0.0.1:9/v1", api_key="k")
    [found] = batch_runs.harvest_all(stage.ledger, moved)
    assert found.state == "sent"
    assert "set base_url back" in found.problem
    assert stage.server.url in found.problem
    assert stage.end().answered == 4


def test_a_batch_of_another_process_at_work_is_left_to_it(stage):
    stage.run()
    stage.server.end()
    [batch] = BatchLedger(stage.ledger).find("sent")
    with BatchLedger(stage.ledger).hold(batch.name) as held:
        assert held == batch
        assert batch_runs.harvest_all(stage.ledger, stage.role) == []
    assert stage.harvest().answered == 4


def gather(stage: batch_runs.Stage, name: str) -> BatchRecord:
    facts = dict.fromkeys(("stage", "partition", "role", "model", "base_url"), "x")
    batch = BatchLedger(stage.ledger).open(name, window="24h", usd_in=0.5, usd_out=1.0, **facts)
    BatchLedger(stage.ledger).claim(batch, "llm:generator", "key", reserve_usd=1.0, scope="usd")
    return batch


def test_a_killed_gatherer_loses_what_it_has_and_a_live_one_keeps_it(stage):
    child = os.fork()
    if child == 0:
        gather(stage, "tm-dead")
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    stage.reopen()
    [dead] = BatchLedger(stage.ledger).find("dropped")
    assert (dead.name, stage.ledger.spent()) == ("tm-dead", 0.0)
    assert batch_runs.count_attempts(stage.ledger) == {"failed": 1}
    batch = gather(stage, "tm-live")
    stage.reopen()
    assert (batch.pid, batch.process) == (os.getpid(), identify_process())
    assert [one.name for one in BatchLedger(stage.ledger).find("gathering")] == ["tm-live"]
    assert BatchLedger(stage.ledger).find_holder("key") == "tm-live"


@cases("damage", Path.unlink, lambda path: path.write_bytes(b"other"))
@cases("state", "sent", "ready")
def test_a_lost_input_file_costs_no_answer_and_is_told_before_it_is_sent(stage, damage, state):
    if state == "ready":
        stage.server.faults[("POST", "/files")] = [Fault()]
    stage.run()
    [batch] = BatchLedger(stage.ledger).find(state)
    damage(stage.ledger.blobs.path(batch.blob))
    if state == "ready":
        assert "`toolmill batch --cancel" in stage.harvest().problem
        stage.cancel()
        assert stage.run() == dict.fromkeys(batch_runs.WORDS, batch_runs.PENDING)
    assert stage.end().answered == 4


def test_a_run_that_ends_in_an_error_lets_go_of_what_it_gathered(stage):
    llm = LLM([stage.role], stage.ledger, batches=True)

    async def ask(word: str) -> None:
        if word == "ibis":
            raise LLMError("unknown_role", "x", "y", "z")
        messages = [{"role": "user", "content": word}]
        with pytest.raises(LLMError):
            await llm.complete("generator", messages, schema=batch_runs.Word)

    with pytest.raises(LLMError, match="unknown_role"):
        run_batch(batch_runs.WORDS, ask, llm, fail=lambda *_: None, workers=1, stage="pairs")
    assert stage.ledger.spent() == 0
    assert [one.state for one in BatchLedger(stage.ledger).find()] == ["dropped"]
