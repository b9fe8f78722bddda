"""A step of one row that failed: which, why, and what to do."""

from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.client import LLMError

_SETTINGS = ("unknown_role", "no_provider")  # faults of the whole run, not of a row


class StepFailed(Exception):
    """A step of one row that came to nothing: which, why, and what to do."""

    def __init__(self, step: str, kind: str, found: str, hint: str) -> None:
        super().__init__(f"{step}: {kind}: {found}; {hint}")
        self.columns = {
            "status": "failed",
            "failed_step": step,
            "error_kind": kind,
            "hint": f"{found[:200]}; {hint}",
        }


def make_step_failure(step: str, error: Exception) -> StepFailed:
    """An error of the client as the failure of a step. Faults of the settings are raised as they
    are."""
    if isinstance(error, LLMError):
        if error.kind in _SETTINGS:
            raise error
        return StepFailed(step, error.kind, error.found, error.hint)
    if isinstance(error, BudgetExceeded):
        return StepFailed(step, "budget", str(error), "raise budget_usd and run again")
    hint = "the contract or the answer holds a value that JSON cannot"
    return StepFailed(step, "bad_value", str(error), hint)
