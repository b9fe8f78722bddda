"""Pairs: the rows of many units at a time, one for every request whatever its outcome."""

from collections.abc import Sequence

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.tables import (
    CLARIFY,
    LOOKALIKE,
    MISSING,
    NO_TOOL,
    PARALLEL,
    RECOVERY,
    SEQUENTIAL,
    SINGLE,
    fail_row,
    make_pair_id,
)
from assets.synthesis.writing.failures import StepFailed
from assets.synthesis.writing.row_builder import Writing, describe_unit
from assets.synthesis.writing.tasks.dialogue import write_no_tool, write_recovery, write_vague
from assets.synthesis.writing.tasks.several import write_several
from assets.synthesis.writing.tasks.single import write_single
from assets.synthesis.writing.units import Unit, count_rows, plan_units
from warehouse.json_types import Json
from warehouse.llm.batch import run_batch
from warehouse.llm.client import LLM
from warehouse.progress import Progress

Rows = list[dict[str, Json]]

# A unit waits for one role at a time, so that as many units as requests keep every role busy.
_LEAST_AT_ONCE = 48
_ONE_ROW = {
    PARALLEL: write_several,
    SEQUENTIAL: write_several,
    NO_TOOL: write_no_tool,
    MISSING: write_vague,
    CLARIFY: write_vague,
    RECOVERY: write_recovery,
}


def compose_rows(
    made: Sequence[Unit],
    llm: LLM,
    policy: SynthesisPolicy,
    *,
    progress: Progress | None = None,
) -> Rows:
    """The rows of `PAIRS` of all units, in their order.

    What fails (no answer, budget, a bad answer) is a row with status `failed`, the step, an
    error_kind and a hint; nothing is dropped and nothing raised but settings (LLMError
    unknown_role, no_provider) and a broken ledger.
    """
    plans = plan_units(made, llm, policy)

    async def write(unit: Unit) -> Rows:
        if unit.problem:
            return _fail_unit(unit, plans[unit.key], "plan", unit.problem, llm, policy)
        if unit.task in (SINGLE, LOOKALIKE):
            return await write_single(unit, plans[unit.key], llm, policy)
        writing = Writing(unit, plans[unit.key], 0, llm, policy)
        try:
            await _ONE_ROW[unit.task](writing)
            writing.verify_row()
        except StepFailed as failure:
            return [writing.make_row(failure)]
        return [writing.make_row()]

    workers = max(_LEAST_AT_ONCE, sum(role.concurrency for role in llm.roles.values()))

    def fail(unit: Unit, hint: str) -> Rows:
        return _fail_unit(unit, plans[unit.key], "write", hint, llm, policy)

    written = run_batch(
        made, write, llm, fail=fail, workers=workers, stage="pairs", progress=progress
    )
    return [row for of_unit in written for row in of_unit]


def _fail_unit(
    unit: Unit, plan: str, step: str, hint: str, llm: LLM, policy: SynthesisPolicy
) -> Rows:
    """Its rows where nobody foresaw what happened: of what they are about, nothing is read."""
    own = describe_unit(unit, plan, llm)
    made = [fail_row({**own, "index": at}, step, hint) for at in range(count_rows(unit, policy))]
    return [{**row, "pair_id": make_pair_id(row)} for row in made]
