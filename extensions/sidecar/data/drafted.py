"""Drafts of another model: what the role `drafter` calls where a training set knows the right
call."""

from collections.abc import Iterator, Sequence

from assets.contracts.match.match import match_call
from extensions.sidecar.data.build import Drafted
from extensions.sidecar.data.calls import PlacedCall
from extensions.sidecar.rows import UNTOUCHED
from training.evaluation.predictors.interface import Asked, Predictor


def collect_drafts(calls: Sequence[PlacedCall], drafter: Predictor) -> Iterator[Drafted]:
    """The first call of each answer, right ones too. A question, words, and a request without an
    answer (an endpoint's fault) are no draft. kind: of the error, as `match_call` has it."""
    open_calls = [one for one in calls if not one.question and one.refused is None]
    for call, answer in zip(open_calls, drafter.predict(list(map(_ask, open_calls))), strict=True):
        if answer.error is None and answer.calls:
            given = answer.calls[0]
            right = {"name": call.good.name, "arguments": call.good.arguments}
            found = match_call(call.good.root, right, given)
            kind = found.error_kind or UNTOUCHED
            yield Drafted(call, given["name"], given["arguments"], kind, "drafted")


def _ask(call: PlacedCall) -> Asked:
    request = str(call.row["instruction"])
    before = call.conversation if len(call.conversation) > 1 else ()
    return Asked(
        str(call.row["pair_id"]), request, [dict(tool) for tool in call.tools], before=tuple(before)
    )
