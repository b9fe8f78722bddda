"""A revision as text: the same prompt where it is learned, rolled out and served."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from extensions.sidecar.rows import RevisionRow
from serving.repair.drafts import parse_arguments, read_drafts
from serving.repair.revision import MESSAGE, ProposedCall, RevisionRequest, make_revision_messages
from serving.repair.tools import ToolCandidate
from training.prompts.parse_calls import parse_calls
from training.prompts.render import render_answer, render_tool_schema
from training.prompts.templates import render_prompt_text

_CLOSED = re.compile(r"\s*</\w{1,40}>\s*\Z")  # a tag after the call
_LONGEST_QUESTION = 500  # characters
_LONGEST_FIXED = 10_000  # characters of broken JSON that json-repair is given: it has half a second


def render_revision_prompt(tokenizer: Any, request: RevisionRequest) -> str:
    """What the sidecar is asked with. Raises BadTemplate."""
    return render_prompt_text(tokenizer, make_revision_messages(request), _list_tools(request))


def render_revision_answer(tokenizer: Any, row: RevisionRow) -> str:
    """What the sidecar must write: the right call in the template's own form, or the question.
    Raises BadTemplate."""
    request = make_revision_request(row)
    asked = make_revision_messages(request)
    return render_answer(tokenizer, asked, row.right, _list_tools(request), row.question)


def make_revision_request(row: RevisionRow) -> RevisionRequest:
    """The request that a row is the answer to."""
    return RevisionRequest(
        row.conversation,
        [
            ToolCandidate(str(contract["name"]), contract, row.server_id or None)
            for contract in row.contracts
        ],
        row.draft_name,
        row.draft_arguments,
        [{MESSAGE: words} for words in row.problems],
    )


def read_revision(text: str, contracts: Iterable[Mapping[str, Any]]) -> ProposedCall | None:
    """The revision in a model's text: its first call to one of the tools, else its first call, else
    its question; broken JSON is read by the fixer. None where it is neither. Never raises."""
    known = {str(contract.get("name")) for contract in contracts}
    read = parse_calls(text)
    if read.calls:
        call = next((one for one in read.calls if one["name"] in known), read.calls[0])
        return ProposedCall(call["name"], _read_arguments(call["arguments"]))
    if read.kind == "invalid_json":
        return _fix_call(text, known)
    if read.kind != "prose" or not _is_question(text):
        return None
    return ProposedCall("", {}, " ".join(text.split())[:_LONGEST_QUESTION])


def _fix_call(text: str, known: Collection[str]) -> ProposedCall | None:
    """A call in broken JSON, to one of the tools; None where a value broke off: it may go on."""
    body = _CLOSED.sub("", text[text.find("{") :]) if len(text) <= _LONGEST_FIXED else ""
    parsed = parse_arguments(body)
    if parsed.cut is not None or len(parsed.values) != 1:
        return None
    found = (one for one in read_drafts(parsed.values[0]) if one.name in known)
    draft = next(found, None)
    return ProposedCall(draft.name, _read_arguments(draft.arguments)) if draft else None


def _list_tools(request: RevisionRequest) -> list[dict[str, Any]]:
    return [render_tool_schema(candidate.contract) for candidate in request.candidates]


def _read_arguments(given: Any) -> Any:
    """Arguments that a model wrote as text, read by the ladder's own parser."""
    if not isinstance(given, str):
        return given
    values = parse_arguments(given).values
    return values[0] if len(values) == 1 else given


def _is_question(text: str) -> bool:
    from assets.synthesis.verify.rules import is_question  # needs polars, serving has none

    return is_question(text)
