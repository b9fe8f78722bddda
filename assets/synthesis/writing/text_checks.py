"""What no answer of a model may be: an order to its reader, a tool's own text, another language."""

from typing import Any

from assets.synthesis.common.tables import dump_text
from assets.synthesis.verify.checks.injected_orders import find_order, find_repeated_run
from assets.synthesis.verify.checks.languages import find_other_language
from assets.synthesis.writing.failures import StepFailed, make_step_failure
from warehouse.json_types import JsonObject

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
