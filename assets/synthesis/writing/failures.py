"""A step of one row that failed, and what no answer of a model may be: an order to its reader, a
tool's own text, another language."""

from typing import Any

from assets.synthesis.common.tables import dump_text
from assets.synthesis.verify.checks.injected_orders import find_order, find_repeated_run
from assets.synthesis.verify.checks.languages import find_other_language
from warehouse.json_types import JsonObject
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.client import LLMError
from warehouse.llm.roles import PENDING

_SETTINGS = ("unknown_role", "no_provider")  # faults of the whole run, not of a row


class StepFailed(Exception):
    """A step of one row that came to nothing, or waits for a batch: which, why, and what to do.
    retry_at: epoch seconds."""

    def __init__(
        self, step: str, kind: str, found: str, hint: str, retry_at: float | None = None
    ) -> None:
        super().__init__(f"{step}: {kind}: {found}; {hint}")
        self.columns = {
            "status": PENDING if kind == PENDING else "failed",
            "failed_step": step,
            "error_kind": kind,
            "hint": f"{found[:200]}; {hint}",
            "retry_at": retry_at,
        }


def make_step_failure(step: str, error: Exception) -> StepFailed:
    """An error of the client as the failure of a step. Faults of the settings are raised as they
    are."""
    if isinstance(error, LLMError):
        if error.kind in _SETTINGS:
            raise error
        retry_at = getattr(error, "retry_at", None)
        return StepFailed(step, error.kind, error.found, error.hint, retry_at or None)
    if isinstance(error, BudgetExceeded):
        return StepFailed(step, "budget", str(error), "raise budget_usd and run again")
    hint = "the contract or the answer holds a value that JSON cannot"
    return StepFailed(step, "bad_value", str(error), hint)


_HINT = "the answer is kept in the ledger; look at the tool's text"


def refuse_order(step: str, text: str) -> None:
    """Raises StepFailed for an order to whoever reads the text."""
    if (order := find_order(text)) is not None:
        raise StepFailed(step, "suspicious", order, _HINT)


def refuse_unasked_words(
    step: str, text: str, runs: frozenset[tuple[str, ...]], language: str
) -> None:
    """Raises StepFailed where a person's words repeat one of the tools' `runs`, or are plainly not
    in the language that was asked for."""
    if (run := find_repeated_run(text, runs)) is not None:
        raise StepFailed(step, "suspicious", f"it repeats the tool's own {run!r}", _HINT)
    if (other := find_other_language(text, language)) is not None:
        found = f"the text is in {other}, asked for {language}"
        raise StepFailed(step, "wrong_language", found, "another model or seed may help")


def check_values(step: str, values: JsonObject) -> dict[str, Any]:
    """A model's values, where they are JSON: NaN and half a character are not. Raises
    StepFailed."""
    try:
        dump_text(dict(values))
    except ValueError as error:
        raise make_step_failure(step, error) from error
    return dict(values)
