"""Rows of executions: what one call proves of each of its pairs."""

import json

from assets.outcomes.defs import EXECUTIONS_AUDIT
from assets.outcomes.environment import PLAIN
from assets.outcomes.execution import ToolCall, keep_execution
from assets.outcomes.plan import make_execution_row
from assets.outcomes.proof import CallProof
from assets.outcomes.run import ExecutionJob, JobResult
from assets.outcomes.select import LaunchableServer, WantedCall
from assets.outcomes.table import EXECUTIONS
from assets.servers.calls.result import CallResult
from tests.outcomes.running import make_contract
from warehouse.audit import audit


def test_a_pair_is_what_its_own_request_proves_and_one_of_several_calls_proves_none():
    call = ToolCall("npm:x", "do", make_contract(), "c1:" + "0" * 64, {"x": 1})
    pairs = {"p1:a": "write it", "p1:b": "read it", "p1:c": "write it", "p1:d": "write it"}
    wanted_call = WantedCall(call, list(pairs), list(pairs.values()), ["p1:c"])
    call_result = CallResult("ok", [{"type": "text", "text": "done"}])
    verdicts = {"read it": "refuted", "write it": "proved"}
    assert wanted_call.asked == sorted(verdicts)
    proofs = tuple(CallProof(verdicts[item], "why") for item in wanted_call.asked)
    done = JobResult(keep_execution(call_result, {"x": 1}, "s1", "s2", ["a"]), proofs)
    job = ExecutionJob("e1:1", wanted_call, LaunchableServer("npm:x", {}, "r" * 64), PLAIN, 7)
    row = make_execution_row(job, done)
    assert json.loads(row["proofs"]) == {
        "p1:a": "proved",
        "p1:b": "refuted",
        "p1:c": "unproved",
        "p1:d": "proved",
    }


def test_a_call_that_nobody_foresaw_passes_the_audit_of_its_partition():
    call = ToolCall("npm:x", "do", make_contract(), "c1:" + "0" * 64, {"x": 1})
    job = ExecutionJob("e1:1", WantedCall(call), LaunchableServer("npm:x", {}, "r" * 64), PLAIN, 7)
    row = make_execution_row(job, JobResult(problem="boom"))
    assert (row["outcome"], row["error_kind"]) == (None, "internal")
    frame = EXECUTIONS.frame([{**row, "marketplace": "registry"}])
    assert audit(frame, EXECUTIONS_AUDIT.expectations).passed
