"""What of a request a small window shows: the candidates that are likeliest, the turns that are
newest."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from assets.contracts.canonical import tool_text
from assets.vectors.lexical import BM25
from extensions.sidecar.prompt import render_revision_prompt
from serving.repair.evidence import ConversationEvidence
from serving.repair.revision import RevisionRequest
from training.prompts.fit import find_first_fitting


@dataclass(frozen=True)
class FittedRequest:
    """A request that fits, its prompt, and its length in tokens."""

    request: RevisionRequest
    prompt: str
    tokens: int


def rank_candidates(request: RevisionRequest) -> RevisionRequest:
    """The candidates, likeliest first: those of the draft's very name, then by the words that they
    share with the draft and with what the user said (BM25), the newest message once more; ties in
    the order given."""
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
    """The request with as much as `limit` tokens of prompt hold, None where the least does not fit.

    What is too much goes whole: the unlikeliest candidates first, then the oldest turns. One
    candidate, the tools named in `keep` and the newest turn stay. Raises BadTemplate.
    """
    return find_first_fitting(
        _list_steps(request, keep), _make_fitter(tokenizer, request, keep), limit
    )


def _list_steps(request: RevisionRequest, keep: Collection[str]) -> list[tuple[int, int]]:
    """(candidates that go, turns that go), each step shorter than the one before."""
    free = sum(candidate.name not in keep for candidate in request.candidates)
    free -= free == len(request.candidates) > 0
    steps = [(gone, 0) for gone in range(free + 1)]
    return steps + [(free, turns) for turns in range(1, len(request.conversation))]


def _make_fitter(
    tokenizer: Any, request: RevisionRequest, keep: Collection[str]
) -> Callable[[tuple[int, int]], FittedRequest]:
    free = [at for at, one in enumerate(request.candidates) if one.name not in keep]

    def make_fitted(step: tuple[int, int]) -> FittedRequest:
        out = set(free[len(free) - step[0] :])
        kept = [one for at, one in enumerate(request.candidates) if at not in out]
        made = replace(request, candidates=kept, conversation=request.conversation[step[1] :])
        prompt = render_revision_prompt(tokenizer, made)
        return FittedRequest(made, prompt, count_tokens(tokenizer, prompt))

    return make_fitted


def count_tokens(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])
