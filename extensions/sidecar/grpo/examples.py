"""Worked examples: the same prompt with another row and its right answer before it."""

from collections.abc import Mapping, Sequence
from typing import Any

from extensions.sidecar.prompt import make_revision_request
from extensions.sidecar.rows import RevisionRow
from serving.repair.revision import RevisionRequest, make_revision_messages
from training.prompts.render import build_call_message, render_tool_schema
from training.prompts.templates import render_prompt_text


class WorkedExamples:
    """The rows of a training as examples for one another. lengths: of their prompts."""

    def __init__(self, rows: Sequence[RevisionRow], lengths: Sequence[int]) -> None:
        order = sorted(range(len(rows)), key=lambda at: (lengths[at], rows[at].row_id))
        self._rows = [rows[at] for at in order]

    def pick_example(self, row: RevisionRow) -> RevisionRow | None:
        """The shortest row of the same kind that another server has, else of any kind that is
        answered alike (a call, a question); None where there is none."""
        others = [one for one in self._rows if one.server_id != row.server_id]
        alike = (other for other in others if bool(other.right) == bool(row.right))
        return next((other for other in others if other.kind == row.kind), next(alike, None))


def render_example_prompt(tokenizer: Any, row: RevisionRow, example: RevisionRow) -> str:
    """The row's own prompt, with the example and its right answer as a turn before it; the tools
    are the row's, and the one that the example calls. Raises BadTemplate."""
    request, shown = make_revision_request(row), make_revision_request(example)
    [system, asked] = make_revision_messages(request)
    [_, before] = make_revision_messages(shown)
    answer = build_call_message(example.right, example.question)
    tools = _list_tools(request, example)
    return render_prompt_text(tokenizer, [system, before, answer, asked], tools)


def _list_tools(request: RevisionRequest, example: RevisionRow) -> list[dict[str, Any]]:
    contracts: dict[str, Mapping[str, Any]] = {
        candidate.name: candidate.contract for candidate in request.candidates
    }
    called = {str(one["name"]) for one in example.right}
    for contract in example.contracts:
        if contract["name"] in called:
            contracts.setdefault(str(contract["name"]), contract)
    return [render_tool_schema(dict(one)) for one in contracts.values()]
