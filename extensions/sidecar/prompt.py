"""A revision as text: the same prompt where it is learned, rolled out and served."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from assets.contracts.canonical import tool_text
from assets.contracts.repair.json_text import parse_arguments
from assets.vectors.lexical import BM25
from serving.repair.drafts import read_drafts
from serving.repair.evidence import ConversationEvidence
from serving.repair.tools import (
    ProposedCall,
    RevisionRequest,
    ToolCandidate,
    make_revision_messages,
)
from training.prompts.call_text import parse_calls
from training.prompts.render import find_first_fitting, render_answer, render_tool_schema
from training.prompts.templates import render_prompt_text
from warehouse.storage.digest import digest

UNTOUCHED = "untouched"
SOURCES = ("corrupted", "drift", "execution", UNTOUCHED)
RIGHT, WRONG, LEFT = "right", "wrong", "left"
# Marks, not content: the same draft on another side of a split is the same row.
_UNNAMED = ("row_id", "split", "ladder")
_LISTS = ("conversation", "contracts", "problems", "right")


@dataclass(frozen=True)
class RevisionRow:
    """row_id: digest of all that follows but the split and the ladder's mark. split: one of
    `training.sets.split`. conversation: messages {role, content}. contracts: the candidates as they
    are shown, likeliest first. draft_arguments: an object, or text where it cannot be read.
    problems: the validator's words, or a server's error message. right: the right call {name,
    arguments}; () where asking is right, and `question` is what to ask. kind: of the flaw, or
    "untouched". source: one of SOURCES. world: the task of a world that the pair is of, "" without.
    ladder: what the ladder alone makes of the draft: right, wrong, or
    left (it abstains); "" where nobody tried."""

    row_id: str
    split: str
    server_id: str
    conversation: tuple[Mapping[str, Any], ...]
    contracts: tuple[Mapping[str, Any], ...]
    draft_name: str
    draft_arguments: Any
    problems: tuple[str, ...]
    right: tuple[Mapping[str, Any], ...]
    question: str
    kind: str
    source: str
    world: str = ""
    ladder: str = ""


def assign_row_id(row: RevisionRow) -> RevisionRow:
    facts = {name: value for name, value in vars(row).items() if name not in _UNNAMED}
    return replace(row, row_id=digest(facts))


def read_row(facts: Mapping[str, Any]) -> RevisionRow:
    """The row whose `vars` were written as JSON. Raises ValueError naming a wrong field."""
    try:
        return RevisionRow(**{**facts, **{name: tuple(facts[name]) for name in _LISTS}})
    except (TypeError, KeyError) as error:
        raise ValueError(f"no row of the sidecar's data ({error}); make the data again") from error


_CLOSED = re.compile(r"\s*</\w{1,40}>\s*\Z")  # a tag after the call
_LONGEST_QUESTION = 500  # characters
_LONGEST_FIXED = 10_000  # characters of broken JSON that json-repair is given: it has half a second


def render_revision_prompt(tokenizer: Any, request: RevisionRequest) -> str:
    return render_prompt_text(tokenizer, make_revision_messages(request), _list_tools(request))


def render_revision_answer(tokenizer: Any, row: RevisionRow) -> str:
    """The right call in the template's form, or the question. Raises BadTemplate."""
    request = make_revision_request(row)
    return render_answer(
        tokenizer, make_revision_messages(request), row.right, _list_tools(request), row.question
    )


def make_revision_request(row: RevisionRow) -> RevisionRequest:
    return RevisionRequest(
        row.conversation,
        [
            ToolCandidate(str(contract["name"]), contract, row.server_id or None)
            for contract in row.contracts
        ],
        row.draft_name,
        row.draft_arguments,
        [{"message": words} for words in row.problems],
    )


def read_revision(text: str, contracts: Iterable[Mapping[str, Any]]) -> ProposedCall | None:
    """The revision in a model's text: its first call to one of the tools, else its first call, else
    its question; broken JSON is read by the fixer. None where it is neither. Never raises."""
    known = {str(contract.get("name")) for contract in contracts}
    read = parse_calls(text)
    if read.calls:
        call = next((call for call in read.calls if call["name"] in known), read.calls[0])
        return ProposedCall(call["name"], read_arguments(call["arguments"]))
    if read.kind == "invalid_json":
        body = _CLOSED.sub("", text[text.find("{") :]) if len(text) <= _LONGEST_FIXED else ""
        parsed = parse_arguments(body)
        if parsed.cut is not None or len(parsed.values) != 1:
            return None
        drafts = read_drafts(parsed.values[0])
        draft = next((draft for draft in drafts if draft.name in known), None)
        return ProposedCall(draft.name, read_arguments(draft.arguments)) if draft else None
    from assets.synthesis.verify.rules import is_question  # needs polars, serving has none

    if read.kind != "prose" or not is_question(text):
        return None
    return ProposedCall("", {}, " ".join(text.split())[:_LONGEST_QUESTION])


def _list_tools(request: RevisionRequest) -> list[dict[str, Any]]:
    return [render_tool_schema(candidate.contract) for candidate in request.candidates]


def read_arguments(arguments: Any) -> Any:
    """Arguments that a model wrote as text, read by the ladder's own parser."""
    if not isinstance(arguments, str):
        return arguments
    values = parse_arguments(arguments).values
    return values[0] if len(values) == 1 else arguments


@dataclass(frozen=True)
class FittedRequest:
    request: RevisionRequest
    prompt: str
    tokens: int


def rank_candidates(request: RevisionRequest) -> RevisionRequest:
    """Candidates, likeliest first: of the draft's name, then by words shared with the draft and the
    user (BM25), the newest message counted twice; ties in the order given."""
    if len(request.candidates) < 2:
        return request
    drafted = request.arguments if isinstance(request.arguments, dict) else {}
    spoken = ConversationEvidence(request.conversation).user
    words = " ".join([spoken, request.name, *map(str, drafted)]).replace("_", " ")
    index = BM25.build(
        [tool_text(candidate.contract) for candidate in request.candidates], stemmed=True
    )
    scores = index.score(words) + index.score(spoken.rpartition("\n")[2])
    named = [candidate.name == request.name for candidate in request.candidates]
    order = sorted(range(len(named)), key=lambda at: (not named[at], -float(scores[at]), at))
    return replace(request, candidates=[request.candidates[at] for at in order])


def fit_request(
    tokenizer: Any, request: RevisionRequest, limit: int, keep: Collection[str] = ()
) -> FittedRequest | None:
    """The request with what a prompt of `limit` tokens holds, or None: unlikely candidates go, then
    old turns; `keep`, one candidate and the newest turn stay. Raises BadTemplate."""
    free = [at for at, tool in enumerate(request.candidates) if tool.name not in keep]

    def make_fitted(step: tuple[int, int]) -> FittedRequest:
        out = set(free[len(free) - step[0] :])
        tools = [tool for at, tool in enumerate(request.candidates) if at not in out]
        shortened = replace(request, candidates=tools, conversation=request.conversation[step[1] :])
        prompt = render_revision_prompt(tokenizer, shortened)
        return FittedRequest(shortened, prompt, count_tokens(tokenizer, prompt))

    # (candidates that go, turns that go), each step shorter than the one before.
    most = len(free) - (len(free) == len(request.candidates) > 0)
    steps = [(gone, 0) for gone in range(most + 1)]
    steps += [(most, turns) for turns in range(1, len(request.conversation))]
    return find_first_fitting(steps, make_fitted, limit)


def count_tokens(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])
