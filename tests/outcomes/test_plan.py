"""Rows of executions."""

from assets.outcomes.defs import EXECUTIONS_AUDIT
from assets.outcomes.environment import PLAIN
from assets.outcomes.execution import ToolCall
from assets.outcomes.plan import make_execution_row
from assets.outcomes.run import ExecutionJob, JobResult
from assets.outcomes.select import LaunchableServer, WantedCall
from assets.outcomes.table import EXECUTIONS
from tests.outcomes.running import make_contract
from warehouse.audit import audit


def test_a_call_that_nobody_foresaw_passes_the_audit_of_its_partition():
    call = ToolCall("npm:x", "do", make_contract(), "c1:" + "0" * 64, {"x": 1})
    job = ExecutionJob("e1:1", WantedCall(call), LaunchableServer("npm:x", {}, "r" * 64), PLAIN, 7)
    row = make_execution_row(job, JobResult(problem="boom"))
    assert (row["outcome"], row["error_kind"]) == (None, "internal")
    frame = EXECUTIONS.frame([{**row, "marketplace": "registry"}])
    assert audit(frame, EXECUTIONS_AUDIT.expectations).passed
